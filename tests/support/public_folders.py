"""Scenarios whose users share a public folder on Dovecot, and its messages as doveadm reads them."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from mailservers import StartDovecotPostfix
from small_runs import on, population_of, written

from loadsim.model.message_tag import MessageTag
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import DovecotPostfix

USERS = 4
FOLDER = "Public/Notice Board"
SMALL = {"inbox": 2, "deleted_items": 0, "folders": 2, "messages_per_folder": 2}


def given(place: Path, **changes: Any) -> Path:
    """A scenario whose users post and browse often."""
    profile = {"from": "loadsim-5.5/medium", "name": "posting", "start_state": SMALL}
    profile |= {"post": {"per_day": 8}, "browse_public": {"per_day": 12}}
    (place / "posting.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    keys = {
        "topology": [{"profile": str(place / "posting.yaml"), "users": USERS}],
        "folders": {"public": "Notice Board"},
        "mailbox": {"public": 3},
    } | changes
    return written(place / "public.yaml", **keys)


def scenario_on(
    start: StartDovecotPostfix, place: Path, extra: str = "", **changes: Any
) -> tuple[Path, DovecotPostfix]:
    """The scenario, and its server."""
    population = population_of(load_scenario(str(given(place, **changes))))
    server = start(*population, extra=extra, public_folder="Notice Board")
    return given(place, **changes, **on(server.services)), server


def posts(server: DovecotPostfix, user: str = "user00001") -> Counter[str]:
    """The ids of loadsim's messages in the folder, as doveadm reads them."""
    told = server.doveadm("-f", "tab", "fetch", "-u", user, "hdr.x-loadsim", "mailbox", FOLDER)
    tags = (MessageTag.parse(line) for line in told.splitlines()[1:])
    return Counter(tag.id for tag in tags if tag is not None)
