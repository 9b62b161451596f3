"""Method calls of the peer: their arguments, and what answers them (RFC 8620 section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Protocol

from .store import Account, Refused, User
from .switches import Limits, Switches

CORE, MAIL, SUBMIT = "urn:ietf:params:jmap:core", "urn:ietf:params:jmap:mail", "urn:ietf:params:jmap:submission"
Args = dict[str, Any]
Answers = list[tuple[str, Args]]

GET, SET = ("accountId", "ids", "properties"), ("accountId", "ifInState", "create", "update", "destroy")
CHANGES = ("accountId", "sinceState", "maxChanges")
QUERY = ("accountId", "filter", "sort", "position", "anchor", "anchorOffset", "limit", "calculateTotal")
REQUIRED = {"accountId", "fromAccountId", "sinceState", "emails"}
TYPES: dict[str, tuple[type, ...]] = dict.fromkeys(("accountId", "fromAccountId", "sinceState"), (str,))
TYPES |= dict.fromkeys(("ids", "properties", "sort", "destroy", "onSuccessDestroyEmail"), (list, NoneType))
TYPES |= dict.fromkeys(("filter", "create", "update", "onSuccessUpdateEmail"), (dict, NoneType))
TYPES |= dict.fromkeys(("ifInState", "ifFromInState", "anchor"), (str, NoneType))
TYPES |= dict.fromkeys(("maxChanges", "limit"), (int, NoneType)) | {"emails": (dict,), "bodyProperties": (list,)}
TYPES |= dict.fromkeys(("position", "anchorOffset", "maxBodyValueBytes"), (int,))
"""The types of arguments; those that are in no list are boolean."""


class Site(Protocol):
    """All that methods know of the server."""

    switches: Switches
    limits: Limits

    def account(self, user: User, account_id: str) -> Account: ...
    def account_of(self, address: str) -> Account | None: ...


@dataclass(slots=True)
class Call:
    """One method call; `created` has the creation ids of the request."""

    site: Site
    user: User
    account: Account
    args: Args
    created: dict[str, str]

    def real(self, given: Any) -> Any:
        """Return the id of a creation id with #."""
        return self.created.get(given[1:], given) if isinstance(given, str) and given.startswith("#") else given

    def check_state(self, kind: str, wanted: str | None) -> str:
        state = self.account.logs[kind].state
        if wanted not in (None, state) and not self.site.switches.ignores_if_in_state:
            raise Refused("stateMismatch")
        return state


Handler = Callable[[Call], Answers]
METHODS: dict[str, tuple[str, Sequence[str], Handler]] = {}
"""By name: the capability that it belongs to, its arguments, and what answers."""


def method(name: str, *arguments: str, capability: str = MAIL) -> Callable[[Handler], Handler]:
    def keep(handler: Handler) -> Handler:
        METHODS[name] = (capability, arguments, handler)
        return handler

    return keep


def answer(site: Site, user: User, using: Sequence[str], name: str, args: Args, created: dict[str, str]) -> Answers:
    """Return a method's answers; raise `Refused` for its error."""
    if name == "Core/echo" and CORE in using:
        return [(name, args)]
    if name not in METHODS or METHODS[name][0] not in using:
        raise Refused("unknownMethod")
    _, arguments, handler = METHODS[name]
    wrong = [key for key in args if key not in arguments or type(args[key]) not in TYPES.get(key, (bool,))]
    wrong += [key for key in arguments if key in REQUIRED and key not in args]
    if wrong:
        raise Refused("invalidArguments", description=f"wrong or missing: {', '.join(wrong)}")
    objects = sum(len(args.get(key) or ()) for key in ("create", "update", "destroy", "emails"))
    if objects > site.limits.maxObjectsInSet:
        raise Refused("requestTooLarge")
    return handler(Call(site, user, site.account(user, args["accountId"]), args, created))


def resolved(args: Args, answers: Sequence[tuple[str, Args, str]]) -> Args:
    """Return the arguments with the values of result references (RFC 8620 section 3.7)."""
    plain = {key: value for key, value in args.items() if not key.startswith("#")}
    for key, reference in args.items():
        if not key.startswith("#"):
            continue
        if key[1:] in args:
            raise Refused("invalidArguments", description=key)
        try:
            source = next((name, result) for name, result, call_id in answers if call_id == reference["resultOf"])
            if source[0] != reference["name"] or not reference["path"].startswith("/"):
                raise KeyError
            plain[key[1:]] = pointed(source[1], reference["path"].split("/")[1:])
        except (LookupError, TypeError, ValueError, AttributeError, StopIteration):
            raise Refused("invalidResultReference", description=key) from None
    return plain


def pointed(value: Any, steps: Sequence[str]) -> Any:
    """Return what a JSON pointer names; * stands for all items of an array, whose arrays are joined."""
    if not steps:
        return value
    if steps[0] == "*" and isinstance(value, list):
        found = [pointed(item, steps[1:]) for item in value]
        return [part for item in found for part in (item if isinstance(item, list) else [item])]
    step = steps[0].replace("~1", "/").replace("~0", "~")
    return pointed(value[int(step)] if isinstance(value, list) else value[step], steps[1:])


def pick(whole: Mapping[str, Any], properties: Sequence[str]) -> Args:
    return {name: whole[name] for name in properties}
