"""A news reader of raw sockets, which knows nothing of our code."""

import socket
from types import TracebackType
from typing import Self

from patience import PATIENCE_S


class NewsReader:
    """Sends commands, and returns their answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._file = self._socket.makefile("rwb")
        assert self._line().startswith("200")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def _line(self) -> str:
        return self._file.readline().decode("utf-8", "replace").removesuffix("\r\n")

    def ask(self, command: str) -> str:
        """The first line of the answer, which is no error."""
        self._file.write(command.encode() + b"\r\n")
        self._file.flush()
        answer = self._line()
        assert answer[:1] in "23", answer
        return answer

    def lines(self, command: str) -> list[str]:
        """The lines that follow, without stuffed dots."""
        self.ask(command)
        found = []
        while (line := self._line()) != ".":
            found.append(line.removeprefix("."))
        return found

    def post(self, article: str) -> str:
        """Post an article, with lines that need no dot."""
        self.ask("POST")
        return self.ask(article.replace("\n", "\r\n") + ".")
