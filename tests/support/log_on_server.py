"""A private Dovecot and Postfix with every log-on method, a service that checks tokens, and client certificates."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from mailservers import numbered_accounts, short_directory

from loadsim.model.ports import Account, Services
from loadsim.servers.dovecot_postfix import DovecotPostfix, check_machine, start_dovecot_postfix
from loadsim.servers.dovecot_postfix_config import DIALECTS, Layout

MASTER, MASTER_PASSWORD, SEPARATOR = "operator", "secret-of-the-operator", "*"

OAUTH2 = """\
introspection_mode = post
introspection_url = http://127.0.0.1:{}/
username_attribute = username
active_attribute = active
active_value = true
"""

BOTH = f"""\
auth_mechanisms = plain login cram-md5 scram-sha-1 scram-sha-256 xoauth2 oauthbearer external
auth_master_user_separator = {SEPARATOR}
auth_ssl_username_from_cert = yes
"""

SETTINGS = {
    DIALECTS[2, 3]: BOTH
    + """\
ssl_ca = <{ca_file}
ssl_require_crl = no
ssl_verify_client_cert = yes
ssl_cert_username_field = commonName
passdb {{
  driver = passwd-file
  master = yes
  args = {root}/dovecot/master
}}
passdb {{
  driver = oauth2
  mechanisms = xoauth2 oauthbearer
  args = {root}/dovecot/oauth2
}}
passdb {{
  driver = static
  mechanisms = external
  args = nopassword=y
}}
""",
    DIALECTS[2, 4]: BOTH
    + """\
ssl_server_ca_file = {ca_file}
ssl_server_require_crl = no
ssl_server_request_client_cert = yes
ssl_server_cert_username_field = commonName
oauth2_introspection_mode = post
oauth2_introspection_url = http://127.0.0.1:{port}/
oauth2_username_attribute = username
oauth2_active_attribute = active
oauth2_active_value = true
passdb masters {{
  driver = passwd-file
  master = yes
  passwd_file_path = {root}/dovecot/master
}}
passdb oauth2 {{
  mechanisms_filter = xoauth2 oauthbearer
}}
passdb static {{
  mechanisms_filter = external
  fields {{
    nopassword = yes
  }}
}}
""",
}
"""Further settings of Dovecot."""


@dataclass
class TokenService:
    """Token introspection (RFC 7662): the names of the users by their tokens, and the tokens that were asked for."""

    users: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    port: int = 0

    @contextmanager
    def running(self) -> Iterator[TokenService]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                token = form["token"][0]
                service.asked.append(token)
                user = service.users.get(token)
                answer = {"active": True, "username": user} if user else {"active": False}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@dataclass(frozen=True)
class LogOnServer:
    """The running servers, and where their authority lies."""

    server: DovecotPostfix
    tokens: TokenService
    accounts: list[Account]

    @property
    def services(self) -> Services:
        return self.server.services

    def client_certificate(self, directory: Path, name: str) -> tuple[Path, Path]:
        """A certificate of the servers' authority for a user, and its key."""
        tls = self.server.layout.tls
        certificate, key, request = (directory / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        signing = ("-CA", tls / "ca.pem", "-CAkey", tls / "ca.key", "-CAcreateserial", "-days", "2")
        for words in (
            ("req", "-new", *curve, "-keyout", key, "-out", request, "-subj", f"/CN={name}"),
            ("x509", "-req", "-in", request, *signing, "-out", certificate),
        ):
            subprocess.run(["openssl", *words], check=True, capture_output=True)
        return certificate, key


@contextmanager
def log_on_server(users: int = 3) -> Iterator[LogOnServer]:
    """Dovecot and Postfix with STARTTLS, and all of Dovecot's methods."""
    accounts = numbered_accounts(users)
    with short_directory() as directory, TokenService().running() as tokens:
        layout = Layout(directory)
        layout.dovecot_extra.parent.mkdir(mode=0o755)
        (layout.dovecot_extra.parent / "master").write_text(f"{MASTER}:{{PLAIN}}{MASTER_PASSWORD}\n")
        (layout.dovecot_extra.parent / "oauth2").write_text(OAUTH2.format(tokens.port))
        settings = SETTINGS[check_machine()[0]]
        layout.dovecot_extra.write_text(settings.format(root=directory, ca_file=layout.ca_file, port=tokens.port))
        with start_dovecot_postfix(accounts, {}, directory, tls="starttls") as server:
            yield LogOnServer(server, tokens, accounts)
