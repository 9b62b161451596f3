"""The configuration of a private James: IMAP, SMTP and webadmin on loopback, mail in memory, nothing else.

Keys: https://james.apache.org/server/config.html. A missing file means James's default, and a warning in its log. So
protocols that are not used are switched off by name.
"""

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from loadsim.provisioning.export import PUBLIC, write_table

BACKLOG = 1000
SPOOLER_THREADS = 20
"""James's default."""


@dataclass(frozen=True, slots=True)
class JamesLayout:
    root: Path

    @property
    def conf(self) -> Path:
        return self.root / "conf"

    @property
    def log(self) -> Path:
        return self.root / "james.log"

    @property
    def logging(self) -> Path:
        return self.conf / "logback.xml"


def write_configuration(
    layout: JamesLayout,
    address: str,
    ports: tuple[int, int, int, int],
    domain: str,
    virtual_hosting: bool,
    jmap_port: int | None,
) -> None:
    """Write the configuration for these ports and that of JMAP; webadmin takes calls without a token."""
    imap_port, smtp_port, webadmin_port, pop3_port = ports
    layout.conf.mkdir(mode=0o755, exist_ok=True)
    jmap = JMAP.format(address=address, port=jmap_port, password=KEYSTORE_PASSWORD)
    for name, text in {
        "imapserver.xml": IMAP.format(bind=f"{address}:{imap_port}", backlog=BACKLOG),
        "pop3server.xml": POP3.format(bind=f"{address}:{pop3_port}", backlog=BACKLOG),
        "smtpserver.xml": SMTP.format(bind=f"{address}:{smtp_port}", backlog=BACKLOG),
        "webadmin.properties": WEBADMIN.format(address=address, port=webadmin_port),
        "domainlist.xml": DOMAINS.format(domain=escape(domain)),
        "usersrepository.xml": USERS.format(virtual_hosting=str(virtual_hosting).lower()),
        "mailetcontainer.xml": MAILETS.format(threads=SPOOLER_THREADS, jmap="" if jmap_port is None else JMAP_MAILETS),
        "logback.xml": LOGGING.format(log=layout.log),
        "jmap.properties": "enabled=false\n" if jmap_port is None else jmap,
        **OTHERS,
    }.items():
        write_table(layout.conf / name, text, PUBLIC)


IMAP = """\
<imapservers>
  <imapserver enabled="true">
    <jmxName>imapserver</jmxName>
    <bind>{bind}</bind>
    <connectionBacklog>{backlog}</connectionBacklog>
    <tls socketTLS="false" startTLS="false"/>
    <connectionLimit>0</connectionLimit>
    <connectionLimitPerIP>0</connectionLimitPerIP>
    <idleTimeInterval>120</idleTimeInterval>
    <idleTimeIntervalUnit>SECONDS</idleTimeIntervalUnit>
    <enableIdle>true</enableIdle>
    <plainAuthDisallowed>false</plainAuthDisallowed>
    <auth><plainAuthEnabled>true</plainAuthEnabled></auth>
  </imapserver>
</imapservers>
"""

POP3 = """\
<pop3servers>
  <pop3server enabled="true">
    <jmxName>pop3server</jmxName>
    <bind>{bind}</bind>
    <connectionBacklog>{backlog}</connectionBacklog>
    <tls socketTLS="false" startTLS="false"/>
    <connectiontimeout>1200</connectiontimeout>
    <connectionLimit>0</connectionLimit>
    <connectionLimitPerIP>0</connectionLimitPerIP>
    <handlerchain><handler class="org.apache.james.pop3server.core.CoreCmdHandlerLoader"/></handlerchain>
  </pop3server>
</pop3servers>
"""

SMTP = """\
<smtpservers>
  <smtpserver enabled="true">
    <jmxName>smtpserver</jmxName>
    <bind>{bind}</bind>
    <connectionBacklog>{backlog}</connectionBacklog>
    <tls socketTLS="false" startTLS="false"/>
    <connectiontimeout>360</connectiontimeout>
    <connectionLimit>0</connectionLimit>
    <connectionLimitPerIP>0</connectionLimitPerIP>
    <auth>
      <announce>always</announce>
      <requireSSL>false</requireSSL>
      <plainAuthEnabled>true</plainAuthEnabled>
    </auth>
    <verifyIdentity>false</verifyIdentity>
    <maxmessagesize>0</maxmessagesize>
    <addressBracketsEnforcement>true</addressBracketsEnforcement>
    <smtpGreeting>Apache James</smtpGreeting>
    <handlerchain>
      <handler class="org.apache.james.smtpserver.fastfail.ValidRcptHandler"/>
      <handler class="org.apache.james.smtpserver.CoreCmdHandlerLoader"/>
    </handlerchain>
  </smtpserver>
</smtpservers>
"""

WEBADMIN = """\
enabled=true
host={address}
port={port}
https.enabled=false
jwt.enabled=false
"""

DOMAINS = """\
<domainlist>
  <autodetect>false</autodetect>
  <autodetectIP>false</autodetectIP>
  <defaultDomain>{domain}</defaultDomain>
</domainlist>
"""

USERS = """\
<usersrepository name="LocalUsers">
  <!-- One round of a fast hash: otherwise log-ons would measure the hash. -->
  <algorithm>SHA-512</algorithm>
  <enableVirtualHosting>{virtual_hosting}</enableVirtualHosting>
  <enableForwarding>true</enableForwarding>
</usersrepository>
"""

MAILETS = """\
<!-- No RemoteDelivery: no mail can leave. -->
<mailetcontainer enableJmx="false">
  <context><postmaster>postmaster</postmaster></context>
  <spooler><threads>{threads}</threads><errorRepository>memory://var/mail/error/</errorRepository></spooler>
  <processors>
    <processor state="root" enableJmx="false">
      <mailet match="All" class="ToProcessor"><processor>transport</processor></mailet>
    </processor>
    <processor state="transport" enableJmx="false">
      <mailet match="All" class="RemoveMimeHeader"><name>bcc</name></mailet>
      <mailet match="All" class="RecipientRewriteTable"><errorProcessor>error</errorProcessor></mailet>
{jmap}      <mailet match="RecipientIsLocal" class="ToProcessor"><processor>local-delivery</processor></mailet>
      <mailet match="All" class="ToProcessor"><processor>error</processor></mailet>
    </processor>
    <processor state="local-delivery" enableJmx="false">
      <mailet match="All" class="VacationMailet"><onMailetException>ignore</onMailetException></mailet>
      <mailet match="All" class="LocalDelivery"/>
    </processor>
    <processor state="error" enableJmx="false">
      <mailet match="All" class="ToRepository">
        <repositoryPath>memory://var/mail/error/</repositoryPath>
        <onMailetException>propagate</onMailetException>
      </mailet>
    </processor>
  </processors>
</mailetcontainer>
"""

JMAP_MAILETS = """\
      <!-- Without both, James does not start JMAP. -->
      <mailet match="RecipientIsLocal" class="VacationMailet"><onMailetException>ignore</onMailetException></mailet>
      <mailet match="RecipientIsLocal" class="org.apache.james.jmap.mailet.filter.JMAPFiltering"/>
"""

# James listens on all addresses: it has no key for one. Without the default version, a client that names none in
# `Accept` gets a draft of JMAP, and 401.
JMAP = """\
enabled=true
jmap.port={port}
jmap.version.default=rfc-8621
tls.keystoreURL=file://conf/keystore
keystoreType=PKCS12
tls.secret={password}
url.prefix=http://{address}:{port}
websocket.url.prefix=ws://{address}:{port}
"""
KEYSTORE_PASSWORD = "loadsim"
"""Of the key that JMAP's tokens would be signed with; users have passwords."""

LOGGING = """\
<configuration>
  <appender name="log" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <append>false</append>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{15}} - %msg%n%rEx</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="log"/></root>
  <!-- At INFO, James writes a line for each connection and each delivery. -->
  <logger name="org.apache.james.GuiceJamesServer" level="INFO"/>
</configuration>
"""

OTHERS = {
    "deletedMessageVault.properties": "enabled=false\n",
    "dnsservice.xml": """\
<dnsservice>
  <!-- No name is ever resolved: nothing answers here. -->
  <autodiscover>false</autodiscover>
  <servers><server>127.0.0.1</server></servers>
  <authoritative>false</authoritative>
  <maxcachesize>1000</maxcachesize>
</dnsservice>
""",
    "healthcheck.properties": "healthcheck.period=1h\n",
    "jmx.properties": "jmx.enabled=false\n",
    "jvm.properties": "",
    "listeners.xml": "<listeners/>\n",
    "lmtpserver.xml": "<lmtpservers/>\n",
    "mailrepositorystore.xml": """\
<mailrepositorystore>
  <defaultProtocol>memory</defaultProtocol>
  <mailrepositories>
    <mailrepository class="org.apache.james.mailrepository.memory.MemoryMailRepository">
      <protocols><protocol>memory</protocol></protocols>
    </mailrepository>
  </mailrepositories>
</mailrepositorystore>
""",
    "managesieveserver.xml": "<managesieveservers/>\n",
    "recipientrewritetable.xml": """\
<recipientrewritetable>
  <recursiveMapping>true</recursiveMapping>
  <mappingLimit>10</mappingLimit>
</recipientrewritetable>
""",
}
