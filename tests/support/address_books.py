"""slapd with an entry for each account: an address book that knows nothing of our code."""

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patience import PATIENCE_S

from loadsim.model.ports import Account

BASE = "ou=people,dc=example,dc=test"
BIND_DN = f"uid={{user}},{BASE}"

_SCHEMAS = ("core", "cosine", "inetorgperson")
_TOP = """\
dn: dc=example,dc=test
objectClass: dcObject
objectClass: organization
o: example
dc: example

dn: ou=people,dc=example,dc=test
objectClass: organizationalUnit
ou: people

"""


@dataclass(frozen=True)
class AddressBookServer:
    """A running slapd; its log has a line for each operation."""

    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self.port}/{BASE}"

    def searches(self) -> list[str]:
        """The filters of all searches so far."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [line.rpartition("filter=")[2].strip('"') for line in lines if " SRCH base=" in line]


@contextmanager
def slapd(directory: Path, accounts: Sequence[Account], further: str = "") -> Iterator[AddressBookServer]:
    """Run slapd on loopback; `further` lines go into its configuration."""
    config, data, log = directory / "slapd.conf", directory / "entries.ldif", directory / "slapd.log"
    (directory / "db").mkdir()
    lines = [f"include /etc/ldap/schema/{name}.schema" for name in _SCHEMAS]
    lines += ["modulepath /usr/lib/ldap", "moduleload back_mdb", further, "database mdb"]
    lines += ['suffix "dc=example,dc=test"', f"directory {directory}/db", "index mail,cn eq,sub"]
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    entries = (
        f"dn: uid={each.login},{BASE}\nobjectClass: inetOrgPerson\nuid: {each.login}\n"
        f"cn: {each.login}\nsn: {each.number}\nmail: {each.address}\nuserPassword: {each.password}\n\n"
        for each in accounts
    )
    data.write_text(_TOP + "".join(entries), encoding="utf-8")
    subprocess.run(["/usr/sbin/slapadd", "-q", "-f", str(config), "-l", str(data)], check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    command = ["/usr/sbin/slapd", "-d", "stats", "-f", str(config), "-h", f"ldap://127.0.0.1:{port}"]
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr, stdout=stderr) as process:
        try:
            _wait(port, process)
            yield AddressBookServer(port, log)
        finally:
            process.terminate()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise AssertionError("slapd does not listen")
