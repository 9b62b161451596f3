"""The tables of recorded.md: written from runs of the faults, and read by a test."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from paths import ROOT

from loadsim.model.mail_program import SUBMISSIONS

from .acts import PROVISIONING, Fault
from .cases import Outcome, Provisioned, play, provision
from .imap_faults import IMAP_FAULTS
from .smtp_faults import SMTP_FAULTS

PAGE = ROOT / "tests" / "hostile" / "recorded.md"


@dataclass(frozen=True)
class Table:
    """Faults of one protocol, and the drivers through which each is run."""

    title: str
    faults: tuple[Fault, ...]
    drivers: tuple[str, ...]

    def runs(self) -> Iterator[tuple[Fault, str]]:
        for fault in self.faults:
            for driver in self.drivers:
                if fault.concerns(driver):
                    yield fault, driver

    def play(self, fault: Fault, driver: str) -> Outcome | Provisioned:
        if driver == PROVISIONING:
            return provision(fault)
        if self is IMAP:
            return play(fault, driver)
        return play(fault, "imap", driver, imap=False)


IMAP = Table("IMAP", IMAP_FAULTS, ("imap", "aioimaplib", PROVISIONING))
SMTP = Table("SMTP", SMTP_FAULTS, SUBMISSIONS)
TABLES = (IMAP, SMTP)


def rows(table: Table, outcomes: Mapping[tuple[str, str], Outcome | Provisioned]) -> Iterator[str]:
    """The table in Markdown; memory is the largest of the drivers' runs, in steps of 10 MB."""
    by = " | ".join(f"recorded by `{driver}`" for driver in table.drivers)
    yield f"| fault | the server | {by} | others | memory | end |"
    yield "|---" * (len(table.drivers) + 5) + "|"
    for fault in table.faults:
        runs = [outcomes.get((fault.name, driver)) for driver in table.drivers]
        made = [run for run in runs if run is not None]
        cells = ["-" if run is None else run.cell() for run in runs]
        noticed = "nothing" if not any(run.problems(fault) for run in made) else "**problems**"
        ends = ", ".join(dict.fromkeys(run.ended for run in made))
        memory = -(-max(run.memory_mib for run in made) // 10) * 10
        yield f"| {fault.name} | {fault.about} | {' | '.join(cells)} | {noticed} | < {memory + 10} MiB | {ends} |"


def read(title: str) -> dict[str, list[str]]:
    found = {}
    for line in _between(PAGE.read_text(encoding="utf-8"), title)[1].splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0] not in ("fault", "---"):
            found[cells[0]] = cells[1:]
    return found


def write(title: str, lines: Iterable[str]) -> None:
    before, _, after = _between(PAGE.read_text(encoding="utf-8"), title)
    PAGE.write_text(before + "\n".join(lines) + "\n" + after, encoding="utf-8")


def _between(text: str, title: str) -> tuple[str, str, str]:
    """The page up to a table, the table, and the rest."""
    begin, end = f"<!-- {title} -->\n", f"<!-- end of {title} -->\n"
    before, found, rest = text.partition(begin)
    table, also, after = rest.partition(end)
    if not found or not also:
        raise SystemExit(f"{PAGE}: expected the lines {begin.strip()} and {end.strip()}")
    return before + found, table, also + after
