"""A private INN (NNTP) with one newsgroup, from Debian's package.

Its programs are unpacked in a directory (see `mounts`), and run from there: all paths are in inn.conf(5). Written for
INN 2.7 (Debian 12 to sid).
"""

import os
import pwd
import re
from pathlib import Path

from loadsim.model.ports import Endpoint, Services
from loadsim.provisioning.export import PUBLIC, write_table
from loadsim.servers.command import run
from loadsim.servers.master import Master
from loadsim.servers.private import (
    LOOPBACK,
    Directory,
    PrivateServer,
    check_programs,
    on_free_ports,
    prepare_directories,
    start_masters,
)
from other_servers.mounts import unpacked

USER = "news"

INN_CONF = """\
mta: "/bin/true %s"
pathhost: news.loadsim.test
domain: loadsim.test
ovmethod: tradindexed
hismethod: hisv6
bindaddress: 127.0.0.1
port: {port}
nnrpdloadlimit: 0
pathnews: {programs}
"""

GROUPS = """\
control 0000000000 0000000001 n
control.cancel 0000000000 0000000001 n
junk 0000000000 0000000001 n
{newsgroup} 0000000000 0000000001 y
"""
"""active(5), with the groups that INN needs."""

READERS = """\
auth "all" {{
    hosts: "*"
    {method}
}}
access "all" {{
    users: "*"
    newsgroups: "*"
    access: {access}
}}
"""
"""readers.conf(5)."""

ANYONE = 'default: "reader"'
WITH_PASSWORD = 'auth: "ckpasswd -f {passwords}"'


def start_inn(
    directory: Path,
    newsgroup: str,
    passwords: dict[str, str] | None = None,
    access: str = "RP",
    nntp_port: int | None = None,
) -> PrivateServer:
    """Start INN, and wait until it answers. With `passwords` (by user, as crypt(3) writes them), users must log on.

    `access` has R for reading, P for posting. Raises `ConfigError` if the package is missing, the user is not root, or
    the server does not start.
    """
    check_programs("inn", {})
    root, programs = directory.resolve(), unpacked() / "usr" / "lib" / "news"
    uid = pwd.getpwnam(USER).pw_uid
    paths = {each: root / each for each in ("etc", "db", "run", "log", "tmp", "spool")}
    spools = [root / "spool" / each for each in ("articles", "overview", "incoming", "outgoing", "innfeed")]
    prepare_directories(root, [Directory(path, 0o755, uid) for path in (*paths.values(), *spools)])
    method = ANYONE if passwords is None else WITH_PASSWORD.format(passwords=paths["etc"] / "passwords")
    files = {
        paths["etc"] / "readers.conf": READERS.format(method=method, access=access),
        paths["etc"] / "passwords": "".join(f"{user}:{hashed}\n" for user, hashed in (passwords or {}).items()),
        paths["etc"] / "newsfeeds": "ME:*:Ap::\n",
        paths["etc"] / "storage.conf": "method tradspool {\n newsgroups: *\n class: 0\n}\n",
        **{paths["etc"] / name: "" for name in ("incoming.conf", "control.ctl", "moderators")},
        paths["db"] / "active": GROUPS.format(newsgroup=newsgroup),
        paths["db"] / "newsgroups": "",
        paths["db"] / "history": "",
    }
    for file, text in files.items():
        write_table(file, text, PUBLIC)
        os.chown(file, uid, -1)

    def start(port: int, _: int) -> PrivateServer:
        conf = INN_CONF.format(port=port, programs=programs)
        conf += "".join(f"path{name}: {path}\n" for name, path in paths.items())
        write_table(root / "inn.conf", conf, PUBLIC)
        libraries = f"{programs}:{next(unpacked().glob('usr/lib/*-linux-gnu'))}"
        environment = {"INNCONF": str(root / "inn.conf"), "LD_LIBRARY_PATH": libraries}
        as_news = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"]
        given = [f"{name}={value}" for name, value in environment.items()]
        run(
            "env",
            [*given, *as_news, f"{programs}/bin/makedbz", "-i", "-o", "-s", "1000", "-f", str(paths["db"] / "history")],
        )
        innd = [*as_news, f"{programs}/bin/innd", "-f"]
        masters = start_masters(
            [
                (
                    lambda: Master("innd", innd, paths["log"] / "innd.log", environment=environment),
                    lambda one: one.await_greeting(LOOPBACK, port, b"200"),
                )
            ]
        )
        version = re.search(r"INN [\d.]+", run("env", [*given, f"{programs}/bin/innconfval", "-v"]))
        return PrivateServer(Services(nntp=Endpoint(LOOPBACK, port)), masters, version[0] if version else "INN", [])

    return on_free_ports(LOOPBACK, nntp_port, None, start)
