"""An engine's checks of the server against its earlier responses: the users concerned, and the violations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.draws import draw

T = TypeVar("T")


class Violation(NamedTuple):
    """The first violation of a rule: user, folder, an excerpt of the protocol without contents; `times` counts all.

    `section` is the RFC section that states the rule. `after` is a rule that the server broke earlier in the same open
    mailbox, which may explain this violation.
    """

    rule: str
    section: str
    user: int
    folder: str
    excerpt: str
    times: int = 1
    after: str = ""

    @property
    def finding(self) -> Finding:
        code = Code.SERVER_STATE_FOLLOWS if self.after else Code.SERVER_STATE_WRONG
        return finding(code, **{name: value for name, value in self._asdict().items() if name in code.fields})

    def joined(self, other: Violation) -> Violation:
        """Merge two violations of a rule: keep the first, or one that no other violation explains."""
        first = other if self.after and not other.after else self
        return first._replace(times=self.times + other.times)


@dataclass(slots=True, eq=False)
class StateChecks:
    """An engine's checks for the first user, and for a `share` of the others.

    The server counts as silent if it announces none of the mail that arrives during `silent` IDLEs of at least
    `idle_s`. `record` is called when a rule is first broken, so that the log has it even if the engine is killed.
    """

    share: float
    seed: int = 0
    idle_s: float = 30.0
    silent: int = 3
    record: Callable[[], object] = lambda: None
    violations: dict[str, Violation] = field(default_factory=dict)  # by rule
    _known: dict[int, object] = field(default_factory=dict)  # by checked user

    def of(self, user: int, make: Callable[[], T]) -> T | None:
        """Return a driver's knowledge of a user, shared by all their sessions; None if they are not checked."""
        if user not in self._known:
            if not self.share or (user > 1 and draw(self.seed, user, "check state", 0) >= self.share):
                return None
            self._known[user] = make()
        return cast(T, self._known[user])

    def forget(self, user: int) -> None:
        """Forget a user's known state, before unchecked sessions change their mail."""
        self._known.pop(user, None)

    def broken(self, violation: Violation) -> None:
        first = self.violations.get(violation.rule)
        self.violations[violation.rule] = joined = violation if first is None else first.joined(violation)
        if first is None or first.after != joined.after:
            self.record()

    @property
    def users(self) -> int:
        return len(self._known)

    @property
    def document(self) -> dict[str, Any]:
        """The fact for the timing log."""
        return {"users": self.users, "violations": [violation._asdict() for violation in self.violations.values()]}
