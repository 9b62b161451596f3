"""Method calls and their responses (RFC 8620 section 3)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from loadsim.errors import GeneratorFailed, MailMissing, ProtocolError, ServerRefused, TaskFailed
from loadsim.protocols.http.responses import Response
from loadsim.protocols.jmap.resource import CORE, MAIL, SUBMISSION
from loadsim.protocols.jmap.values import Members, malformed, parse

UNKNOWN = ("cannotCalculateChanges", "invalidArguments")
"""The errors of Email/changes for a state that the server cannot compare; Cyrus 3.6 and James 3.8 send the second."""

_TYPE = re.compile(r"[A-Za-z]{1,40}")
_OF_REQUEST = "urn:ietf:params:jmap:error:"
_OF_SUBMISSION = ("Identity/", "EmailSubmission/")


class Call(NamedTuple):
    """A method call; the id under which it is answered is its place in the request."""

    method: str
    arguments: Mapping[str, Any]


def result_of(place: int, method: str, path: str) -> dict[str, str]:
    """Return a reference to the result of an earlier call in the request (RFC 8620 section 3.7)."""
    return {"resultOf": str(place), "name": method, "path": path}


def request_body(calls: Sequence[Call], account_id: str) -> bytes:
    submits = any(call.method.startswith(_OF_SUBMISSION) for call in calls)
    return json.dumps(
        {
            "using": [CORE, MAIL, *([SUBMISSION] if submits else [])],
            "methodCalls": [
                [call.method, {"accountId": account_id, **call.arguments}, str(place)]
                for place, call in enumerate(calls)
            ],
        },
        separators=(",", ":"),
    ).encode()


class MethodResponse(NamedTuple):
    """A method response: the place of its call, its name, and its arguments."""

    place: int
    name: str
    arguments: Members


@dataclass(frozen=True, slots=True)
class Answers:
    """The responses to calls, in order. A call may have several: its own, and those to calls that it implies."""

    calls: Sequence[Call]
    responses: Sequence[MethodResponse]

    def __getitem__(self, place: int) -> Members:
        """Return a call's own response. Raises `ServerRefused` for a method error."""
        return self.of(place, self.calls[place].method)

    def of(self, place: int, name: str) -> Members:
        """Return the response of this name to a call. Raises `ServerRefused` for a method error."""
        for response in self.responses:
            if response.place == place and response.name in (name, "error"):
                if response.name == "error":
                    raise error_of(response.arguments, name)
                return response.arguments
        raise malformed(f"a response to {name}")


def read_answers(body: bytes, calls: Sequence[Call]) -> Answers:
    """Read a Response object (RFC 8620 section 3.4)."""
    responses = []
    for entry in parse(body, "Response").list("methodResponses"):
        if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[0], str):
            raise malformed("a name, arguments and a call's id in Response.methodResponses")
        name, arguments, key = entry
        if not isinstance(key, str) or not key.isdecimal() or len(key) > 4 or int(key) >= len(calls):
            raise malformed("the id of a call in Response.methodResponses")
        responses.append(MethodResponse(int(key), name, Members(arguments, name[:40])))
    return Answers(calls, responses)


def problem_of(response: Response, name: str) -> tuple[str, str]:
    """Return the kind of a failure, such as "400 limit maxCallsInRequest Email/get", and the server's line.

    Problem details (RFC 7807, RFC 8620 section 3.6.1) may explain the status.
    """
    words, line = [str(response.status)], response.line
    if "json" in response.fields.get("content-type", ""):
        try:
            problem = parse(response.body, "problem")
            stated = problem.text("type", "").removeprefix(_OF_REQUEST), problem.text("limit", "")
            words += filter(_TYPE.fullmatch, stated)
            line = replace(response, reason=problem.text("detail", response.reason)).line
        except ProtocolError:
            pass
    return " ".join([*words, name]), line


def error_of(error: Members, method: str) -> TaskFailed:
    """Return the failure for a method error (RFC 8620 section 3.6.2) or a SetError (section 5.3)."""
    stated = error.text("type")
    kind, text = f"{stated if _TYPE.fullmatch(stated) else 'malformed'} {method}", error.text("description", "")
    if stated == "notFound":
        return MailMissing(kind, text)
    if stated == "alreadyExists":  # the messages of loadsim all differ
        return GeneratorFailed(kind, f"an equal message is in the account already {text}")
    return ServerRefused(kind, text)


def check_set(answer: Members, method: str, **asked: Sequence[str]) -> None:
    """Raise the first failure of a /set or /import; `asked` has the ids or keys by `created`, `updated`, `destroyed`.

    Raises `MailMissing` if the response mentions one nowhere.
    """
    for done, keys in asked.items():
        refused = answer.by_name(f"not{done.capitalize()}")
        succeeded = frozenset(answer.texts(done)) if done == "destroyed" else answer.names_in(done)
        for key in keys:
            if key in refused:
                raise error_of(refused[key], method)
            if key not in succeeded:
                raise MailMissing(f"{method} without effect", f"on some of {len(keys)} messages")
