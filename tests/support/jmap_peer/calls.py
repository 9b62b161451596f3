"""Method calls of the peer: their arguments, and what answers them (RFC 8620 section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from .store import Account, Refused

CORE, MAIL, SUBMIT = "urn:ietf:params:jmap:core", "urn:ietf:params:jmap:mail", "urn:ietf:params:jmap:submission"
Args = dict[str, Any]
Answers = list[tuple[str, Args]]

GET, SET = ("accountId", "ids", "properties"), ("accountId", "ifInState", "create", "update", "destroy")
QUERY, CHANGES = ("accountId", "filter", "sort", "position", "limit"), ("accountId", "sinceState", "maxChanges")
REQUIRED = {"accountId", "sinceState", "emails"}
TYPES: dict[str, tuple[type, ...]] = {"accountId": (str,), "sinceState": (str,), "emails": (dict,), "position": (int,)}
TYPES |= dict.fromkeys(("ids", "properties", "sort", "destroy"), (list, NoneType)) | {"bodyProperties": (list,)}
TYPES |= dict.fromkeys(("filter", "create", "update", "onSuccessUpdateEmail"), (dict, NoneType))
TYPES |= dict.fromkeys(("maxChanges", "limit"), (int, NoneType)) | {"ifInState": (str, NoneType)}
"""The types of arguments; those that are in no list are boolean."""


@dataclass(slots=True)
class Call:
    """One method call."""

    site: Any  # the `Peer`
    account: Account
    args: Args

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


def answer(site: Any, account: Account, using: Sequence[str], name: str, args: Args) -> Answers:
    """Return a method's answers; raise `Refused` for its error."""
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
    if args["accountId"] != account.id:
        raise Refused("accountNotFound")
    return handler(Call(site, account, args))


def resolved(args: Args, answers: Sequence[tuple[str, Args, str]]) -> Args:
    """Return the arguments with the values of result references (RFC 8620 section 3.7)."""
    plain = {key: value for key, value in args.items() if not key.startswith("#")}
    for key, reference in args.items():
        if not key.startswith("#"):
            continue
        if key[1:] in args:
            raise Refused("invalidArguments", description=key)
        try:
            name, value = next((name, result) for name, result, call_id in answers if call_id == reference["resultOf"])
            first, *steps = reference["path"].split("/")
            if name != reference["name"] or first:
                raise KeyError
            for step in steps:
                value = value[step]
            plain[key[1:]] = value
        except (LookupError, TypeError, ValueError, AttributeError, StopIteration):
            raise Refused("invalidResultReference", description=key) from None
    return plain


def pick(whole: Mapping[str, Any], properties: Sequence[str]) -> Args:
    return {name: whole[name] for name in properties}
