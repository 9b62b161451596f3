"""The logs of two clients with clocks of their own, from a simulation in which the truth is known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from named_records import MailRecord
from timing_samples import HEADER, event

from loadsim.analysis.clocks.correction import controller_clock_sample
from loadsim.analysis.clocks.model import Reading
from loadsim.timinglog.writer import TimingLogWriter

SECOND_NS = 10**9
STATION_START_NS = 5_000 * SECOND_NS
LENGTH_S = 100


@dataclass(frozen=True)
class Machine:
    """A client whose clock shows `begin_ns` at the controller's common start, and gains `ppm` from then on.

    What it takes for the common start is wrong by `start_error_ns`: it was told by a clock that was read only so well.
    Its engine began `late_ns` after that.
    """

    name: str
    begin_ns: int
    ppm: int
    start_error_ns: int
    late_ns: int = 0

    def shows_ns(self, at_s: float) -> int:
        """Return the reading of its clock this long after the common start, by the controller's clock."""
        return self.begin_ns + round(at_s * (1000 + self.ppm / 1000) * 10**6)

    @property
    def start_ns(self) -> int:
        return self.begin_ns + self.start_error_ns


FIRST = Machine("c1", 10**15 + 7, 30, 400_000)
SECOND = Machine("c2", 3 * 10**12 + 1, -55, -250_000, 4_000_000)
SAMPLE = {"core_shares": [0.5], "cpu_share": 0.5, "stolen_share": 0.0} | dict.fromkeys(
    ("memory_available_bytes", "segments_sent", "segments_sent_again"), 1
)


HANDS = ({"users": 2, "step": 1, "begin": 1, "end": 2}, {"users": 2, "step": 1, "begin": 2, "end": 3})


def write_machine(
    directory: Path, machine: Machine, assignment: dict[str, int], mails: list[dict[str, Any]], readings: list[Reading]
) -> None:
    """The logs of one machine: its engine's, and its own, which has the readings of the controller's clock."""
    facts = {"start_ns": machine.start_ns, "began_ns": machine.start_ns + machine.late_ns, "ended": "completed"}
    epoch_ns = machine.begin_ns - 3 * SECOND_NS
    header = HEADER | {"client": machine.name, "engine_users": 1, "hand": assignment, "window_s": [0.0, LENGTH_S]}
    engine = TimingLogWriter(directory / f"{machine.name}.0.tlog", header, epoch_ns)
    for mail in mails:
        engine.mail(MailRecord(**mail))
    engine.facts(facts)
    engine.close()
    about = {"engine": "machine", "engine_users": 0, "hand": None}
    own = TimingLogWriter(directory / f"{machine.name}.machine.tlog", header | about, epoch_ns + SECOND_NS)
    own.facts(facts)
    for reading in readings:
        early_ns = 0 if reading.there_ns > STATION_START_NS else 7_000_000  # another reading, before the start was told
        compared = controller_clock_sample(reading, machine.start_ns - STATION_START_NS + early_ns)
        for late_ns, comparison in ((700_000_000, compared), (1_700_000_000, {})):
            own.health({"at_ns": reading.at_ns + late_ns, **SAMPLE, **comparison})
    own.close()


def read_by(machine: Machine, error_ns: int, every_s: int = 10) -> list[Reading]:
    """Readings of the controller's clock, from before the start to the end, wrong by their stated error in turns."""
    instants_s = range(-every_s, LENGTH_S + every_s, every_s)
    return [
        Reading(
            machine.shows_ns(at_s),
            STATION_START_NS + at_s * SECOND_NS + (error_ns if turn % 2 else -error_ns),
            error_ns,
        )
        for turn, at_s in enumerate(instants_s)
    ]


def sent_and_seen(count: int = 400) -> list[tuple[float, float, Machine, Machine]]:
    """When messages were accepted and seen, truly, and on which machines: half of them on the same."""
    random = np.random.default_rng(7)
    sent_s = random.uniform(0, LENGTH_S - 1, count)
    took_s = random.exponential(0.004, count)
    return [
        (sent, sent + took, (FIRST, SECOND)[number % 2], (FIRST, SECOND)[number // 2 % 2])
        for number, (sent, took) in enumerate(zip(sent_s.tolist(), took_s.tolist(), strict=True))
    ]


def write_run(
    directory: Path, error_ns: int | None, sight: str = "seen"
) -> list[tuple[float, float, Machine, Machine]]:
    """The logs of both machines in a directory; without an error, clocks were not compared."""
    journeys = sent_and_seen()
    directory.mkdir(parents=True)
    for machine, assignment in zip((FIRST, SECOND), HANDS, strict=True):
        mails = []
        for number, (sent_s, seen_s, by, to) in enumerate(journeys):
            user = 1 if to is FIRST else 2
            for name, at_s, where in (("accepted", sent_s, by), (sight, seen_s, to)):
                if where is machine:
                    mails.append(event(name, f"m{number}", user, 0) | {"at_ns": machine.shows_ns(at_s)})
        write_machine(directory, machine, assignment, mails, read_by(machine, error_ns) if error_ns is not None else [])
    return journeys
