"""The address book (MS-OXNSPI): names are checked before a message is sent, as in Outlook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.errors import ProtocolError, ServerRefused
from loadsim.protocols.mapi import bodies, tags
from loadsim.protocols.mapi.objects import text
from loadsim.protocols.mapi.session import MapiSession

_COLUMNS = (tags.EMAIL_ADDRESS, tags.DISPLAY_NAME)


@dataclass(slots=True)
class AddressBook:
    """The address book entries that an engine's users have resolved.

    Message lists show recipients' names, not their addresses.
    """

    addresses: dict[str, str] = field(default_factory=dict)  # by name
    dns: dict[str, str] = field(default_factory=dict)  # distinguished names of mailboxes, by address

    async def mailbox_dn(self, session: MapiSession) -> str:
        """Return the distinguished name of the user's mailbox, looked up in the address book at the first log-on."""
        address = session.account.address
        if address not in self.dns:
            (self.dns[address],) = await self.resolve(session, [address])
        return self.dns[address]

    async def resolve(self, session: MapiSession, addresses: Sequence[str]) -> list[str]:
        """Return the distinguished name of each address, using ResolveNames (MS-OXCMAPIHTTP section 2.2.5.14).

        Raises `ServerRefused` for an address that does not match exactly one entry. Like SMTP's RCPT, this keeps a
        message to an unknown recipient from being sent.
        """
        request = bodies.resolve_names(_COLUMNS, [f"=SMTP:{address}" for address in addresses])
        answer = await session.ask_address_book(request)
        results, rows = answer.results, answer.entries
        if len(results) != len(addresses) or len(rows) != results.count(bodies.RESOLVED):
            raise ProtocolError("MAPI ResolveNames", f"{len(results)} results, {len(rows)} of {len(addresses)} entries")
        for address, result in zip(addresses, results, strict=True):
            if result != bodies.RESOLVED:
                raise ServerRefused("unknown recipient ResolveNames", address)
        for address, (_, name) in zip(addresses, rows, strict=True):
            if isinstance(name, str) and name:
                self.addresses[name] = address
        return [text(dn) for dn, *_ in rows]
