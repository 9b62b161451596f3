"""Whether the way out for messages is there, asked before there is any load."""

from __future__ import annotations

from loadsim.client.modules import open_module
from loadsim.errors import ConfigError, ServerRefused, TaskFailed
from loadsim.model.ports import Services
from loadsim.model.workload import Workload
from loadsim.topology.mailboxes import MODULE, Deaf, accounts_on_server, name_of


async def check_submission(workload: Workload, services: Services) -> None:
    """Connect, secure and authenticate at the submission service, as the first user. Raises `ConfigError`."""
    for account in accounts_on_server(workload.scenario)[:1]:
        submission = open_module(MODULE, services).session(account, Deaf()).submission
        try:
            await submission.check()
        except ServerRefused as refusal:
            said = refusal.line or refusal.kind
            raise ConfigError(f"{name_of(account)}: expected to submit mail, the server said: {said}") from None
        except TaskFailed as failure:
            where = f"{services.smtp.host}:{services.smtp.port}"
            raise ConfigError(f"server: smtp: expected a mail server at {where}, found: {failure}") from None
