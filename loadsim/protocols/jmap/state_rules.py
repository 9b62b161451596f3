"""Rules that a server's responses must keep, given its earlier ones to the same user (RFC 8620 section 5).

All sessions of a checked user share what is known. Its order is that of the requests: a fact is older than a request if
its response arrived before that request was sent. Where requests overlap, the server is not blamed. A state may change
without a change of data (RFC 8620 section 5.1), so only the reverse is a violation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loadsim.model.state_checks import StateChecks, Violation
from loadsim.protocols.jmap.calls import Answers, Call
from loadsim.protocols.jmap.values import Members

LATE_PUSH_S = 1.0
"""The least age of a state that is pushed though a newer one has been read: pushes and responses may overtake."""

MOST_CHANGES = 1000
"""The most states, and changes of a user's own, that are remembered."""

RULES = {
    "state-unchanged": "RFC 8620 5.1",
    "changes-incomplete": "RFC 8620 5.2",
    "changes-invented": "RFC 8620 5.2",
    "listed-not-found": "RFC 8620 5.5",
    "pushed-state-old": "RFC 8620 7.1",
    "if-in-state-ignored": "RFC 8620 5.3",
}
"""The RFC section that states each rule."""

KEPT, OMITTED, INVENTED, NOT_FOUND, OLD_PUSH, IGNORED = RULES

Data = tuple[frozenset[str], frozenset[str]]
"""An Email's keywords and mailboxes: all of it that can change (RFC 8621 section 4)."""


class _Span(NamedTuple):
    """The order of a request and its response among all of a user's."""

    began: int
    ended: int

    def before(self, other: _Span) -> bool:
        return self.ended < other.began


class _Read(NamedTuple):
    """A state or an Email's data, as read last."""

    span: _Span
    at_s: float = 0.0
    state: str = ""
    data: Data | None = None


class _Change(NamedTuple):
    span: _Span
    email: str
    kind: str  # "created", "updated" or "destroyed"


@dataclass(slots=True, eq=False)
class JmapUserCheck:
    """The check of all a user's sessions, whose answers and pushed states it gets."""

    checks: StateChecks
    user: int
    now_s: Callable[[], float]
    _order: int = 0
    _states: dict[str, _Read] = field(default_factory=dict)
    _last: str = ""  # the state read last
    _shown: dict[str, _Span] = field(default_factory=dict)  # first, by Email
    _emails: dict[str, _Read] = field(default_factory=dict)
    _changes: deque[_Change] = field(default_factory=lambda: deque(maxlen=MOST_CHANGES))
    _touched: dict[str, int] = field(default_factory=dict)  # when a change of an Email was last asked for
    _removed: set[str] = field(default_factory=set)  # Emails that a session has asked to destroy

    def begin(self, calls: Iterable[Call]) -> int:
        """Note a request. Return its place in the order."""
        self._order += 1
        for call in calls:
            if call.method == "Email/set":
                self._removed.update(call.arguments.get("destroy", ()))
                for email_id in (*call.arguments.get("update", ()), *call.arguments.get("destroy", ())):
                    self._touched[email_id] = self._order
        return self._order

    def answered(self, answers: Answers, began: int) -> None:
        """Compare the answers to a request with what was known before."""
        self._order += 1
        span, listed = _Span(began, self._order), set[str]()
        for response in answers.responses:
            call, found = answers.calls[response.place], response.arguments
            if response.name == "Email/query":
                listed.update(found.ids("ids"))
            elif response.name == "Email/get":
                self._got(found, span, listed)
            elif response.name == "Email/changes":
                listed.update(found.ids("created"))
                self._changed(found, call.arguments.get("sinceState", ""), span)
            elif response.name in ("Email/set", "Email/import"):
                self._set(response.name, found, call.arguments, span)

    def pushed(self, state: str) -> None:
        """Compare a pushed state with those that have been read."""
        read = self._states.get(state)
        if read is not None and state != self._last and self.now_s() - read.at_s > LATE_PUSH_S:
            self._broken(OLD_PUSH, f"StateChange Email {state[:40]}: {self._last[:40]} was read since")

    def ignored_if_in_state(self) -> None:
        """Note that a set with an outdated ifInState was made."""
        self._broken(IGNORED, "Email/set with an outdated ifInState: expected stateMismatch")

    # --- responses ---

    def _got(self, found: Members, span: _Span, listed: set[str]) -> None:
        state = found.text("state")
        for email in found.objects("list"):
            email_id = email.id("id")
            self._shown.setdefault(email_id, span)
            if "keywords" not in email or "mailboxIds" not in email:
                continue
            data, known = (email.names_in("keywords"), email.names_in("mailboxIds")), self._emails.get(email_id)
            if (
                known is not None
                and known.state == state
                and known.data != data
                and self._is_quiet(email_id, known, span)
            ):
                self._broken(KEPT, f"Email/get {email_id}: keywords or mailboxIds differ, and the state is the same")
            self._emails[email_id] = _Read(span, 0.0, state, data)
        for email_id in found.ids("notFound"):
            if email_id in listed and email_id not in self._removed:
                self._broken(NOT_FOUND, f"Email/get: notFound has {email_id}, which the same request has listed")
        self._took(state, span)

    def _is_quiet(self, email_id: str, known: _Read, span: _Span) -> bool:
        """Return whether no request to change an Email overlaps with either of two responses."""
        change = self._last_change(email_id)
        if change is None or self._touched.get(email_id, 0) > change.span.began:
            return False
        return known.span.before(change.span) and change.span.before(span)

    def _last_change(self, email_id: str) -> _Change | None:
        return next((each for each in reversed(self._changes) if each.email == email_id), None)

    def _changed(self, found: Members, since: str, span: _Span) -> None:
        named = {kind: frozenset(found.ids(kind)) for kind in ("created", "updated", "destroyed")}
        if (read := self._states.get(since)) is not None:
            for email_id in named["created"] - self._removed:
                if email_id in self._shown and self._shown[email_id].before(read.span):
                    self._broken(INVENTED, f"Email/changes since {since[:40]}: created has {email_id}, an older Email")
            if not found.truth("hasMoreChanges"):
                self._check_complete(named, since, read, span)
        self._took(found.text("newState"), span)

    def _check_complete(self, named: Mapping[str, frozenset[str]], since: str, read: _Read, span: _Span) -> None:
        due = [change for change in self._changes if read.span.before(change.span) and change.span.before(span)]
        created = {change.email for change in due if change.kind == "created"}
        for change in due:
            expected = named["destroyed"] if change.kind == "destroyed" else named["created"] | named["updated"]
            if change.kind == "destroyed" and change.email in created:
                continue  # may be left out
            if change.email not in expected and (change.kind == "destroyed" or change.email not in self._removed):
                self._broken(
                    OMITTED, f"Email/changes since {since[:40]}: {change.email} was {change.kind}, and is missing"
                )

    def _set(self, method: str, found: Members, arguments: Mapping[str, Any], span: _Span) -> None:
        created = [email.id("id") for email in found.by_name("created").values()]
        destroyed = [email_id for email_id in found.texts("destroyed") if email_id in self._shown]
        updates = arguments.get("update", {})
        updated = [each for each in found.names_in("updated") if self._patched(each, updates.get(each), span)]
        made = {"created": created, "destroyed": destroyed, "updated": updated}
        self._changes += [_Change(span, email, kind) for kind, emails in made.items() for email in emails]
        if any(made.values()) and "oldState" in found and found.text("oldState") == found.text("newState"):
            self._broken(KEPT, f"{method}: {sum(map(len, made.values()))} Emails changed, and newState is oldState")
        if "newState" in found:  # Cyrus 3.6 has none in Email/import
            self._took(found.text("newState"), span)

    def _patched(self, email_id: str, patch: Mapping[str, Any] | None, span: _Span) -> bool:
        """Return whether a patch has certainly changed an Email: no other one may have done so before."""
        known, last = self._emails.get(email_id), self._last_change(email_id)
        if known is None or known.data is None or patch is None or self._touched.get(email_id) != span.began:
            return False
        if not known.span.before(span) or (last is not None and not last.span.before(known.span)):
            return False
        keywords, mailboxes = known.data
        have = {f"keywords/{keyword}" for keyword in keywords} | {f"mailboxIds/{mailbox}" for mailbox in mailboxes}
        return any((path in have) != bool(value) for path, value in patch.items())

    def _took(self, state: str, span: _Span) -> None:
        self._states.pop(state, None)
        self._states[state] = _Read(span, self.now_s())
        if len(self._states) > MOST_CHANGES:
            del self._states[next(iter(self._states))]
        self._last = state

    def _broken(self, rule: str, excerpt: str) -> None:
        self.checks.broken(Violation(rule, RULES[rule], self.user, "the account", excerpt))
