"""The services of a server: the sections `server.imap` and so on of a scenario file, and their endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar
from urllib.parse import SplitResult, unquote, urlsplit

from loadsim.documents.schema import Switch, Text, whole, word
from loadsim.documents.typed import Reads, mismatch, mismatches, show, strict
from loadsim.model.ports import Endpoint
from loadsim.scenario.log_on import AUTO, BEARER, CONNECTION_METHODS, LOGIN_COMMAND, METHODS, Pattern

Port = Annotated[int, whole(1, 65535)]
Tls = Annotated[str, word("none", "starttls", "implicit")]

IMAP_PORTS = {"none": 143, "starttls": 143, "implicit": 993}
"""RFC 9051 section 2.1 and RFC 8314 section 3.2."""

SMTP_PORTS = {"none": 25, "starttls": 587, "implicit": 465}
"""RFC 5321, RFC 6409 section 3.1 and RFC 8314 section 3.3."""

LMTP_PORT = 24
"""IANA's port of private mail systems, and Dovecot's example; RFC 2033 section 5 rules out SMTP's."""

POP3_PORTS = {"none": 110, "starttls": 110, "implicit": 995}
"""RFC 1939 section 3 and RFC 8314 section 3.2."""

HTTP_PORTS = {"http": 80, "https": 443}

NNTP_PORTS = {"none": 119, "starttls": 119, "implicit": 563}
"""RFC 3977 section 3 and RFC 4642 section 1; RFC 8143 prefers `implicit`."""

LDAP_PORTS = {"ldap": 389, "ldaps": 636}
"""RFC 4516 section 2, and the port that IANA assigned to LDAP over TLS."""

MAPI_PATH = "/mapi/emsmdb"
"""The mailboxes' path on servers for MAPI over HTTP. Clients learn it by Autodiscover, which loadsim does not use."""

INSECURE = "insecure-none"
"""The value that switches off certificate verification."""


def _verify(value: object) -> bool:
    if value is not True and value != INSECURE:
        raise mismatch(f"yes, or {INSECURE}, which lets anyone in between read the passwords")
    return value is True


def _methods(known: Sequence[str]) -> Callable[[object], tuple[str, ...]]:
    """Return a reader for `auto`, a method, or a list of methods in order of preference."""

    def read(value: object) -> tuple[str, ...]:
        if value == AUTO:
            return ()
        methods = value if isinstance(value, list) else [value]
        for at, method in enumerate(methods):
            if not isinstance(method, str) or method not in known:
                expected = f"{AUTO}, one of {', '.join(known)}, or a list of them"
                raise mismatch(expected, show(method), at=(at,) if isinstance(value, list) else ())
        if not methods or len(set(methods)) < len(methods):
            raise mismatch("a list of different methods", "an empty list" if not methods else "a repeated one")
        return tuple(methods)

    return read


SMTP_METHODS = [method for method in METHODS if method != LOGIN_COMMAND]
_read_smtp_methods = _methods(SMTP_METHODS)


def _read_smtp_auth(value: object) -> bool | tuple[str, ...]:
    return value if isinstance(value, bool) else _read_smtp_methods(value)


Verification = Annotated[bool, Reads(_verify, f"yes, {INSECURE}")]
ImapMethods = Annotated[tuple[str, ...], Reads(_methods(METHODS), f"{AUTO}, {', '.join(METHODS)}, or a list")]
SmtpMethods = Annotated[
    bool | tuple[str, ...], Reads(_read_smtp_auth, f"yes, no, {AUTO}, {', '.join(SMTP_METHODS)}, or a list")
]


IGNORABLE = (
    *("CONDSTORE", "IDLE", "LIST-EXTENDED", "LIST-STATUS", "LITERAL+", "LITERAL-", "MOVE", "MULTIAPPEND"),
    *("NAMESPACE", "SASL-IR", "SPECIAL-USE", "UIDPLUS", "UNSELECT"),
)
"""The capabilities that loadsim uses if the server offers them, but can do without."""


def _capability(value: object) -> str:
    if not isinstance(value, str) or value.upper() not in IGNORABLE:
        raise mismatch(f"one of {', '.join(IGNORABLE)}")
    return value.upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsKeys:
    """The keys of TLS, which every service has."""

    with_tls: ClassVar[str] = "starttls or implicit"  # in the words of the key that decides it

    ca_file: Text | None = None
    """File with the authorities that sign the server's certificate. Default: the system's."""
    tls_server_name: Text | None = None
    """Name in the TLS handshake (SNI) and in the certificate. Default: host."""
    tls_verify: Verification = True
    """Verify certificate and name. `insecure-none` lets anyone in between read passwords and mail; loadsim warns."""

    def __post_init__(self) -> None:
        """Reject settings that have no meaning without TLS, and a key without a certificate."""
        certificate, key_file = (getattr(self, key, None) for key in ("client_certificate", "client_key"))
        meant = {
            "ca_file": self.ca_file is not None,
            "tls_server_name": self.tls_server_name is not None,
            "tls_verify": not self.tls_verify,
            "client_certificate": certificate is not None,
        }
        tls: str = getattr(self, "tls")  # noqa: B009 - a key or a property of each service
        mistakes = [
            mismatch(f"{self.with_tls} with {key}", "none", at=("url" if hasattr(self, "url") else "tls",))
            for key, given in meant.items()
            if given and tls == "none"
        ]
        if key_file is not None and certificate is None:
            mistakes.append(mismatch("a client_certificate with the client_key", "none", at=("client_certificate",)))
        if not self.tls_verify and self.ca_file is not None:
            mistakes.append(mismatch(f"either ca_file or tls_verify: {INSECURE}", "both", at=("tls_verify",)))
        if mistakes:
            raise mismatches(mistakes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateKeys(TlsKeys):
    """The keys of a service that may ask for the users' certificates, too."""

    client_certificate: Pattern | None = None
    """The users' certificate (PEM), for `external`; may have the fields `{index}` and `{user}`."""
    client_key: Pattern | None = None
    """The certificate's key, without a passphrase. Default: in the certificate's file."""


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class ImapSection(CertificateKeys):
    host: Text
    """Name or address; beyond loopback, it must be in `allow_hosts`."""
    port: Port | None = None
    """Port. Default: 143, or 993 with `implicit`."""
    tls: Tls = "none"
    """Encryption of the connection."""
    auth: ImapMethods = ()
    """Log-on methods in order of preference; only the first that the server offers is used. Default: `auto`."""
    preparation_connections: Annotated[int, whole(1, 1000)] = 32
    """Most simultaneous connections from a machine while it prepares mailboxes."""
    ignore_capabilities: tuple[Annotated[str, Reads(_capability, ", ".join(IGNORABLE))], ...] = ()
    """Capabilities not to use even if the server offers them, such as `[IDLE, MOVE]`."""


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSection(CertificateKeys):
    host: Text
    """As for IMAP."""
    port: Port | None = None
    """Port. Default: 25, 587 with `starttls`, 465 with `implicit`."""
    tls: Tls = "none"
    """As for IMAP."""
    connection: Annotated[str, word("per-message", "kept")] | None = None
    """One connection per message, or one that stays open. Default: the program's."""
    auth: SmtpMethods = True
    """With `yes` or `auto`, authenticate if the server offers it; with `no`, never. A named method must be offered."""


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSection(TlsKeys):
    host: Text
    """As for IMAP."""
    port: Port | None = None
    """Port. Default: 25, 587 with `starttls`, 465 with `implicit`; 24 by LMTP."""
    protocol: Annotated[str, word("smtp", "lmtp")] = "smtp"
    """Protocol. By LMTP, the server answers for each recipient; distribution lists need a server that knows them."""
    tls: Tls = "none"
    """As for IMAP."""
    connection: Annotated[str, word("per-message", "kept")] = "per-message"
    """One connection per message, or one per sender that stays open."""


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class Pop3Section(CertificateKeys):
    host: Text
    """As for IMAP."""
    port: Port | None = None
    """Port. Default: 110, or 995 with `implicit`."""
    tls: Tls = "none"
    """As for IMAP."""
    auth: ImapMethods = ()
    """As for IMAP, with USER and PASS as `login-command`."""


def _url(value: object) -> SplitResult:
    """Read scheme, host, port, path and query. No error shows the value, which may contain a password."""
    expected = f"scheme, host, port, path and query, such as https://mail.example.com{MAPI_PATH}"
    text = value if isinstance(value, str) else ""
    try:
        url = urlsplit(text)
        sound = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        sound = False
    if not sound or not text.isascii() or re.search(r"[\s\x00-\x1f\x7f#\\]|://[^/?]*@", text):
        raise mismatch(expected, "something else")
    return url


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class MapiSection(CertificateKeys):
    with_tls = "https"

    url: Annotated[SplitResult, Reads(_url, "text")]
    """Address of the mailboxes, such as `https://mail.example.com/mapi/emsmdb`, which is the default path; a query is
    sent with it. A host beyond loopback must be in `allow_hosts`."""
    auth: Annotated[str, word("basic", *CONNECTION_METHODS)] = "basic"
    """Log-on method of HTTP. `ntlm` and `negotiate` need `pip install 'loadsim[ntlm]'`."""

    @property
    def host(self) -> str:
        return self.url.hostname or ""

    @property
    def tls(self) -> str:
        return "implicit" if self.url.scheme == "https" else "none"


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSection(CertificateKeys):
    with_tls = "implicit"

    host: Text
    """As for IMAP. JMAP's session resource is at `/.well-known/jmap`, CalDAV's principal at `/.well-known/caldav` or
    the root; each may redirect."""
    port: Port | None = None
    """Port. Default: 80, or 443 with `implicit`."""
    tls: Annotated[str, word("none", "implicit")] = "none"
    """Encryption of the connection; `implicit` is https."""
    auth: Annotated[str, word("basic", BEARER)] = "basic"
    """Log-on method of HTTP. `bearer` sends the token of `accounts.token_file`."""


def _ldap_url(value: object) -> SplitResult:
    """Read scheme, host, port and base (RFC 4516). No error shows the value, which may contain a password."""
    try:
        url = urlsplit(value if isinstance(value, str) else "")
        sound = url.scheme in LDAP_PORTS and bool(url.hostname) and url.port != 0 and len(url.path) > 1
    except ValueError:
        sound = False
    if not sound or url.query or url.fragment or url.username is not None:
        raise mismatch(
            "scheme, host, port and base, such as ldap://mail.example.com/ou=people,dc=example", "something else"
        )
    return url


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class LdapSection(CertificateKeys):
    with_tls = "ldaps"

    url: Annotated[SplitResult, Reads(_ldap_url, "text")]
    """Address, and the name below which the entries are: `ldap://` (port 389) or `ldaps://` (636), a host, which beyond
    loopback must be in `allow_hosts`, and the base, such as `/ou=people,dc=example,dc=com`."""
    bind_dn: Pattern | None = None
    """A user's distinguished name, such as `uid={user},ou=people,dc=example,dc=com`, to log on with the password.
    Default: no log-on."""

    @property
    def host(self) -> str:
        return self.url.hostname or ""

    @property
    def tls(self) -> str:
        return "implicit" if self.url.scheme == "ldaps" else "none"


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class NntpSection(CertificateKeys):
    host: Text
    """As for IMAP."""
    port: Port | None = None
    """Port. Default: 119, or 563 with `implicit`."""
    tls: Tls = "none"
    """As for IMAP."""
    auth: Switch = True
    """Log on with name and password (AUTHINFO USER, RFC 4643) if the server offers it. With `no`, never."""


COMMON = (*("host", "tls", "ca_file", "tls_server_name", "tls_verify"), *("client_certificate", "client_key"))
"""Keys shared by an endpoint and the file for all services, except that `url` has `host` and `tls` of MAPI and LDAP.

Outside senders have no certificates.
"""


def common(service: TlsKeys | Endpoint) -> dict[str, Any]:
    return {key: getattr(service, key, None) for key in COMMON}


def imap(section: ImapSection) -> Endpoint:
    return Endpoint(
        port=section.port or IMAP_PORTS[section.tls],
        methods=section.auth,
        preparation_connections=section.preparation_connections,
        ignored=frozenset(section.ignore_capabilities),
        **common(section),
    )


def smtp(section: SmtpSection) -> Endpoint:
    return Endpoint(
        port=section.port or SMTP_PORTS[section.tls],
        connection=section.connection,
        auth=section.auth is not False,
        methods=() if isinstance(section.auth, bool) else section.auth,
        **common(section),
    )


def outside(section: OutsideSection) -> Endpoint:
    lmtp = section.protocol == "lmtp"
    port = section.port or (LMTP_PORT if lmtp else SMTP_PORTS[section.tls])
    return Endpoint(port=port, connection=section.connection, auth=False, lmtp=lmtp, **common(section))


def pop3(section: Pop3Section) -> Endpoint:
    return Endpoint(port=section.port or POP3_PORTS[section.tls], methods=section.auth, **common(section))


def mapi(section: MapiSection) -> Endpoint:
    url = section.url
    port = url.port or HTTP_PORTS[url.scheme]
    path = (url.path if url.path != "/" else "") or MAPI_PATH
    methods = (section.auth,) if section.auth in CONNECTION_METHODS else ()
    return Endpoint(port=port, path=f"{path}?{url.query}" if url.query else path, methods=methods, **common(section))


def ldap(section: LdapSection) -> Endpoint:
    url = section.url
    auth = section.bind_dn is not None
    port = url.port or LDAP_PORTS[url.scheme]
    return Endpoint(port=port, path=unquote(url.path[1:]), auth=auth, bind_dn=section.bind_dn, **common(section))


def nntp(section: NntpSection) -> Endpoint:
    return Endpoint(port=section.port or NNTP_PORTS[section.tls], auth=section.auth, **common(section))


def http(section: HttpSection) -> Endpoint:
    port = section.port or HTTP_PORTS["http" if section.tls == "none" else "https"]
    return Endpoint(port=port, methods=(BEARER,) if section.auth == BEARER else (), **common(section))
