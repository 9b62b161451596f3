"""Lists of a user's Emails: pages of queries, and the changes since the last known state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from loadsim.errors import ServerRefused
from loadsim.protocols.http.news import News
from loadsim.protocols.jmap import mail
from loadsim.protocols.jmap.calls import UNKNOWN, Answers, Call, result_of
from loadsim.protocols.jmap.session import JmapSession
from loadsim.protocols.jmap.values import Members, malformed

PAGE = 256
"""The most Emails of one list; James 3.8 allows no more."""

MOST_ROUNDS = 1000
"""The most requests for one list of changes."""

NEWS = ("id", "mailboxIds", "receivedAt")
"""The properties by which new mail is recognised."""

STATE = Call("Email/get", {"ids": [], "properties": ["id"]})
"""Returns only the state. In front of a query, later changes are known to be missing from the list."""


@dataclass(slots=True, eq=False)
class Lists:
    """Fetches lists over a user's session, and knows the Inbox's new mail.

    New is what changes list as created and the user does not know: James 3.8 lists moved and copied mail there, too.
    """

    session: JmapSession
    news: News[str, str] = field(default_factory=lambda: News(""), init=False)
    state: str | None = field(default=None, init=False)  # all changes up to it are known; None: none are

    def take_state(self, answers: Answers, place: int, calls: Sequence[Call]) -> None:
        """Take the answer to `STATE`, if it was among these calls."""
        if STATE in calls:
            self.state = answers[place].text("state")

    async def pages(
        self,
        sought: Mapping[str, str],
        properties: Sequence[str],
        most: int | None = None,
        lead: Sequence[Call] = (),
        newest_first: bool = True,
    ) -> AsyncIterator[tuple[Answers, list[Members]]]:
        """Yield the Emails that match, `most` in all (None: all), with the answers to each request.

        The calls `lead` go in front of the first request. A server may lower a query's limit (RFC 8620 section 5.5),
        and may return Emails in any order.
        """
        largest = min(PAGE, self.session.current.objects_in_get)
        sort = [{"property": "receivedAt", "isAscending": not newest_first}]
        seen: set[str] = set()
        position = 0
        while True:
            limit = largest if most is None else min(largest, most - len(seen))
            query = {"filter": sought, "sort": sort, "position": position, "limit": limit}
            ids = result_of(len(lead), "Email/query", "/ids")
            calls = [*lead, Call("Email/query", query), Call("Email/get", {"#ids": ids, "properties": properties})]
            answers = await self.session.ask(calls, "Email/query")
            queried, got = answers[len(lead)], answers[len(lead) + 1]
            by_id = {email.id("id"): email for email in got.objects("list")}
            listed = queried.ids("ids")
            position += len(listed)
            found = [email_id for email_id in listed if email_id not in seen]  # mail that arrives shifts the others
            seen.update(found)
            yield answers, [by_id[email_id] for email_id in found if email_id in by_id]
            lead = ()
            if len(listed) < min(limit, queried.number("limit", limit)) or not found or len(seen) == most:
                return

    async def new(self, inbox: str, reopen: bool) -> list[Members]:
        """Return the Inbox's new Emails, the newest first: by changes or, if their state is unknown, by queries."""
        if reopen or self.state is None:
            emails = await self._relisted(inbox, reopen)
        else:
            try:
                emails = await self.changes(inbox, mail.LISTED, expected=True)
            except ServerRefused as failure:
                if not failure.kind.startswith(UNKNOWN):
                    raise
                emails = await self._relisted(inbox, reopen)
        self.news.take(map(entry, emails))
        self.news.expected.clear()
        return sorted(emails, key=lambda email: email.text("receivedAt", ""), reverse=True)

    async def _relisted(self, inbox: str, reopen: bool) -> list[Members]:
        """Return the Inbox's new Emails by queries, which end at an old one."""
        lead, new = [STATE], list[Members]()
        async for answers, page in self.pages({"inMailbox": inbox}, mail.LISTED, None, lead):
            self.take_state(answers, 0, lead)
            lead = []
            fresh = [email for email in page if self.news.is_new(*entry(email), reopen)]
            new += fresh
            if len(fresh) < len(page):
                break
        return new

    async def changes(
        self, inbox: str, properties: Sequence[str], name: str = "", expected: bool = False
    ) -> list[Members]:
        """Take the changes since the last known state. Return those of the new Emails that were got.

        With `expected`, also get those that earlier changes have announced.
        """
        most = min(PAGE, self.session.current.objects_in_get)
        waiting = list(self.news.expected) if expected else []
        new: list[Members] = []
        has_more, rounds = True, 0
        while has_more or waiting:
            if (rounds := rounds + 1) > MOST_ROUNDS:
                raise malformed(f"the changes in at most {MOST_ROUNDS} responses")
            created = {"#ids": result_of(0, "Email/changes", "/created"), "properties": properties}
            since = {"sinceState": self.state, "maxChanges": most}
            calls = [Call("Email/changes", since), Call("Email/get", created)]
            portion, waiting = waiting[:most], waiting[most:]
            if portion:
                calls.append(Call("Email/get", {"ids": portion, "properties": properties}))
            answers = await self.session.ask(calls, name)
            emails = answers[1].objects("list")
            for email in emails:
                if inbox in email.names_in("mailboxIds") and self.news.is_new(*entry(email)):
                    self.news.event(email.id("id"))
            self.state, before = answers[0].text("newState"), self.state
            has_more = answers[0].truth("hasMoreChanges") and self.state != before
            emails = [*emails, *(answers[2].objects("list") if portion else ())]
            new += [email for email in emails if email.id("id") in self.news.expected]
        unique = {email.id("id"): email for email in new if inbox in email.names_in("mailboxIds")}
        return list(unique.values())


def entry(email: Members) -> tuple[str, str]:
    """Return an Email's id and when it was received."""
    return email.id("id"), email.text("receivedAt", "")
