"""The tasks of a check, as they end."""

from named_records import TaskRecord
from virtual_runs import contents

from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.provisioning.check_post import Post
from loadsim.provisioning.check_tasks import TaskCheck
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload


async def test_a_log_off_without_an_end_is_a_failed_task() -> None:
    """It was cut off: the server has not answered."""
    workload = Workload(load_scenario("quickstart"))
    driver = InMemoryDriver(workload, contents())
    check = TaskCheck(Post(workload, contents(), "run-1"), {}, "fake", driver, 1, 2, "check", 1.0)
    late = 0.0, 0.0, 0.0, 0.0, 0.0
    check.task(TaskRecord("SYNC", 1, "", "fake", 1, 1, None, *late, "unfinished", "", 0, "loop"))
    assert check.tried == []
    check.task(TaskRecord("LOGOFF", 1, "", "fake", 1, 1, None, *late, "unfinished", "", 0, "loop"))
    (tried,) = check.tried
    assert tried.failure is not None and "no answer to LOGOFF" in str(tried.failure)
