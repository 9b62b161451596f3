"""Outgoing mail of an outside sender, who has no mailbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from loadsim.errors import ServerRefused, TaskFailed
from loadsim.model.message_tag import new_mail_id
from loadsim.model.ports import INBOX, Submission
from loadsim.model.records import BY_LIST, INDIVIDUALLY
from loadsim.scenario.workload import NEW_MAIL, Addressing
from loadsim.users.host import Host
from loadsim.users.tasks import Outgoing


class Outbox:
    """Composes and submits a sender's messages; records them as a user's (`users.mail`).

    A message to an unknown recipient reaches no user. Its refusal is expected, and counted in `host.counts.outside`.
    """

    def __init__(self, host: Host, sender: int, submission: Submission) -> None:
        self.host = host
        self.now = host.now_ns
        self._sender = sender
        self._address = host.workload.scenario.sender_account(sender).address
        self._submission = submission

    def compose(self, index: int) -> Outgoing:
        """Return the sender's `index`th message. Its header names the first recipient only, as bulk mail's does.

        Otherwise, users would reply to all of its recipients, and mail would multiply.
        """
        host, load, sender = self.host, self.host.workload, self._sender
        profile = load.sender_profile(sender)
        unknown = load.unknown_recipient(sender, index)
        to = Addressing((), None) if unknown else load.addressing(sender, profile, NEW_MAIL, index)
        addresses = [unknown] if unknown else load.addresses(to)
        kind, size_bytes = load.message_kind(sender, profile, "new.kind", index)
        message_id = new_mail_id(sender, index)
        message = host.contents.compose(
            run=host.run_id,
            sender=sender,
            sender_address=self._address,
            to=addresses[:1],
            id=message_id,
            kind=kind,
            sent_us=host.wall_clock_us(),
            domain=load.scenario.domain,
            size_bytes=size_bytes,
        )
        return Outgoing(message, message_id, addresses, load.recipients(to), to.users)

    async def submit(self, outgoing: Outgoing) -> None:
        """Submit a message. Raises `TaskFailed`, except if the server refuses an unknown recipient for good.

        By LMTP, a failure leaves the message accepted for the recipients that it names.
        """
        counts = self.host.counts.outside
        try:
            await self._submission.send(self._address, outgoing.addresses, outgoing.message)
        except TaskFailed as failure:
            refused = isinstance(failure, ServerRefused) and failure.is_of_recipient
            if outgoing.reached or not refused:
                accepted_ns = _behind(failure.accepted, outgoing)
                self._unsure(outgoing, outgoing.reached - accepted_ns.keys())
                self._accepted(outgoing, accepted_ns)
                raise
            counts.unknown_refused += 1
        except BaseException:
            self._unsure(outgoing, outgoing.reached)
            raise
        else:
            counts.unknown_accepted += not outgoing.reached

    def accepted(self, outgoing: Outgoing, at_ns: int) -> None:
        """Record that the server accepted a submitted message at this instant."""
        self._accepted(outgoing, dict.fromkeys(outgoing.reached, at_ns))

    async def close(self) -> None:
        """End a connection that was kept open."""
        await self._submission.close()

    def _accepted(self, outgoing: Outgoing, users_ns: Mapping[int, int]) -> None:
        self._record("accepted", outgoing, users_ns)
        for user in users_ns:
            self.host.mail_accepted(outgoing.id, user, self._sender)

    def _unsure(self, outgoing: Outgoing, users: Iterable[int]) -> None:
        self._record("unsure", outgoing, dict.fromkeys(users, self.now()))

    def _record(self, event: str, outgoing: Outgoing, users_ns: Mapping[int, int]) -> None:
        individuals = frozenset(outgoing.individuals)  # a notice has thousands
        for user, at_ns in users_ns.items():
            folder = INBOX if event == "unsure" else INDIVIDUALLY if user in individuals else BY_LIST
            self.host.recorder.mail((event, outgoing.id, user, self._sender, at_ns, folder))


def _behind(addresses_ns: Mapping[str, int], outgoing: Outgoing) -> dict[int, int]:
    """Return the users reached at these addresses, with the instants of the replies.

    They are individuals or, behind the last address, the others on a list.
    """
    individuals, addresses = outgoing.individuals, outgoing.addresses
    users_ns = {
        user: addresses_ns[address]
        for user, address in zip(individuals, addresses, strict=False)
        if address in addresses_ns
    }
    for address in addresses[len(individuals) :]:
        if address in addresses_ns:
            users_ns |= dict.fromkeys(outgoing.reached.difference(individuals), addresses_ns[address])
    return users_ns
