"""A scenario file's document: its keys, their meanings and their defaults. `--set` changes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from loadsim.documents.schema import Text, word
from loadsim.documents.typed import ReadAs, Reads, mismatch, strict
from loadsim.model.ports import OF_SERVER
from loadsim.model.terms import UNSCORED
from loadsim.scenario.accounts import AccountsSection, Domain
from loadsim.scenario.limits import Limits
from loadsim.scenario.mailboxes import PROFILES, MailboxSection
from loadsim.scenario.sections import (
    AbortOn,
    Client,
    Folders,
    GroupSection,
    ListsSection,
    Losses,
    Monitors,
    Probes,
    RunSection,
)
from loadsim.scenario.server import Server
from loadsim.scenario.weights import TASKS, load_weights, read_weights

EMBEDDED: Literal["embedded"] = "embedded"


def _weights(value: object) -> dict[str, float]:
    weights = {**load_weights(), **read_weights(value, TASKS, (*load_weights(), *UNSCORED))}
    if not any(weights.values()):
        raise mismatch("a weight above 0", "none")
    return weights


Weights = Annotated[dict[str, float], Reads(_weights, "mapping")]


def _some_groups(groups: tuple[GroupSection, ...]) -> tuple[GroupSection, ...]:
    if not groups:
        raise mismatch("a list of at least one group", "none")
    return groups


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioDocument:
    name: Text | None = None
    """Name of the run in results. Default: the file's name."""
    server: Literal["embedded"] | Server
    """The server under test: `embedded`, which has the services of all drivers but `pop3` and `jmap`, or these keys.
    `smtp`, `pop3` and `nntp` also have the keys for host, TLS and certificates, `outside` (for mail from outside;
    default: `smtp`) those for host and TLS, and `mapi`, `jmap`, `caldav` and `ldap` those for certificates."""
    folders: Folders = OF_SERVER
    """Folder names on the server."""
    domain: Domain = "loadsim.test"
    """Domain of all simulated addresses and accounts."""
    accounts: AccountsSection | None = None
    """Log-on names and passwords of the users, whose accounts must exist on the server."""
    topology: Annotated[tuple[GroupSection, ...], ReadAs(tuple[GroupSection, ...], _some_groups)]
    """Groups of users, whose user numbers are interleaved."""
    mailbox: MailboxSection = PROFILES
    """Mailboxes before the run, in place of the profiles'."""
    lists: ListsSection = field(default_factory=ListsSection)
    """Distribution lists, which must exist on the server."""
    run: RunSection = field(default_factory=RunSection)
    """Times of the run, and its seed."""
    client: Client = field(default_factory=Client)
    """Behaviour of the mail programs with any driver."""
    initialise: Annotated[str, word("auto", "always", "never")] = "auto"
    """Bring mailboxes to the start state: if they differ from it (`auto`), always, or never."""
    weights: Weights = field(default_factory=lambda: dict(load_weights()))
    """Weights of individual tasks in the score, including plug-ins'. Default: `profiles/weights.yaml`."""
    criteria: Annotated[Any, Reads(lambda value: value, "mapping")] = field(default_factory=dict)
    """Limits on figures that a run must keep to pass."""
    limits: Limits = field(default_factory=Limits)
    """Limits of a valid run, and time limits."""
    abort_on: AbortOn = field(default_factory=AbortOn)
    """Conditions that end a run early."""
    cluster: Losses = field(default_factory=Losses)
    """Reactions to losing the controller, in a run on several machines."""
    probes: Probes = field(default_factory=dict)
    """Probes by name, or `NAME/LABEL`, each a mapping of settings."""
    monitors: Monitors = field(default_factory=dict)
    """Monitors by name, each with the `command` that prints its log, such as `ssh mx1 loadsim monitor --probe host
    --name mx1`. It runs without a shell during the load. At most 16."""
    allow_hosts: tuple[Text, ...] = ()
    """Hosts other than loopback that loadsim may put under load."""
