"""The catalogue of findings: severity, cause, sentence and remedy by code.

Fields in braces are values of the finding; `where` is its place. The unit at the end of a field's name decides how it
is shown, and `{users:user}` counts users. `make reference` writes docs/reference/findings.md from this file.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, unique
from functools import cached_property
from string import Formatter
from typing import NamedTuple

from loadsim.findings.severity import Cause, Severity


class SentencePart(NamedTuple):
    """Literal text in a sentence, the field that follows it, and the noun that the field counts; "" if absent."""

    text: str
    field: str
    noun: str


MORE_GENERATOR = "use more engines, fewer users, a longer day (run.day_length), or another machine for the generator"
LESS_LOAD = "use fewer users, or a longer day (run.day_length)"
MORE_HITS = "use more users, more days (run.days), or a longer window (run.window)"
FIND_CAPACITY = "use fewer users; loadsim capacity finds how many this server can handle"
RUN_AGAIN = "fix the cause, and run again"
REPAIR = "repair the probe or its monitor, and run again"
OTHER_WARM_UP = "use a longer warm-up (run.warm_up)"
CREATE_LIST = "create it with its members (loadsim topology export writes all lists), or set lists.count: 0"
SMALLER_MESSAGES = "raise the server's message size limit, or choose smaller messages in the profile"
FASTER_DISKS = "use more or faster disks, or put fewer mailboxes on them"
STORE_CRLF = "configure the server to store and send CRLF (RFC 5322 section 2.3)"
FIND_CAUSE = "find out what alters mail: the server's storage, or a filter that is supposed to (run.audit_allow)"
LOOK_AT_LOG = "look for the reason in the server's log"

Entry = tuple[Severity, Cause | None, str, str]


def _entries(severity: Severity, cause: Cause | None = None, usual_remedy: str = "") -> Callable[..., Entry]:
    def entry(sentence: str, remedy: str = usual_remedy) -> Entry:
        return severity, cause, sentence, remedy

    return entry


_refused = _entries(Severity.INVALID)
"""For runs that cannot be compared, and servers or machines that cannot run the scenario: no run failed."""

_degraded = _entries(Severity.DEGRADED)
_missed = _entries(Severity.MISSED)
_warning = _entries(Severity.WARNING)
_note = _entries(Severity.NOTE)
_aborted = _entries(Severity.INVALID, Cause.ABORTED)
_ended = _entries(Severity.INVALID, Cause.ENDED)
_fault = _entries(Severity.INVALID, Cause.FAULT, RUN_AGAIN)
_too_slow = _entries(Severity.INVALID, Cause.GENERATOR, MORE_GENERATOR)
_overload = _entries(Severity.INVALID, Cause.LOAD, LESS_LOAD)
_too_small = _entries(Severity.INVALID, Cause.TERMS, MORE_HITS)


@unique
class Code(Enum):
    """A finding's code. Output shows the member's name in lower case, with hyphens."""

    # The run ended early, or its end is unknown.
    ABORTED = _aborted("abort_on ended the run early: {why}", "use fewer users, or fix the server")
    STOPPED = _ended("someone stopped the run before it finished", "let the run finish")
    FAULT_ENDED = _fault("the run was ended early: {why}")
    FAULT_AT_END = _fault("{why}")
    NO_END = _fault(
        "no log records the end of the run: it is still running, or no engine survived",
        "if it is still running, wait; otherwise run again",
    )

    # The generator failed.
    USERS_LOST = _fault("the generator lost {lost} of {users:user}; at most {limit_share} allowed")
    USERS_GIVEN_UP = _fault(
        "the generator gave up on {given_up} of {users:user} after an internal error", "report it as a bug in loadsim"
    )
    GENERATOR_FAILED = _fault("the load generator itself failed {times:time}: {kinds}")
    SHORTAGE = _too_slow(
        "the load generator ran out of resources {times:time}: {kinds}",
        "raise the named limit (ulimit -n, sysctl net.ipv4.ip_local_port_range), or use more machines",
    )
    CLOCKS_NOT_COMPARED = _fault(
        "mail was seen {early_ms} before it was accepted: the machines' clocks were not compared",
        "run on a cluster (loadsim cluster), which compares them",
    )
    NOT_OBSERVED = _fault(
        "{where} went unobserved for {length_s} (longest gap: {begin_s} to {end_s}), so its load is unknown",
        "find out what halted it, and run again",
    )

    # The generator was the bottleneck.
    GENERATOR_LATE = _too_slow("the load generator was late: 95th percentile {late_p95_ms}, limit {limit_ms}")
    ENGINE_BEGAN_LATE = _too_slow("engine {where} started {late_ms} after the common start, limit {limit_ms}")
    EVENT_LOOP_LATE = _too_slow("engine {where}: event loop late, 99th percentile {lag_p99_ms}, limit {limit_ms}")
    ENGINE_BUSY = _too_slow("engine {where} used {cpu_share} of a core, limit {limit_share}")
    MISSED_BY_GENERATOR = _too_slow("missed only because the load generator was late: {criteria}")

    # The server did not handle the load.
    TASKS_NOT_STARTED = _overload(
        "{started} of {due} due tasks started ({started_share}), at least {limit_share} needed"
    )
    LOAD_MISSING = _overload("{made} of {planned} planned tasks started ({made_share}), at least {limit_share} needed")
    COMPANIONS_DOWN = _overload(
        "additional mail programs had no service for {down_share} of the run, limit {limit_share}"
    )
    NOT_RECORDED = _fault("the logs hold {recorded_share} of the load, at least {limit_share} needed")
    HITS_MISSING = _overload("{where} has {hits:hit}, at least {limit} needed: the others failed or were not done")
    NO_SCORE = _overload("no scored task succeeded: there is no score", LOOK_AT_LOG)
    NO_THROUGHPUT = _overload("no task was completed in the window: there is no throughput", LOOK_AT_LOG)

    # The run was too small.
    FEW_HITS = _too_small("{where} has {hits:hit}, at least {limit} needed")
    NOTHING_DUE = _too_small("no scored task was due: there is no score")
    SHORT_WINDOW = _too_small("the window is {window_s} long, at least {limit_s} needed")
    FEW_PLANNED = _too_small(
        "the plan has too few hits in the window: {tasks}; each scored task needs {limit:hit} (limits.hits);"
        " {factor} times the users or days would be enough"
    )
    CUT_SHORT = _aborted("too few tasks were due before the run was aborted: {hits:hit}")
    NO_TASKS = _fault("the logs hold no task: there is no score")

    # Something is missing.
    BOUNDS = _degraded(
        "{bound_share} of the answers were read together with later data, so their times are upper bounds; limit"
        " {limit_share}",
        MORE_GENERATOR,
    )
    LOG_DAMAGED = _degraded("{damage}", RUN_AGAIN)
    LOG_WITHOUT_END = _degraded(
        "the log of {where} breaks off (last sample: {last_s}): its {users:user} count as lost",
        "find out why its engine stopped, then run again",
    )
    ENGINE_GIVEN_UP = _degraded(
        "{where} was abandoned (last sample: {last_s}): {why}; its {users:user} count as lost", RUN_AGAIN
    )
    LOGS_MISSING = _degraded(
        "the logs cover {present} of {users:user}; missing: {missing}", "put the missing logs into RUN/logs"
    )
    MAIL_NOT_LISTED = _degraded(
        "{messages:stored message} could not be checked before the end: log-offs took too long, or failed",
        "raise limits.command, or find out why the last commands of each session are slow",
    )
    FLAGS_NOT_KEPT = _degraded(
        "the server states (PERMANENTFLAGS) that folders do not keep {flags}, so their loss would go unnoticed",
        "configure the server to store these flags permanently",
    )
    MAIL_UNSEEN = _note("too little of the stored mail was checked")
    LOAD_UNKNOWN = _degraded(
        "the plan is missing, or too coarse for the window, so it is unknown how much of its load was made"
    )

    # The criteria.
    CRITERION_MISSED = _missed("{where}: {found}, limit: {limit}", FIND_CAPACITY)
    MAIL_CRITERION_MISSED = _missed("{where}: {found}, limit: {limit}", LOOK_AT_LOG)
    CRITERION_NOT_MEASURED = _missed("{where} was not measured (reason: {why}), limit: {limit}", RUN_AGAIN)
    CRITERION_NOT_JUDGED = _missed("not judged because the run ended early: {where}, {found}, limit: {limit}")

    # The audit of the mail after a run.
    MAIL_FAULTS = _missed(
        "the audit of {accounts:account} found faults in mail: {faults}", "read audit.csv in the run directory"
    )
    MAIL_FAULTS_ALLOWED = _warning(
        "the scenario allows these faults in mail (run.audit_allow): {faults}", "read audit.csv in the run directory"
    )
    MAIL_LOST = _missed(
        "{where}: message {message_id} is missing from {folder} of user {user}, or unreadable", LOOK_AT_LOG
    )
    MAIL_DUPLICATED = _missed("{where}: message {message_id} has an extra copy in {folder} of user {user}", LOOK_AT_LOG)
    MAIL_ALTERED = _missed("{where}: message {message_id} in {folder} of user {user} is not what was sent", FIND_CAUSE)
    LINE_ENDS = _missed("{where}: message {message_id} in {folder} of user {user} has lines without CRLF", STORE_CRLF)
    MAIL_SHOWN_ALTERED = _missed(
        "users fetched texts or files of {messages:message} that differ from what was sent, first {message_id} in"
        " {folder} of user {user}",
        FIND_CAUSE,
    )
    MAIL_MISDELIVERED = _missed(
        "{where}: message {message_id}, addressed to others, is in {folder} of user {user}", LOOK_AT_LOG
    )
    MAIL_MISFILED = _missed("{where}: message {message_id} is in {folder} of user {user}, not in {wanted}", LOOK_AT_LOG)
    FLAG_LOST = _missed("{where}: message {message_id} in {folder} of user {user} lacks {wanted}", LOOK_AT_LOG)
    FLAG_UNEXPECTED = _missed(
        "{where}: message {message_id} in {folder} of user {user} has {wanted}, which no user set", LOOK_AT_LOG
    )
    MAIL_UNEXPECTED = _missed("{where}: message {message_id} should not be in {folder} of user {user}", LOOK_AT_LOG)
    MAILBOX_UNREAD = _fault("the audit could not read the mailbox of {where}: {why}", "audit the run again")
    AUDIT_INCOMPLETE = _fault(
        "the audit could not judge the mail of {left} of {accounts:account}: {why}", "audit the run again"
    )
    AUTOMATIC_REPLIES = _warning(
        "automatic replies to loadsim's mail: {replies}; this mail is in no plan",
        "switch off the accounts' automatic replies (vacation, out of office)",
    )
    ARTICLES_STAY = _note(
        "{articles:article} of loadsim's stay in the newsgroup: readers cannot remove them",
        "let the news server expire them",
    )
    FOREIGN_MAIL = _warning(
        "users found {messages:message} that no user sent in this form (automatic replies, delivery reports, mail from"
        " elsewhere, or a changed From or Message-ID)",
        "find out what sends or changes it (loadsim check), switch that off, and use the accounts for nothing else",
    )
    MAIL_NOT_AUDITED = _warning(
        "the mail was not audited: some may be lost, duplicated or altered",
        "audit the run (loadsim audit) before others use its mailboxes",
    )
    MAIL_UNKNOWN = _note(
        "the audit cannot tell where {unknown:message} should be, {unknown_share} of all, as commands on them failed"
    )
    SERVER_STATE_WRONG = _missed(
        "the server broke the rule {rule} ({section}) {times:time}, first for user {user} in {folder}: {excerpt}",
        "repeat the commands by hand (telnet, openssl s_client, curl), and report the fault to the server's developers",
    )
    SERVER_STATE_FOLLOWS = _note(
        "the server broke the rule {rule} ({section}) {times:time}, perhaps because it broke {after} earlier: {excerpt}"
    )

    # What else was running on the machines.
    RELAXED = _warning("less strict than the defaults: {settings}", "restore the defaults before you quote a score")
    MEASURED_TOGETHER = _warning(
        "client and server share this limit: the server alone may manage more", "run the generator on another machine"
    )
    CORES_SHARED = _warning(
        "server and generator share the cores of {where}",
        "run with --pin (as root, on two cores or more), or use another machine",
    )
    CORES_BUSY = _warning("{busy_share} of the cores of {where} were in use, {engines_share} by the load generator")
    CORES_BUSY_BY_OTHERS = _warning(
        "{busy_share} of the cores of {where} were in use, only {engines_share} by the load generator",
        "stop other programs on the generator's machine (top shows them), or move the generator to another machine",
    )
    CPU_STOLEN = _warning("other virtual machines took {stolen_share} of the CPU of {where}", "use a dedicated host")
    SEGMENTS_LOST = _warning("{where} retransmitted {again} of {sent} TCP segments", "check the network for faults")
    CLOCK_SET = _warning(
        "the wall clock of {where} was changed by {step_ms}, {at_s} into the run", "do not set the clock during a run"
    )

    # The scenario.
    STATE_NOT_CHECKED = _warning(
        "client.check_state has no effect: only the drivers imap and jmap check a server against its earlier responses"
    )
    PASSWORD_IN_CLEAR = _warning(
        "passwords go to {where} without encryption", "set tls for this service, or use https in server.mapi.url"
    )
    NOT_VERIFIED = _warning(
        "the certificate of {where} is not verified: others on the network could read passwords and mail",
        "set ca_file to the certificate of the CA that signed it, and tls_verify to yes",
    )
    PASSWORD_ON_COMMAND_LINE = _warning(
        "other users of this machine can see accounts.password on the command line, and the shell history keeps it",
        "use accounts.password_env or accounts.password_file",
    )
    PASSWORD_FILE_OPEN = _warning("other users of this machine can read {file} ({where})", "chmod 600 the file")
    START_STATE_UNKNOWN = _warning(
        "it is unknown what mail the folders should hold, so lost mail cannot be detected (initialise: never)",
        "run loadsim init first, and remove initialise from the scenario",
    )
    NO_LISTS = _warning(
        "users receive less mail than their profiles state, because there are no distribution lists (lists.count: 0)",
        "set lists.count, and create the lists on the server (loadsim topology export)",
    )
    # What the score will lack.
    EXPECT_PROVISIONAL = _note(
        "the score will be provisional: the plan has {tasks} in the window, each scored task needs {limit:hit};"
        " {factor} times the users or days would be enough",
        MORE_HITS,
    )
    NONE_PLANNED = _note("the score will lack {tasks}: the plan has none in the window", MORE_HITS)

    # What the server did.
    TASK_REFUSED = _warning("{where}: {refused} of {due:due task} were refused, most often with: {answer}", LOOK_AT_LOG)
    USERS_UNSERVED = _warning(
        "{unserved:user}, {unserved_share} of those with tasks or mail to judge by, had no usable service: tasks"
        " failed, or tasks or mail were late (user {first})",
        LOOK_AT_LOG,
    )
    SESSIONS_LOST = _warning("{sessions:session} lost; users had none for {down_share} of the window", LOOK_AT_LOG)
    OUTAGE_PARTIAL = _warning("the outage interrupted only {interrupted} of {users:user}")
    COMPANION_SESSIONS_LOST = _warning("{sessions} lost sessions belonged to additional mail programs", LOOK_AT_LOG)
    LOG_ONS_FAILED = _warning("{failed} of {tried:log-on} failed", LOOK_AT_LOG)
    COMPANION_LOG_ONS_FAILED = _warning("{failed} of {tried:log-on} by additional mail programs failed", LOOK_AT_LOG)
    FIRST_SYNCS_FAILED = _warning("{failed} of {tried:first sync} failed", LOOK_AT_LOG)
    LOG_OFFS_NOT_DONE = _warning(
        "{not_done} of {tried:log-off} not completed, so stored mail is unchecked", LOOK_AT_LOG
    )
    NO_SESSION_AT_END = _warning("{without} of {users:user} had no session at the end", LOOK_AT_LOG)
    NOT_ANNOUNCED = _warning("users found {messages:message} that the server did not announce", LOOK_AT_LOG)
    NOT_PUSHED = _warning(
        "the server pushed nothing (EventSource), so users asked for new mail every {poll_s}: deliveries took as long",
        "switch on push in the server, or compare only with runs without it",
    )
    UNKNOWN_ACCEPTED = _warning(
        "the server accepted {messages:message} from outside for recipients who do not exist",
        "have it reject unknown recipients at RCPT: a server that accepts them has to bounce the mail, or drops it",
    )
    RECEIPTS_NOT_OFFERED = _warning(
        "no delivery receipt was requested for {messages:message}: the server does not offer DSN (RFC 3461)",
        "have its submission service offer DSN, or plan no delivery receipts (receipts.delivery of the profile)",
    )
    RECEIPTS_MISSING = _warning(
        "{missing} of {requested:delivery receipt} did not arrive",
        "look for the reports in the server's log: it may reject or drop mail from the null return path, MAIL FROM:<>",
    )
    NULL_PATH_REFUSED = _warning(
        "the server refused {refused} of {due:read receipt}, most often with: {answer}",
        "have the submission service accept the null return path, MAIL FROM:<> (RFC 5321 section 4.5.5), or plan no"
        " read receipts (receipts.returned of the profile)",
    )
    LISTS_OMIT_SENDER = _warning("{copies} expected copies are missing: the server's lists leave out the sender")
    FALLING = _warning(
        "times fall during the window: in its first quarter, {first_share} of the hits took longer than the"
        " {percentile}th percentile of their task; in its last, {last_share}",
        OTHER_WARM_UP,
    )
    RISING = _warning(
        "times rise during the window: in its first quarter, {first_share} of the hits took longer than the"
        " {percentile}th percentile of their task; in its last, {last_share}",
        "check the charts for a growing queue, growing mailboxes, or other work near the end",
    )

    # Monitors.
    MONITOR_MISSING = _warning("the run has no log of monitor {where}", "put its file into RUN/logs")
    MONITOR_DEFECT = _warning("monitor {where}: {why}", REPAIR)
    MONITOR_OF_OTHER_TIME = _warning(
        "monitor {where} has no sample in the window: by the clocks, its file covers {begin_s} to {end_s}",
        "check whether its file belongs to another run, or whether a clock is wrong",
    )
    MONITOR_WITHOUT_TIME = _warning("monitor {where}: its samples cannot be placed: a time of day is missing")
    MONITOR_GAP = _warning("monitor {where} has no sample from {begin_s} to {end_s}", REPAIR)
    MONITOR_CLOCK_APART = _warning(
        "the clocks of monitor {where} and of the run may differ (error: {error_ms})", "synchronise the clocks (NTP)"
    )

    # What is missing from a probe's figure.
    NO_PROBE = _note("the logs have no data from probe {where}")
    NO_FIGURE = _note("the probe has no figure {figure}")
    MISNAMED_FIGURE = _note("the probe has no figure {figure}; it has {known}")
    NO_SAMPLES = _note("no samples for {gap_s} of the window", REPAIR)
    NO_DELIVERIES = _note("it requires measured deliveries, and at least {limit} samples in the window")
    SAMPLES_FAILED = _note("{failed} of {tried:sample} failed: {why}", REPAIR)

    # Two sets of runs.
    COMPARED_INVALID = _refused("{where} is an invalid run: {why}", "compare valid runs")
    COMPARED_UNLIKE = _refused("the runs are not alike: {difference}", "compare runs of one scenario")
    LOADS_DIFFER = _refused(
        "the loads of {first} and {other} differ ({digests}), and base and new do not use each load equally"
        " often; differing keys: {keys}",
        "compare runs of one scenario, using each seed as often in base as in new",
    )
    COMPARED_DEGRADED = _warning("{where} is degraded: {why}")
    COMPARED_MISSED = _warning("{where} missed criteria: {why}")
    CRITERIA_DIFFER = _warning("the criterion {where} is {own} in {run}; all runs are judged by: {common}")
    START_STATE_NOT_STATED = _warning(
        "some runs do not record the initial state of the mailboxes (initialise: never)",
        "run loadsim init first, and remove initialise from the scenario",
    )
    CIRCUMSTANCES_DIFFER = _warning("the runs differ in {what}: {values}", "repeat the runs under the same conditions")
    DRIVERS_DIFFER = _warning(
        "base used the driver {base}, new used {new}: their tasks make different requests, so times compare drivers and"
        " servers together; other differences: {differences}",
        "see docs/reference/drivers.md for what each driver's tasks do",
    )
    FAILURE_RATES_DIFFER = _warning("{where}: {base_share} failed in base, {new_share} in new")
    MORE_STOLEN = _warning(
        "other virtual machines took {more} of the machine in the runs of {busier}, {less} in those of {other}: they"
        " may cause a difference",
        "use a dedicated or idle host",
    )
    MORE_OTHER_WORK = _warning(
        "other programs took {more} of the machine's cores in the runs of {busier}, {less} in those of {other}: they"
        " may cause a difference",
        "keep other work off the machine",
    )
    BUSIER_MACHINE = _warning(
        "the machine was busier in the runs of {busier} ({more} of its cores) than in those of {other} ({less}):"
        " the server needed more, or other programs ran",
        "use the probe host on the server's machine to find out which",
    )
    NO_TURNS = _warning(
        "the runs of base and new did not take turns, so changes in the machines may look like differences between"
        " the servers; intervals are {stretch} times as wide",
        "run base and new in turn, with new first in half of the pairs",
    )
    RUNS_ALTERNATE = _warning(
        "base and new strictly alternate, so anything that a run leaves behind, such as a warm cache, always favours"
        " the same side; times decide nothing",
        "run base and new in turn, with new first in half of the pairs",
    )
    REGRESSION = _missed(
        "new exceeds base by more than the {limit_share} allowed: {figures}",
        "look for the cause in the table's slower tasks, and measure again",
    )
    FEW_RUNS = _note(
        "with {runs:run} on a side, a problem in half of all runs may go unseen; {enough} of each are enough",
        "make enough runs of each, in turn",
    )
    UNDECIDED = _note(
        "about {more} more runs of each would decide",
        "make more runs of each, in turn, and compare all of them with --looks",
    )

    # What was not judged, and how precise the score is.
    CRITERIA_OFF = _note("the scenario switches these criteria off: {criteria}")
    PROVISIONAL = _note("the score is provisional: fewer than {limit} hits of {tasks}", MORE_HITS)
    NO_INTERVAL = _note(
        "no confidence interval for the score: the window is {window_s} long, at least {limit_s} needed",
        "use a longer window (run.window)",
    )
    TASKS_WITHOUT_INTERVAL = _note(
        "no confidence interval for the score: hits of {tasks} are few, or unevenly spread over the window", MORE_HITS
    )

    # A capacity search: its answer, why it ended, and what limits it.
    CAPACITY_FOUND = _note(
        "{users:user}, interval {low} to {high}: {failed:user} miss the criteria",
        "quote users, interval, day and scenario together; to confirm them, run a suite with 80, 100 and 120 % of"
        " the users on another day",
    )
    CAPACITY_ABOUT = _warning(
        "about {users:user}: too few runs agree for an interval",
        "resume this search without --quick before you quote this number",
    )
    CAPACITY_UNDECIDED = _warning("not decided between {low} and {high} users")
    CAPACITY_NONE = _missed("none: even {failed:user} miss the criteria", LOOK_AT_LOG)
    CAPACITY_AT_LEAST = _note("at least {users:user}")
    CAPACITY_UNKNOWN = _warning("not found")
    MUST_NEVER_HAPPEN = _warning("something that must never happen did, such as lost mail", LOOK_AT_LOG)
    ORDER_MATTERS = _warning("results depend on the order of the runs", "find out what changes from run to run")
    RESULTS_DIFFER = _warning(
        "runs with the same number of users differ", "use longer windows, or find out what changes from run to run"
    )
    GENERATOR_TOO_SLOW = _warning("the load generator was too slow for more", "use --pin, more cores, or --cluster")
    MOST_MEASURED = _note("the search reached its maximum of {most}", "create more accounts, and raise --most")
    NOT_MEASURABLE = _warning("{which} cannot be measured here", "allow more memory, files or hits (run.window)")
    CORES_CONTENDED = _warning(
        "doubtful: other work shared the server's cores",
        "keep other work off the server's cores (--pin, or an idle machine), and search again",
    )
    BROKEN_RUN = _warning("{why}: one such run is decisive")
    NUMBER_REFUSED = _warning("{users} users cannot be measured: {why}")
    MACHINE_LACKS = _too_slow("{why}", "raise the named limit, or use another machine")
    SERVER_NOT_MEASURED = _warning(
        "the server's processor, disks and memory were not measured",
        "search again on the server's machine with --set 'probes.host={}'; from another machine, use the key monitors",
    )
    CORES_TAKEN = _warning(
        "other programs, the kernel and other virtual machines took {taken_share} of the server's cores: with"
        " the machine to itself, the server may handle more users",
        "keep other work off the machine",
    )

    # A suite, its cells, and its comparisons.
    SUITE_ENDED = _warning(
        "{runs:run} in a row gave no measurement (stop_after)", "fix the cause, and repeat the command"
    )
    CELL_OVERLOADED = _warning(
        "no score: the server did not take the load in {overloaded} of {answered:run}", FIND_CAPACITY
    )
    CELL_NOT_MEASURED = _warning("no score: no run was measured", RUN_AGAIN)
    CELL_NOT_FINITE = _warning("no score: some runs have no finite score", LOOK_AT_LOG)
    CELL_TASKS_DIFFER = _warning("no score: its runs' scores cover different tasks", MORE_HITS)
    RUNS_NOT_COUNTED = _warning("{invalid:invalid run} and {failed:failed run} are excluded from its figures")
    COMMANDS_FAILED = _warning("{commands:command} after a run failed; campaign.json has the reasons")
    NOT_COMPARED = _refused("{why}")

    # Sizing: what a figure lacks, and what makes it doubtful.
    FEW_SAMPLES = _note(
        "{samples:sample} in the window, at least {limit} needed in each tenth", "use a longer window (run.window)"
    )
    SAMPLES_AT_ONCE = _note("several of its samples have the same time", REPAIR)
    NO_DIVISOR = _note("there is nothing to divide by")
    DRIFTS = _note("it drifts over more than a tenth of the window", OTHER_WARM_UP)
    HARDLY_USED = _note(
        "{used_share} used: at least {limit_share} needed to extrapolate",
        "measure more users, or a shorter day (run.day_length)",
    )
    WIDE_INTERVAL = _note("its interval, {low} to {high} users, is too wide", "use a longer window (run.window)")
    GROUPS_OVERLAP = _note(
        "groups of probes.host ({groups}) overlap with the server or loadsim: {cores} cores would count twice",
        "name other processes, and measure again",
    )
    CORES_CHANGED = _note(
        "the server's processes could run on {least} to {most} cores in the window",
        "keep them on the same cores throughout",
    )
    CORES_OF_SOME = _note(
        "processes of the server and of groups may run on different cores, and some cores may fill up before the rest",
        "give all these processes the same cores (taskset, --pin)",
    )
    CORES_OF_OTHERS = _note(
        "other programs took {programs} of {cores} cores, {busiest} the most, and other virtual machines {machines};"
        " whether this work follows the load is unknown",
        "measure without them, or name those that process mail in probes.host.groups",
    )
    QUOTA_UNKNOWN = _note("the kernel counts its control group's time under another name, or not at all")
    NO_DISKS = _note("the probe sampled no disks", "name them in probes.host.disks")
    DISKS_STACKED = _note(
        "of {disks}, {stacked} may be stacked on the others, so operations may count twice",
        "name only one layer in probes.host.disks",
    )
    NO_NETWORK = _note("the probe has no network figures")
    NETWORK_SPEED_UNKNOWN = _note("{sent} MB/s sent and {received} MB/s received; the network's speed is unknown")
    MACHINE_WITHOUT_SERVER = _note("no server processes were seen on the machine of {where}")
    RESOURCE_FULL = _warning("{where} was full: a task may need more of it than was measured", "measure fewer users")
    OTHER_LOAD = _warning(
        "{where} counted {counted} messages per second, loadsim made {made}: the rest is other load, attributed"
        " to the users",
        "measure without other load",
    )

    # What a server answered, by its response codes.
    LIMIT_REACHED = _refused("a limit of the server was reached: {answer}", "raise the limit that its answer names")
    NO_ROOM = _refused("the mailbox or the server's storage is full: {answer}", "raise the quota, or free storage")
    FOLDER_MISSING = _refused(
        "a folder is missing: {answer}",
        "if it is the Inbox, make the server create it at log-on (autocreate); loadsim creates all others",
    )
    RIGHT_MISSING = _refused(
        "the account lacks an access right: {answer}",
        "grant it this right; for new folders, you can set folders.prefix to a namespace where it may create them",
    )
    LOG_ON_REQUIRED = _refused(
        "the server requires TLS or a log-on: {answer}", "set tls or auth of server.imap and server.smtp"
    )
    SERVER_UNAVAILABLE = _refused("the server is not available: {answer}", LOOK_AT_LOG)
    MESSAGE_TOO_LARGE = _refused("the server rejects a message for its size: {answer}", SMALLER_MESSAGES)
    RECIPIENT_REFUSED = _refused(
        "the server refuses mail for {recipient}: {answer}",
        "create or enable the account, or set domain to the accounts' domain",
    )
    LIST_UNKNOWN = _refused("the server does not know the list {recipient}: {answer}", CREATE_LIST)
    GREYLISTED = _refused(
        "the server temporarily refuses mail: {answer}", "exempt this machine's address, if the server greylists it"
    )
    MAIL_FORBIDDEN = _refused(
        "the server forbids mail from {sender} to {recipient}: {answer}",
        "allow accounts to send from their own addresses to the scenario's domain",
    )
    BARE_LINE_FEEDS = _refused("the server sends lines that end in LF without CR: {answer}", STORE_CRLF)
    PROTOCOL_BROKEN = _refused("the server broke the protocol: {answer}", "report this response to its developers")
    ANSWER_UNKNOWN = _refused("the server answered: {answer}", LOOK_AT_LOG)
    MACHINE_FAILED = _refused("this machine failed: {answer}")

    # What else a check of a server found.
    MAILBOX_NOT_EMPTY = _refused(
        "{where} has {messages:message} that loadsim did not put there: a run would refuse the account",
        "use empty test accounts",
    )
    FEW_SESSIONS = _refused(
        "only {on} of {tried:session} can be open at once: {answer}",
        "raise the server's limit on connections per address, or on processes, above the number of users",
    )
    FEW_CONNECTIONS = _refused(
        "a user can have only {made} of {wanted:connection} at once: {answer}",
        "raise the server's limit on connections per user",
    )
    SELDOM_LOOKS = _refused(
        "users look for new mail only every {look_s}, because the server does not announce it",
        "raise the delivery limit in criteria, or choose a mail program that looks more often",
    )
    SMALL_LIMIT = _refused("the largest planned message has {planned} bytes, {where} allows {limit}", SMALLER_MESSAGES)
    SMALL_QUOTA = _refused(
        "the quota of {account} is {limit}{unit}, of which {used}{unit} is used; the plan needs {planned}{unit}",
        "raise the quota",
    )
    MAIL_NOT_DELIVERED = _refused(
        "mail to {address} was accepted, but did not arrive within {wait_s}",
        "look for it in the server's queue and log",
    )
    LIST_NOT_DELIVERED = _refused(
        "mail to {address} reached {reached} of {members:member} within {wait_s}", CREATE_LIST
    )
    HEADER_CHANGED = _refused(
        "{where}: {messages:message} of this check arrived with a changed From or Message-ID: foreign mail in a run",
        "configure the mail server to leave the test domain's headers unchanged",
    )
    INBOX_SHARED = _refused(
        "{where}: expected nothing in the Inbox but this check's message, found {found}",
        "stop other mail programs and filters, give each user a separate mailbox, or find out how the server changes"
        " mail",
    )
    MAIL_ANNOUNCED_LATE = _note(
        "the server announced {announced} of {messages:message} within {wait_s}: users answer mail later, so a run of"
        " a few minutes may make too little load"
    )
    SENDER_LEFT_OUT = _note("the list leaves out the sender: a run does not expect these copies")
    MONITOR_WITHOUT_SAMPLES = _refused("monitor {where}: {why}", "make its command (key monitors) print samples")

    # A storage test.
    STORE_UNVERIFIED = _fault("what was stored was not verified afterwards")
    DISK_FULL = _too_small("the file system is full, except for its reserve", "use fewer mailboxes, or a larger disk")
    WORKER_BUSY = _too_slow(
        "the process of {where} used {cpu_share} of a core, limit {limit_share}: it was slower than the disks",
        "use more databases (each has its own process), on a machine with as many cores",
    )
    WORKER_LATE = _too_slow(
        "the process running {where} fell behind: 99th percentile {lag_p99_ms}, limit {limit_ms}",
        "keep other work off the machine, or use fewer threads",
    )
    CACHE_NOT_FULL = _too_small(
        "a cache did not fill up, so the disks were not measured as they will be used",
        "use larger mailboxes, or a smaller cache",
    )
    FEW_READS = _too_small(
        "{where} made {made:read} from the disk, at least {limit} needed", "use a longer duration, or larger mailboxes"
    )
    FEW_LOG_WRITES = _too_small(
        "{where} made {made:log write}, at least {limit} needed", "use a longer duration, or fewer lazy changes"
    )
    BELOW_TARGET = _missed(
        "{where} made {achieved} reads and writes per second, target {target}",
        "use more threads (loadsim storage tune finds how many); if that makes times too long, use faster disks",
    )
    DISK_READS_SLOW = _missed("reads from {where} took {mean_ms} on average, limit {limit_ms}", FASTER_DISKS)
    DISK_READ_PEAK = _missed(
        "reads from {where} took up to {max_ms} (mean of a sample), limit {limit_ms}", FASTER_DISKS
    )
    LOG_WRITES_SLOW = _missed("log writes to {where} took {mean_ms} on average, limit {limit_ms}", FASTER_DISKS)
    LOG_WRITE_PEAK = _missed(
        "log writes to {where} took up to {max_ms} (mean of a sample), limit {limit_ms}", FASTER_DISKS
    )
    DISK_STALLED = _missed(
        "a read or write of {where} took {slowest_ms}, limit {limit_ms}", "check the system log for errors"
    )
    DISK_FAILED = _missed("operations on {where} failed {times:time}: {what}", "check the system log for errors")
    STORED_DAMAGED = _missed(
        "{where} has {damaged:damaged or lost place}: {places}", "replace the disk, controller or file system"
    )
    TUNING_FOUND = _note("the highest rate within limits was found", "quote it with its threads, pause and scenario")
    TUNING_NONE = _missed("even one thread is too much for the disks", FASTER_DISKS)
    TUNING_NO_LIMIT = _note("no run exceeded the limits on times: the disks can do more")
    TUNING_GENERATOR = _warning(
        "the load generator was too slow for more", "use more databases, on a machine with as many cores"
    )
    TUNING_VOID = _warning("a run was invalid, so its times mean nothing", "fix the cause that its report names")
    KERNEL_ERRORS = _fault(
        "the kernel logged errors: {errors}", "see if they come from the disks (dmesg), repair these, and run again"
    )
    STORAGE_SHORT = _degraded(
        "the test took only {length_s}; published ones take 2 h, so that no cache of the host can hold everything",
        "use the default duration",
    )
    MACHINE_RESTARTED = _too_small(
        "the machine restarted during a load: messages were verified by their checksums only, so lost ones would go"
        " unnoticed",
        "",
    )

    # A workload in a server's logs.
    LOG_LINES_UNKNOWN = _warning("not counted, as they are unknown: {lines:line}, {shapes}")
    LOG_HOURS_MISSING = _warning(
        "{hours} of the {of:hour} between the logs' first and last have no line",
        "add the rotated files that are missing",
    )
    LOG_DAYS_INCOMPLETE = _warning(
        "the logs have no complete day: rates assume that all hours are like theirs", "use logs of a whole week"
    )
    LOG_DAYS_QUIET = _note("{quiet} of {days:complete day} had less than half of the busiest day's mail: not counted")
    LOG_YEAR_ASSUMED = _note("the lines have no year: by the files' last modification, they are from {begin} to {end}")
    QUEUE_IDS_EVICTED = _warning(
        "{messages:message} stayed in the queue for so long that they were counted before their end"
    )
    SENDERS_FORGOTTEN = _warning(
        "{messages:message} count as mail from outside: too many were waiting until their senders' mailboxes were known"
    )
    FILTERED_MAIL_UNTRACED = _warning(
        "{messages:message} passed a filter whose replies name no queue id: counted by sender, not by log-on name"
    )
    LOGS_OVERLAP = _warning(
        "these are logs of Postfix and of Exchange: messages that pass both count twice",
        "use Exchange's alone, if its users send and receive through Postfix",
    )
    LOG_ON_NAMES_UNMATCHED = _warning(
        "{names:name} that log on or send receive no mail: users whose log-on name is not their address count twice"
    )
    RATES_ASSUMED = _warning(
        "the logs do not show {what}: a quarter of what is received is assumed to be sent",
        "add the logs of the server that takes users' mail",
    )
    HABITS_ASSUMED = _note("the logs do not show {what}: assumed as in {profile}")
    MAIL_FROM_OUTSIDE = _note(
        "{outside_share} of the received mail is from outside: in a run, it is other users' mail, to more recipients"
    )
    GROUPS_RECEIVE_ALIKE = _note(
        "the {groups} groups differ in what they send: in a run, all users receive the same number"
    )
    MORE_SENT_THAN_RECEIVED = _warning(
        "users send {sent} messages a day but receive {received}: in a run, they receive what they send"
    )

    # What to do after a run without faults.
    EMBEDDED = _note(
        "the embedded server shares the machine with the generator: this does not measure a real server",
        "test a mail server of your own: loadsim new writes a scenario for it, loadsim check tries it out",
    )
    ONE_RUN = _note("one run does not show how runs vary", "make at least three such runs before you quote a score")

    def __init__(self, severity: Severity, cause: Cause | None, sentence: str, remedy: str) -> None:
        self.severity, self.cause, self.sentence, self.remedy = severity, cause, sentence, remedy

    @property
    def id(self) -> str:
        return self.name.lower().replace("_", "-")

    @classmethod
    def of(cls, name: str) -> Code:
        """Return the code that has this name in output. Raises `KeyError`."""
        return cls[name.upper().replace("-", "_")]

    @cached_property
    def parts(self) -> tuple[SentencePart, ...]:
        parsed = Formatter().parse(self.sentence)
        return tuple(SentencePart(text, field or "", noun or "") for text, field, noun, _ in parsed)

    @property
    def outline(self) -> str:
        """The sentence with each value's name in capitals; WHERE is the place."""
        return "".join(f"{part.text}{part.field.upper()}{part.noun and f' {part.noun}s'}" for part in self.parts)

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of the values, without `where`."""
        return frozenset(part.field for part in self.parts if part.field) - {"where"}
