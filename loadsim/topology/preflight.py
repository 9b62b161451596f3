"""Whether the way out for messages is there, asked before there is any load."""

from __future__ import annotations

from loadsim.client.modules import open_module
from loadsim.errors import TaskFailed
from loadsim.model.ports import Services
from loadsim.model.workload import Workload
from loadsim.topology.mailboxes import MODULE, Deaf, accounts_on_server, not_let_in


async def check_submission(workload: Workload, services: Services) -> None:
    """Connect, secure and authenticate at the submission service, as the first user. Raises `ConfigError`."""
    for account in accounts_on_server(workload.scenario)[:1]:
        submission = open_module(MODULE, services).session(account, Deaf()).submission
        try:
            await submission.check()
        except TaskFailed as failure:
            raise not_let_in("smtp", services.smtp, account, "submit mail", failure) from None
