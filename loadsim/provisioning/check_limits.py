"""A server's features and limits, compared with what a scenario needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.formats import length
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, SENT_ITEMS, Account, Services
from loadsim.model.provisioning_ports import Quota, ServerOffer
from loadsim.provisioning.check_folders import CheckPlace
from loadsim.provisioning.planned_size import largest_message_bytes, mailbox_bytes
from loadsim.provisioning.server_report import Observation
from loadsim.scenario.criteria import DELIVERY
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload

CAPABILITIES = (
    *("IDLE", "MOVE", "UIDPLUS", "LITERAL+", "SPECIAL-USE", "NAMESPACE", "UNSELECT", "CONDSTORE", "LIST-STATUS"),
    *("MULTIAPPEND", "QUOTA"),
)
"""IMAP capabilities that loadsim uses if a server offers them; SASL-IR, used only to log on, is left out."""

EXTENSIONS = ("PIPELINING", "SIZE", "8BITMIME")
"""SMTP extensions that loadsim uses if a server offers them."""


def offers(
    workload: Workload, services: Services, places: Sequence[CheckPlace], smtp_offer: ServerOffer | None
) -> list[Observation]:
    """Return what the server offers, and how it names folders."""
    endpoints = services.endpoints.items()
    of_tls = {service: Observation(f"{service.upper()} TLS", endpoint.tls) for service, endpoint in endpoints}
    of_smtp = [of_tls.pop("smtp")] if services.smtp is not None else []
    if smtp_offer is not None:
        words = [feature.partition(" ")[0] for feature in smtp_offer.features]
        of_smtp += [
            Observation("SMTP log-on", smtp_offer.method or "none"),
            Observation("SMTP offers", " ".join(name for name in EXTENSIONS if name in words) or "none"),
        ]
    if not places:
        return of_smtp
    place = places[0]
    names, method = place.names, place.offer.method
    folders = Observation(
        "folders", "; ".join(f"{name} = {names[name]}" for name in (SENT_ITEMS, DELETED_ITEMS, CALENDAR))
    )
    if services.imap is None:
        return [*of_tls.values(), Observation(f"{next(iter(of_tls)).upper()} log-on", method), folders, *of_smtp]
    offered = place.offer.features
    has = [name for name in CAPABILITIES if name in offered]
    lacks = [name for name in CAPABILITIES if name not in offered]
    prefix, _, rest = names.get("A/B", "").rpartition("A")
    return [
        *of_tls.values(),
        Observation("IMAP log-on", method or "none (PREAUTH)"),
        Observation("IMAP offers", " ".join(has) or "none of those that loadsim uses"),
        Observation("IMAP does without", " ".join(lacks) or "none"),
        new_mail(workload.scenario, offered),
        Observation("folder names", f"prefix {prefix or 'none'}, separator {rest.removesuffix('B') or 'none'}"),
        folders,
        *of_smtp,
    ]


def new_mail(scenario: Scenario, offered: Collection[str]) -> Observation:
    """Return how users notice new mail on a server with these capabilities: by IDLE, or by looking for it."""
    programs = [group.program for group in scenario.topology]
    look_s = max(program.look_s if "IDLE" in offered else program.poll_s for program in programs)
    if not look_s:
        return Observation("new mail", "IDLE")
    limit = scenario.criteria.get(DELIVERY)
    in_time = limit is None or 1000 * look_s < limit.most
    seldom = None if in_time else finding(Code.SELDOM_LOOKS, look_s=look_s)
    return Observation("new mail", f"users look for it every {length(look_s)}", seldom)


def limits(workload: Workload, places: Sequence[CheckPlace], smtp_offer: ServerOffer | None) -> list[Observation]:
    """Compare quotas and message size limits with what the scenario plans."""
    if not places:
        return []
    sizes: list[Observation] = []
    planned = largest_message_bytes(workload)
    offer = places[0].offer
    for name, service in (("APPENDLIMIT", offer), ("SIZE", smtp_offer)):
        if service is not None and (limit := service.limit(name)) is not None:
            sizes.append(of_size(name, limit, planned))
    quotas = [_of_quota(workload, place.account, quota) for place in places for quota in place.quotas]
    if not quotas and offer.features:  # MAPI announces no capabilities
        quotas.append(Observation("quota", "none stated" if "QUOTA" in offer.features else "not offered"))
    return [*{(seen.subject, seen.seen): seen for seen in (*sizes, *quotas)}.values()]


def sends_to_lists(workload: Workload) -> bool:
    """Return True if a scenario has lists, and a profile that sends mail to them."""
    planned = any(group.profile.new_mail.list_chance for group in workload.scenario.topology)
    return planned and len(workload.population.lists) > 0


def of_size(name: str, limit: int, planned: int) -> Observation:
    """Return the largest message that a service takes, compared with the largest planned one."""
    small = None if planned <= limit else finding(Code.SMALL_LIMIT, name, planned=planned, limit=limit)
    return Observation(name, f"{limit:,} bytes; the largest planned message has {planned:,}", small)


def _of_quota(workload: Workload, account: Account, quota: Quota) -> Observation:
    if quota.resource == "STORAGE":
        needed = -(-mailbox_bytes(workload, account.number) // 1024)
        unit = " KiB"
    elif quota.resource == "MESSAGE":
        needed, unit = sum(workload.start_state(account.number).values()), ""
    else:
        return Observation("quota", f"{quota.resource} {quota.used} of {quota.limit}")
    sizes = {"used": quota.used, "limit": quota.limit, "planned": needed}
    fits = quota.used < quota.limit and needed <= quota.limit
    small = None if fits else finding(Code.SMALL_QUOTA, account=account.login, unit=unit, **sizes)
    seen = f"{quota.resource} {quota.used} of {quota.limit}{unit} used; planned: {needed}{unit}"
    return Observation("quota", seen, small)
