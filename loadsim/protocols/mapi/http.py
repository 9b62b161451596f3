"""The dialect of HTTP that MAPI over HTTP uses (MS-OXCMAPIHTTP)."""

from __future__ import annotations

import re
from dataclasses import replace

from loadsim.protocols.http.channel import HttpDialect
from loadsim.protocols.http.responses import Response
from loadsim.protocols.mapi.bodies import split_response

MAPI_CONTENT = "application/mapi-http"

USUAL_PERIOD_S, LONGEST_PERIOD_S = 15.0, 300.0
"""The default and the longest interval at which a server sends PENDING (MS-OXCMAPIHTTP section 2.2.3.3.5)."""


def whole(response: Response) -> Response:
    """Return a response without its meta-tags (MS-OXCMAPIHTTP section 2.2.7), with the fields after DONE."""
    if (
        response.status != 200
        or response.fields.get("content-type", "").partition(";")[0].strip().lower() != MAPI_CONTENT
    ):
        return response
    more, body = split_response(response.body)
    return replace(response, fields={**response.fields, **more}, body=body)


def _shown(response: Response) -> str:
    """Return a response as a line, without its reason phrase, in which a server may repeat credentials."""
    code = response.fields.get("x-responsecode", "")
    return f"{response.status} X-ResponseCode {code if code.isdecimal() else 'none'}, {len(response.body)} bytes"


def _pending_period_s(head: Response) -> float:
    stated = head.fields.get("x-pendingperiod", "")
    return min(int(stated) / 1000, LONGEST_PERIOD_S) if re.fullmatch(r"\d{1,9}", stated, re.ASCII) else USUAL_PERIOD_S


DIALECT = HttpDialect("MAPI", _pending_period_s, whole, _shown)
