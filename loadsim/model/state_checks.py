"""The checks of an engine that hold the server against its earlier responses: whose, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.draws import draw

T = TypeVar("T")


class Violation(NamedTuple):
    """The first of several violations of a rule: user, folder, an excerpt of the protocol without contents.

    `section` is that of the RFC which has the rule; `after` is another rule, which the server broke before in the same
    open mailbox, so that this violation may follow from that one.
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
        """Return one violation for two of a rule: the first, or the one that follows from no other."""
        first = other if self.after and not other.after else self
        return first._replace(times=self.times + other.times)


@dataclass(slots=True, eq=False)
class StateChecks:
    """The checks of an engine: the first user, and this share of the others.

    A server that announces no mail in `silent` IDLEs of at least `idle_s`, in which it had some, announces none.
    `record` is called when a rule is broken for the first time: a killed engine has it in its log.
    """

    share: float
    seed: int = 0
    idle_s: float = 30.0
    silent: int = 3
    record: Callable[[], object] = lambda: None
    violations: dict[str, Violation] = field(default_factory=dict)  # by rule
    _known: dict[int, object] = field(default_factory=dict)  # by user, of those that are checked

    def of(self, user: int, make: Callable[[], T]) -> T | None:
        """Return what a driver knows of a user, which all their sessions share; None if they are not checked."""
        if user not in self._known:
            if not self.share or (user > 1 and draw(self.seed, user, "check state", 0) >= self.share):
                return None
            self._known[user] = make()
        return cast(T, self._known[user])

    def forget(self, user: int) -> None:
        """Forget what is known of a user, before sessions that are not checked change their mail."""
        self._known.pop(user, None)

    def broken(self, found: Violation) -> None:
        first = self.violations.get(found.rule)
        self.violations[found.rule] = joined = found if first is None else first.joined(found)
        if first is None or first.after != joined.after:
            self.record()

    @property
    def users(self) -> int:
        return len(self._known)

    @property
    def document(self) -> dict[str, Any]:
        """The fact of the timing log."""
        return {"users": self.users, "violations": [one._asdict() for one in self.violations.values()]}
