"""The section `server` of a scenario file: the tested server's endpoints, and how users reach them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from loadsim.documents.schema import Text, whole, word
from loadsim.documents.typed import ReadAs, Reads, mismatch, mismatches, show, strict
from loadsim.documents.yaml_reader import Origin, Problems, resolve_path
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.host_port import bracketed, is_loopback
from loadsim.model.ports import Endpoint, stated_endpoints
from loadsim.model.terms import LDAP
from loadsim.scenario.accounts import AccountsSection
from loadsim.scenario.log_on import (
    AUTO,
    CONNECTION_METHODS,
    LOGIN_COMMAND,
    METHODS,
    TOKEN_METHODS,
    WITH_AUTHZID,
    Pattern,
    described,
    is_pattern,
)

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


_SMTP_METHODS = [method for method in METHODS if method != LOGIN_COMMAND]
_read_smtp_methods = _methods(_SMTP_METHODS)


def _read_smtp_auth(value: object) -> bool | tuple[str, ...]:
    return value if isinstance(value, bool) else _read_smtp_methods(value)


Verification = Annotated[bool, Reads(_verify, f"yes, {INSECURE}")]
ImapMethods = Annotated[tuple[str, ...], Reads(_methods(METHODS), f"{AUTO}, {', '.join(METHODS)}, or a list")]
SmtpMethods = Annotated[
    bool | tuple[str, ...], Reads(_read_smtp_auth, f"yes, no, {AUTO}, {', '.join(_SMTP_METHODS)}, or a list")
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


@strict
@dataclass(frozen=True, slots=True)
class _Imap:
    host: Text
    """Name or address; beyond loopback, it must be in `allow_hosts`."""
    port: Port | None = None
    """Port. Default: 143, or 993 with `implicit`."""
    tls: Tls = "none"
    """Encryption of the connection."""
    ca_file: Text | None = None
    """File with the authorities that sign the server's certificate. Default: the system's."""
    auth: ImapMethods = ()
    """Log-on methods in order of preference; only the first that the server offers is used. Default: `auto`."""
    tls_server_name: Text | None = None
    """Name in the TLS handshake (SNI) and in the certificate. Default: host."""
    tls_verify: Verification = True
    """Verify certificate and name. `insecure-none` lets anyone in between read passwords and mail; loadsim warns."""
    client_certificate: Pattern | None = None
    """The users' certificate (PEM), for `external`; may have the fields `{index}` and `{user}`."""
    client_key: Pattern | None = None
    """The certificate's key, without a passphrase. Default: in the certificate's file."""
    preparation_connections: Annotated[int, whole(1, 1000)] = 32
    """Most simultaneous connections from a machine while it prepares mailboxes."""
    ignore_capabilities: tuple[Annotated[str, Reads(_capability, ", ".join(IGNORABLE))], ...] = ()
    """Capabilities not to use even if the server offers them, such as `[IDLE, MOVE]`."""

    def __post_init__(self) -> None:
        _check_tls(self)


@strict
@dataclass(frozen=True, slots=True)
class _Smtp:
    host: Text
    """As for IMAP."""
    port: Port | None = None
    """Port. Default: 25, 587 with `starttls`, 465 with `implicit`."""
    tls: Tls = "none"
    """As for IMAP."""
    ca_file: Text | None = None
    """As for IMAP. Default: the system's."""
    connection: Annotated[str, word("per-message", "kept")] | None = None
    """One connection per message, or one that stays open. Default: the program's."""
    auth: SmtpMethods = True
    """With `yes` or `auto`, authenticate if the server offers it; with `no`, never. A named method must be offered."""
    tls_server_name: Text | None = None
    """As for IMAP. Default: host."""
    tls_verify: Verification = True
    """As for IMAP."""
    client_certificate: Pattern | None = None
    """As for IMAP."""
    client_key: Pattern | None = None
    """As for IMAP. Default: in the certificate's file."""

    def __post_init__(self) -> None:
        _check_tls(self)


@strict
@dataclass(frozen=True, slots=True)
class _Outside:
    host: Text
    """As for IMAP."""
    port: Port | None = None
    """Port. Default: 25, 587 with `starttls`, 465 with `implicit`; 24 by LMTP."""
    protocol: Annotated[str, word("smtp", "lmtp")] = "smtp"
    """Protocol. By LMTP, the server answers for each recipient; distribution lists need a server that knows them."""
    tls: Tls = "none"
    """As for IMAP."""
    ca_file: Text | None = None
    """As for IMAP. Default: the system's."""
    connection: Annotated[str, word("per-message", "kept")] = "per-message"
    """One connection per message, or one per sender that stays open."""
    tls_server_name: Text | None = None
    """As for IMAP. Default: host."""
    tls_verify: Verification = True
    """As for IMAP."""

    def __post_init__(self) -> None:
        _check_tls(self)


@strict
@dataclass(frozen=True, slots=True)
class _Pop3:
    host: Text
    """As for IMAP."""
    port: Port | None = None
    """Port. Default: 110, or 995 with `implicit`."""
    tls: Tls = "none"
    """As for IMAP."""
    ca_file: Text | None = None
    """As for IMAP."""
    auth: ImapMethods = ()
    """As for IMAP, with USER and PASS as `login-command`."""
    tls_server_name: Text | None = None
    """As for IMAP. Default: host."""
    tls_verify: Verification = True
    """As for IMAP."""
    client_certificate: Pattern | None = None
    """As for IMAP."""
    client_key: Pattern | None = None
    """As for IMAP. Default: in the certificate's file."""

    def __post_init__(self) -> None:
        _check_tls(self)


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
@dataclass(frozen=True, slots=True)
class _Mapi:
    url: Annotated[SplitResult, Reads(_url, "text")]
    """Address of the mailboxes, such as `https://mail.example.com/mapi/emsmdb`, which is the default path; a query is
    sent with it. A host beyond loopback must be in `allow_hosts`."""
    auth: Annotated[str, word("basic", *CONNECTION_METHODS)] = "basic"
    """Log-on method of HTTP. `ntlm` and `negotiate` need `pip install 'loadsim[ntlm]'`."""
    ca_file: Text | None = None
    """As for IMAP."""
    tls_server_name: Text | None = None
    """As for IMAP."""
    tls_verify: Verification = True
    """As for IMAP."""
    client_certificate: Pattern | None = None
    """As for IMAP."""
    client_key: Pattern | None = None
    """As for IMAP. Default: in the certificate's file."""

    def __post_init__(self) -> None:
        _check_tls(self)

    @property
    def host(self) -> str:
        return self.url.hostname or ""

    @property
    def tls(self) -> str:
        return "implicit" if self.url.scheme == "https" else "none"


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
@dataclass(frozen=True, slots=True)
class _Ldap:
    url: Annotated[SplitResult, Reads(_ldap_url, "text")]
    """Address, and the name below which the entries are: `ldap://` (port 389) or `ldaps://` (636), a host, which beyond
    loopback must be in `allow_hosts`, and the base, such as `/ou=people,dc=example,dc=com`."""
    bind_dn: Pattern | None = None
    """A user's distinguished name, such as `uid={user},ou=people,dc=example,dc=com`, to log on with the password.
    Default: no log-on."""
    ca_file: Text | None = None
    """As for IMAP."""
    tls_server_name: Text | None = None
    """As for IMAP."""
    tls_verify: Verification = True
    """As for IMAP."""
    client_certificate: Pattern | None = None
    """As for IMAP."""
    client_key: Pattern | None = None
    """As for IMAP. Default: in the certificate's file."""

    def __post_init__(self) -> None:
        _check_tls(self)

    @property
    def host(self) -> str:
        return self.url.hostname or ""

    @property
    def tls(self) -> str:
        return "implicit" if self.url.scheme == "ldaps" else "none"


def _check_tls(section: _Imap | _Smtp | _Pop3 | _Outside | _Mapi | _Ldap) -> None:
    """Reject settings that have no meaning without TLS, and a key without a certificate."""
    certificate, key_file = (getattr(section, key, None) for key in ("client_certificate", "client_key"))
    meant = {
        "ca_file": section.ca_file is not None,
        "tls_server_name": section.tls_server_name is not None,
        "tls_verify": not section.tls_verify,
        "client_certificate": certificate is not None,
    }
    with_tls = {_Mapi: "https", _Ldap: "ldaps"}.get(type(section), "starttls or implicit")
    key_of_tls = "url" if isinstance(section, _Mapi | _Ldap) else "tls"
    mistakes = [
        mismatch(f"{with_tls} with {key}", "none", at=(key_of_tls,))
        for key, given in meant.items()
        if given and section.tls == "none"
    ]
    if key_file is not None and certificate is None:
        mistakes.append(mismatch("a client_certificate with the client_key", "none", at=("client_certificate",)))
    if not section.tls_verify and section.ca_file is not None:
        mistakes.append(mismatch(f"either ca_file or tls_verify: {INSECURE}", "both", at=("tls_verify",)))
    if mistakes:
        raise mismatches(mistakes)


_COMMON = (*("host", "tls", "ca_file", "tls_server_name", "tls_verify"), *("client_certificate", "client_key"))
"""Keys shared by an endpoint and the file for all services, except that `url` has `host` and `tls` of MAPI and LDAP.

Outside senders have no certificates.
"""


def _common(service: _Imap | _Smtp | _Pop3 | _Outside | _Mapi | _Ldap | Endpoint) -> dict[str, Any]:
    return {key: getattr(service, key, None) for key in _COMMON}


def _imap(section: _Imap) -> Endpoint:
    return Endpoint(
        port=section.port or IMAP_PORTS[section.tls],
        methods=section.auth,
        preparation_connections=section.preparation_connections,
        ignored=frozenset(section.ignore_capabilities),
        **_common(section),
    )


def _smtp(section: _Smtp) -> Endpoint:
    return Endpoint(
        port=section.port or SMTP_PORTS[section.tls],
        connection=section.connection,
        auth=section.auth is not False,
        methods=() if isinstance(section.auth, bool) else section.auth,
        **_common(section),
    )


def _outside(section: _Outside) -> Endpoint:
    lmtp = section.protocol == "lmtp"
    port = section.port or (LMTP_PORT if lmtp else SMTP_PORTS[section.tls])
    return Endpoint(port=port, connection=section.connection, auth=False, lmtp=lmtp, **_common(section))


def _pop3(section: _Pop3) -> Endpoint:
    return Endpoint(port=section.port or POP3_PORTS[section.tls], methods=section.auth, **_common(section))


def _mapi(section: _Mapi) -> Endpoint:
    url = section.url
    port = url.port or HTTP_PORTS[url.scheme]
    path = (url.path if url.path != "/" else "") or MAPI_PATH
    methods = (section.auth,) if section.auth in CONNECTION_METHODS else ()
    return Endpoint(port=port, path=f"{path}?{url.query}" if url.query else path, methods=methods, **_common(section))


def _ldap(section: _Ldap) -> Endpoint:
    url = section.url
    auth = section.bind_dn is not None
    port = url.port or LDAP_PORTS[url.scheme]
    return Endpoint(port=port, path=unquote(url.path[1:]), auth=auth, bind_dn=section.bind_dn, **_common(section))


@strict
@dataclass(frozen=True, slots=True)
class Server:
    """A server's services: those that the groups' drivers need, and possibly others."""

    imap: Annotated[Endpoint, ReadAs(_Imap, _imap)] | None = None
    """IMAP service of the server."""
    smtp: Annotated[Endpoint, ReadAs(_Smtp, _smtp)] | None = None
    """SMTP service, for submission."""
    mapi: Annotated[Endpoint, ReadAs(_Mapi, _mapi)] | None = None
    """MAPI over HTTP, in place of IMAP and SMTP."""
    pop3: Annotated[Endpoint, ReadAs(_Pop3, _pop3)] | None = None
    """POP3, for users of the driver `pop3`; IMAP then prepares their mailboxes."""
    ldap: Annotated[Endpoint, ReadAs(_Ldap, _ldap)] | None = None
    """Address book, in which users without MAPI find the recipients of new and forwarded messages."""
    outside: Annotated[Endpoint, ReadAs(_Outside, _outside)] | None = None
    """Service for mail from outside. Default: `smtp`, without a log-on."""

    def __post_init__(self) -> None:
        if not self.endpoints.keys() - {LDAP, "outside"}:
            raise mismatch("imap and smtp, or mapi")
        if self.ldap is not None and self.mapi is not None:
            raise mismatch("imap and smtp with ldap: MAPI has an address book of its own", "mapi", at=(LDAP,))

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The stated endpoints, by service."""
        return stated_endpoints(self.imap, self.smtp, self.mapi, self.pop3, self.ldap, self.outside)

    @property
    def log_on(self) -> str | None:
        """The log-on methods for a log's header, as they differ in work for the server; None for the defaults."""
        endpoints = {service: endpoint for service, endpoint in self.endpoints.items() if service != "outside"}
        if all(endpoint.auth and not endpoint.methods for endpoint in endpoints.values()):
            return None
        return ", ".join(
            f"{service.upper()} {described(endpoint.methods) if endpoint.auth else 'none'}"
            for service, endpoint in endpoints.items()
            if service != "mapi" or endpoint.methods
        )


def insecure(server: Server) -> Iterator[Finding]:
    """Yield a finding for each remote service that receives passwords without TLS, and for each unverified one."""
    for service, endpoint in server.endpoints.items():
        where = f"{service.upper()} at {endpoint.host}:{endpoint.port}"
        # Methods that do not send the password itself.
        safe = ("scram-", "cram-", *CONNECTION_METHODS)
        proves = bool(endpoint.methods) and all(method.startswith(safe) for method in endpoint.methods)
        if endpoint.auth and endpoint.tls == "none" and not is_loopback(endpoint.host) and not proves:
            yield finding(Code.PASSWORD_IN_CLEAR, where)
        if not endpoint.tls_verify:
            yield finding(Code.NOT_VERIFIED, where)


def resolve_server(
    server: Server, accounts: AccountsSection | None, allow_hosts: Sequence[str], origin: Origin, directory: Path
) -> Server:
    """Return a server with absolute file paths. Raises `ConfigError` if it does not fit the other sections."""
    allowed = {host.lower() for host in allow_hosts}
    endpoints, problems = server.endpoints, Problems()
    for service, endpoint in endpoints.items():
        with problems:
            if not is_loopback(endpoint.host) and endpoint.host.lower() not in allowed:
                expected = "a loopback address, or a host in allow_hosts"
                found_host = f"{show(endpoint.host)}; add allow_hosts: [{show(endpoint.host)}]"
                key = "url" if service in ("mapi", LDAP) else "host"
                raise origin.error_saying(("server", service, key), expected, found_host)
        with problems:
            endpoints[service] = _with_files(endpoint, service, origin, directory)
    checked = Server(**endpoints)
    _check_methods(accounts, checked, origin, problems)
    problems.check()
    return checked


def _with_files(endpoint: Endpoint, service: str, origin: Origin, directory: Path) -> Endpoint:
    """Return an endpoint with absolute file paths. A path without a field must belong to a file."""
    for name in ("ca_file", "client_certificate", "client_key"):
        path = getattr(endpoint, name)
        if path is None:
            continue
        file = resolve_path(path, directory)
        if name == "ca_file" or not is_pattern(path):
            origin.check_file(("server", service, name), file, path)
        changed: dict[str, Any] = {name: str(file.resolve() if name == "ca_file" else file.absolute())}
        endpoint = replace(endpoint, **changed)
    return endpoint


def _check_methods(accounts: AccountsSection | None, server: Server, origin: Origin, problems: Problems) -> None:
    """Record as errors the log-on methods for which the scenario has no secret."""
    if accounts is None:
        return
    for service, endpoint in server.endpoints.items():
        for method in endpoint.methods if endpoint.auth and service != "mapi" else ():
            with problems:
                _check_method(method, accounts, endpoint, service, origin)
        if service in ("mapi", LDAP):
            if endpoint.auth and (accounts.master is not None or not accounts.has_password):
                found = "none" if accounts.master is None else "a master's"
                with problems:
                    raise origin.error_saying(("accounts",), f"each user's password, for {service}", found)
            continue
        secrets = accounts.has_password or accounts.token_file is not None or endpoint.client_certificate
        if endpoint.auth and not endpoint.methods and not secrets:
            expected = "a password, a token or a client_certificate"
            problems.found.append(origin.error_saying(("accounts",), expected, f"none for {service}"))


def _check_method(method: str, accounts: AccountsSection, endpoint: Endpoint, service: str, origin: Origin) -> None:
    key = ("server", service, "auth")
    as_another = accounts.master is not None and accounts.master_separator is None
    if method in TOKEN_METHODS and not accounts.token_file is not None:
        raise origin.error_saying(key, f"accounts.token_file for {method}", "none")
    if method == "external" and endpoint.client_certificate is None:
        raise origin.error_saying(key, f"server.{service}.client_certificate for {method}", "none")
    if method not in (*TOKEN_METHODS, "external") and not accounts.has_password:
        raise origin.error_saying(key, f"passwords in accounts for {method}", "none")
    if as_another and method not in WITH_AUTHZID:
        expected = f"a method with an authorisation identity ({', '.join(sorted(WITH_AUTHZID))})"
        raise origin.error_saying(key, f"{expected}, or accounts.master_separator", method)


def server_document(server: Server) -> dict[str, Any]:
    return {service: _endpoint_document(service, endpoint) for service, endpoint in server.endpoints.items()}


def _endpoint_document(service: str, endpoint: Endpoint) -> dict[str, Any]:
    common = {**_common(endpoint), "tls_verify": endpoint.tls_verify or INSECURE}
    if service == "mapi":
        auth = endpoint.methods[0] if endpoint.methods else "basic"
        others = {key: value for key, value in common.items() if key not in ("host", "tls")}
        return {"url": mapi_url(endpoint), "auth": auth, **others}
    if service == LDAP:
        others = {key: value for key, value in common.items() if key not in ("host", "tls")}
        return {"url": ldap_url(endpoint), "bind_dn": endpoint.bind_dn, **others}
    if service == "outside":
        stated = {key: value for key, value in common.items() if not key.startswith("client_")}
        protocol = "lmtp" if endpoint.lmtp else "smtp"
        return {**stated, "port": endpoint.port, "protocol": protocol, "connection": endpoint.connection}
    own: dict[str, Any] = {"auth": list(endpoint.methods) or endpoint.auth, "connection": endpoint.connection}
    if service != "smtp":
        own = {"auth": list(endpoint.methods) or AUTO}
    if service == "imap":
        own["preparation_connections"] = endpoint.preparation_connections
        own["ignore_capabilities"] = sorted(endpoint.ignored)
    return {"host": endpoint.host, "port": endpoint.port, **common, **own}


def mapi_url(endpoint: Endpoint) -> str:
    """Return the URL of a service for MAPI over HTTP, as in a file."""
    scheme = "http" if endpoint.tls == "none" else "https"
    return f"{scheme}://{bracketed(endpoint.host)}:{endpoint.port}{endpoint.path}"


def ldap_url(endpoint: Endpoint) -> str:
    """Return the URL of an address book, as in a file."""
    scheme = "ldap" if endpoint.tls == "none" else "ldaps"
    return f"{scheme}://{bracketed(endpoint.host)}:{endpoint.port}/{quote(endpoint.path, safe='=,+')}"
