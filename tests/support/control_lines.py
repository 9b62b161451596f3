"""Lines of the control protocol as JSON, without the code under test."""

import json
from typing import Any


def line_of(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def read_line(line: bytes | str) -> tuple[str, Any]:
    [(kind, value)] = json.loads(line).items()
    return kind, value
