"""A check that the accounts exist: the last user logs on, or a search finds the first user who cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Provisioning, Services
from loadsim.model.scenario import Scenario
from loadsim.provisioning.sessions import PasswordRefused, accounts_on_server, named, visit

AT_ONCE = 7
"""The log-ons in each round of the search. Servers delay a refusal by seconds, and may block an address after many."""


async def check_accounts(scenario: Scenario, services: Services, users: Iterable[int] | None = None) -> None:
    """Log on as the first and the last of these users (None: of all).

    If the last is refused, a search finds the first account that is, as if all behind it were refused, too. Raises
    `ConfigError` with it, and with the number of users before it unless the search met accounts behind it. Other
    failures are left to the checks that visit each account.
    """
    accounts = accounts_on_server(scenario, users)
    found = await _log_on(accounts, {0, len(accounts) - 1} if len(accounts) > 1 else set(), services)
    if not found or found[0] is not None or not isinstance(found[len(accounts) - 1], PasswordRefused):
        return
    good, refused = 0, len(accounts) - 1
    while refused - good > 1:
        step = max(1.0, (refused - good) / (AT_ONCE + 1))
        tried = {good + round(step * at) for at in range(1, AT_ONCE + 1) if good + round(step * at) < refused}
        found |= await _log_on(accounts, tried, services)
        refused = min(at for at, failure in found.items() if failure is not None)
        good = max(at for at, failure in found.items() if failure is None and at < refused)
    failure = found[refused]
    assert failure is not None
    told = failure if str(failure).endswith(" logs on") else named(accounts[refused], failure, accounts[good])
    raise ConfigError(f"{_missing(scenario, accounts, found, refused)}{told}")


async def _log_on(
    accounts: Sequence[Account], places: Iterable[int], services: Services
) -> dict[int, ConfigError | None]:
    """Return for each of these places in `accounts` why the account cannot log on; None if it can."""

    async def nothing(account: Account, mailbox: Provisioning) -> None:
        """Log on and off only."""

    order = sorted(places)
    return dict(
        zip(order, await visit([accounts[at] for at in order], services, nothing, lambda *_: None), strict=True)
    )


def _missing(
    scenario: Scenario, accounts: Sequence[Account], found: Mapping[int, ConfigError | None], refused: int
) -> str:
    """Return how many accounts may be missing, with the setting for the others; "" if that is not all there is to it.

    That needs several accounts that log on, all before the first one that is `refused`, and no slice of the users.
    """
    others = [failure for at, failure in found.items() if at >= refused]
    whole = len(accounts) == scenario.users
    if not whole or refused < 2 or not all(isinstance(failure, PasswordRefused) for failure in others):
        return ""
    fewer = f"--set topology.0.users={refused}" if len(scenario.topology) == 1 else f"a topology of {refused} users"
    missing = f"{len(accounts) - refused} of {len(accounts)} accounts may be missing"
    return f"{missing}, from {accounts[refused].login} on ({fewer} leaves them out): "
