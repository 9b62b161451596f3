"""HTTP statuses that refuse a request, and their problem details (RFC 7807, RFC 8620 section 3.6.1)."""

from __future__ import annotations

import re
from dataclasses import replace

from loadsim.errors import ProtocolError
from loadsim.protocols.http.responses import Response
from loadsim.protocols.jmap.values import Members, parse

_PREFIX = "urn:ietf:params:jmap:error:"
_WORD = re.compile(r"[A-Za-z]{1,40}")


def problem_of(response: Response, name: str) -> tuple[str, str]:
    """Return the kind of a failure, such as "400 limit maxCallsInRequest Email/get", and the server's line."""
    words, line = [str(response.status)], response.line
    if "json" in response.fields.get("content-type", ""):
        try:
            problem = parse(response.body, "problem")
            words += _words(problem)
            line = replace(response, reason=problem.text("detail", response.reason)).line
        except ProtocolError:
            pass
    return " ".join([*words, name]), line


def _words(problem: Members) -> list[str]:
    stated = problem.text("type", "").removeprefix(_PREFIX), problem.text("limit", "")
    return [word for word in stated if _WORD.fullmatch(word)]
