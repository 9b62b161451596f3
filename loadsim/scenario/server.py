"""The section `server` of a scenario file: the tested server's endpoints, and how users reach them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from loadsim.documents.typed import ReadAs, mismatch, show, strict
from loadsim.documents.yaml_reader import Origin, Problems, resolve_path
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.host_port import bracketed, is_loopback
from loadsim.model.ports import Endpoint, stated_endpoints
from loadsim.model.terms import APART, CALDAV, LDAP, NNTP, OVER_HTTP
from loadsim.scenario import services
from loadsim.scenario.accounts import AccountsSection
from loadsim.scenario.log_on import AUTO, BEARER, CONNECTION_METHODS, TOKEN_METHODS, WITH_AUTHZID, described, is_pattern

INSECURE = services.INSECURE

_BY_HTTP = (*OVER_HTTP, CALDAV)
"""The services on which users log on by HTTP."""


@strict
@dataclass(frozen=True, slots=True)
class Server:
    """A server's services: those that the groups' drivers need, and possibly others."""

    imap: Annotated[Endpoint, ReadAs(services.ImapSection, services.imap)] | None = None
    """IMAP service of the server."""
    smtp: Annotated[Endpoint, ReadAs(services.SmtpSection, services.smtp)] | None = None
    """SMTP service, for submission."""
    mapi: Annotated[Endpoint, ReadAs(services.MapiSection, services.mapi)] | None = None
    """MAPI over HTTP, in place of IMAP and SMTP."""
    jmap: Annotated[Endpoint, ReadAs(services.HttpSection, services.http)] | None = None
    """JMAP, in place of IMAP and SMTP."""
    pop3: Annotated[Endpoint, ReadAs(services.Pop3Section, services.pop3)] | None = None
    """POP3, for users of the driver `pop3`; IMAP then prepares their mailboxes."""
    ldap: Annotated[Endpoint, ReadAs(services.LdapSection, services.ldap)] | None = None
    """Address book, in which users without MAPI find the recipients of new and forwarded messages."""
    nntp: Annotated[Endpoint, ReadAs(services.NntpSection, services.nntp)] | None = None
    """News server of all users; `folders.public` is a newsgroup there."""
    caldav: Annotated[Endpoint, ReadAs(services.HttpSection, services.http)] | None = None
    """Calendar server for users with `calendar: caldav`, by any driver; its keys are those of `jmap`."""
    outside: Annotated[Endpoint, ReadAs(services.OutsideSection, services.outside)] | None = None
    """Service for mail from outside. Default: `smtp`, without a log-on."""

    def __post_init__(self) -> None:
        if not self.endpoints.keys() - {*APART}:
            raise mismatch("imap and smtp, mapi, or jmap")
        if self.ldap is not None and self.mapi is not None:
            raise mismatch("imap and smtp with ldap: MAPI has an address book of its own", "mapi", at=(LDAP,))

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The stated endpoints, by service."""
        return stated_endpoints(self)

    @property
    def log_on(self) -> str | None:
        """The log-on methods for a log's header, as they differ in work for the server; None for the defaults."""
        endpoints = {service: endpoint for service, endpoint in self.endpoints.items() if service != "outside"}
        if all(endpoint.auth and not endpoint.methods for endpoint in endpoints.values()):
            return None
        return ", ".join(
            f"{service.upper()} {described(endpoint.methods) if endpoint.auth else 'none'}"
            for service, endpoint in endpoints.items()
            if service not in _BY_HTTP or endpoint.methods
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
        for method in endpoint.methods if endpoint.auth and service not in _BY_HTTP else ():
            with problems:
                _check_method(method, accounts, endpoint, service, origin)
        if service in (*_BY_HTTP, LDAP, NNTP):
            with problems:
                _check_secret(accounts, endpoint, service, origin)
            continue
        secrets = accounts.has_password or accounts.token_file is not None or endpoint.client_certificate
        if endpoint.auth and not endpoint.methods and not secrets:
            expected = "a password, a token or a client_certificate"
            problems.found.append(origin.error_saying(("accounts",), expected, f"none for {service}"))


def _check_secret(accounts: AccountsSection, endpoint: Endpoint, service: str, origin: Origin) -> None:
    """Check that each user has a secret of their own for a service without a choice of methods."""
    if endpoint.methods == (BEARER,):
        if accounts.token_file is None:
            raise origin.error_saying(("server", service, "auth"), f"accounts.token_file for {BEARER}", "none")
    elif endpoint.auth and (accounts.master is not None or not accounts.has_password):
        found = "none" if accounts.master is None else "a master's"
        raise origin.error_saying(("accounts",), f"each user's password, for {service}", found)


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
    common = {**services.common(endpoint), "tls_verify": endpoint.tls_verify or INSECURE}
    auth = endpoint.methods[0] if endpoint.methods else "basic"
    if service == "mapi":
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
    if service == NNTP:
        own = {"auth": endpoint.auth}
    if service in ("jmap", CALDAV):
        own = {"auth": auth}
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
