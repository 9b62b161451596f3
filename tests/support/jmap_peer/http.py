"""HTTP/1.1 requests and responses of the peer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """A request's head, with header names in lower case; the body follows in the stream."""

    verb: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def body_bytes(self) -> int:
        return int(self.headers.get("content-length", "0"))


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def encode(self) -> bytes:
        return replace(self, headers={**self.headers, "Content-Length": str(len(self.body))}).head() + self.body


async def read_head(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    verb, target, _ = first.split(" ")
    pairs = [line.partition(":") for line in lines]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    parts = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return Request(verb, unquote(parts.path), query, headers)


def answer_json(value: Any, status: int = 200, kind: str = "application/json") -> Response:
    headers = {"Content-Type": kind, "Cache-Control": "no-cache, no-store, must-revalidate"}
    return Response(status, json.dumps(value, ensure_ascii=False).encode(), headers)


def problem(kind: str, **details: Any) -> Response:
    """Return a problem document (RFC 7807) for a request error of RFC 8620 section 3.6.1."""
    body = {"type": f"urn:ietf:params:jmap:error:{kind}", "status": 400, "detail": kind, **details}
    return answer_json(body, 400, "application/problem+json")


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("I-JSON forbids equal names")
    return dict(pairs)
