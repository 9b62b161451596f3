"""The configuration of a private James: IMAP, SMTP and webadmin on loopback, mail in memory, nothing else.

Keys: https://james.apache.org/server/config.html. A missing file means James's default, and a warning in its log. So
protocols that are not used are switched off by name.
"""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from loadsim.provisioning.export import PUBLIC, SECRET, write_table
from loadsim.servers.command import run

BACKLOG = 1000
SPOOLER_THREADS = 20
"""James's default."""


@dataclass(frozen=True, slots=True)
class JamesLayout:
    """Files of one instance."""

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
    layout: JamesLayout, address: str, ports: tuple[int, int, int], domain: str, virtual_hosting: bool
) -> str:
    """Write the configuration for the ports of IMAP, SMTP and webadmin. Return the token that webadmin demands."""
    imap_port, smtp_port, webadmin_port = ports
    layout.conf.mkdir(mode=0o755, exist_ok=True)
    for name, text in {
        "imapserver.xml": IMAP.format(bind=f"{address}:{imap_port}", backlog=BACKLOG),
        "smtpserver.xml": SMTP.format(bind=f"{address}:{smtp_port}", backlog=BACKLOG),
        "webadmin.properties": WEBADMIN.format(address=address, port=webadmin_port),
        "domainlist.xml": DOMAINS.format(domain=escape(domain)),
        "usersrepository.xml": USERS.format(virtual_hosting=str(virtual_hosting).lower()),
        "mailetcontainer.xml": MAILETS.format(threads=SPOOLER_THREADS),
        "logback.xml": LOGGING.format(log=layout.log),
        **OTHERS,
    }.items():
        write_table(layout.conf / name, text, PUBLIC)
    return make_token(layout.conf)


def make_token(conf: Path) -> str:
    """Write the public key by which webadmin checks tokens, and return a token (JSON Web Token, RS256, RFC 7515).

    Without a token, every user of the machine could change accounts. Raises `ConfigError` if openssl is missing.
    """
    key = write_table(conf / "jwt_privatekey", "", SECRET)
    unsigned = write_table(conf / "jwt_unsigned", "", SECRET)
    signature = conf / "jwt_signature"
    try:
        run("openssl", ("genrsa", "-out", str(key), "2048"))
        run("openssl", ("rsa", "-in", str(key), "-pubout", "-out", str(conf / "jwt_publickey")))
        claims = {"sub": "loadsim", "admin": True, "iat": int(time.time()) - 60}
        content = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
        unsigned.write_text(content, encoding="ascii")
        run("openssl", ("dgst", "-sha256", "-sign", str(key), "-out", str(signature), str(unsigned)))
        return f"{content}.{_base64(signature.read_bytes())}"
    finally:
        for file in (key, unsigned, signature):
            file.unlink(missing_ok=True)


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


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
jwt.enabled=true
jwt.publickeypem.url=file://conf/jwt_publickey
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
      <mailet match="RecipientIsLocal" class="ToProcessor"><processor>local-delivery</processor></mailet>
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
    "jmap.properties": "enabled=false\n",
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
    "pop3server.xml": "<pop3servers/>\n",
    "recipientrewritetable.xml": """\
<recipientrewritetable>
  <recursiveMapping>true</recursiveMapping>
  <mappingLimit>10</mappingLimit>
</recipientrewritetable>
""",
}
