"""The channel between a worker and its controller: over any lost connections, each line arrives once and in order."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.cluster.reliable_channel import MOST_UNACKNOWLEDGED, ReliableChannel


class Ends:
    """Two ends, and what is on its way between them by the connection that they have."""

    def __init__(self) -> None:
        self.received: tuple[list[bytes], list[bytes]] = ([], [])
        self.ends = (ReliableChannel(self.received[0].append), ReliableChannel(self.received[1].append))
        self.ways: tuple[deque[bytes], deque[bytes]] = (deque(), deque())  # to each end

    def connect(self, late: tuple[int, int] = (0, 0)) -> None:
        """A new connection; of what was under way by the old one, only so many lines to each end arrive, later."""
        for at, lines in enumerate(late):
            while len(self.ways[at]) > lines:
                self.ways[at].pop()
        for at, end in enumerate(self.ends):
            end.attach(self.ways[1 - at].append)

    def cut(self, left: tuple[int, int] = (0, 0)) -> None:
        """The connection breaks; so many lines still arrive at each end."""
        for end in self.ends:
            end.detach()
        for at, lines in enumerate(left):
            for _ in range(min(lines, len(self.ways[at]))):
                self.ends[at].feed(self.ways[at].popleft())
            self.ways[at].clear()

    def move(self, at: int, lines: int = 1) -> None:
        for _ in range(min(lines, len(self.ways[at]))):
            self.ends[at].feed(self.ways[at].popleft())

    def settle(self) -> None:
        while any(self.ways):
            self.move(0)
            self.move(1)


STEPS = st.one_of(
    st.tuples(st.just("tell"), st.integers(0, 1), st.integers(1, 2 * MOST_UNACKNOWLEDGED)),
    st.tuples(st.just("move"), st.integers(0, 1), st.integers(1, 200)),
    st.tuples(st.just("cut"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("connect"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("beat"), st.integers(0, 1), st.just(0)),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_each_line_is_delivered_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    """Lines are said, arrive, are late or lost with connections, in any order; a last connection brings the rest."""
    both = Ends()
    said: tuple[list[bytes], list[bytes]] = ([], [])
    for what, first, second in steps:
        if what == "tell":
            for _ in range(second):
                line = b'{"line":%d}\n' % len(said[first])
                said[first].append(line)
                both.ends[first].send(line)
        elif what == "move":
            both.move(first, second)
        elif what == "cut":
            both.cut((first, second))
        elif what == "connect":
            both.connect((first, second))
        else:
            both.ends[first].beat()
        for at in (0, 1):
            assert both.received[1 - at] == said[at][: len(both.received[1 - at])]
    both.connect()
    both.settle()
    assert both.received == (said[1], said[0])
    assert all(end.all_acknowledged for end in both.ends)


def test_only_the_newest_replaceable_line_is_sent() -> None:
    """Without a connection, of ten passing lines one waits, behind what was said before it; later all are said."""
    both = Ends()
    for number in range(10):
        both.ends[0].send(b"lasting %d\n" % number)
        both.ends[0].send(b"passing %d\n" % number, replaceable=True)
    both.connect()
    both.settle()
    both.ends[0].send(b"passing 10\n", replaceable=True)
    both.ends[0].send(b"passing 11\n", replaceable=True)
    both.settle()
    assert both.received[1] == [
        *(b"lasting %d\n" % number for number in range(10)),
        b"passing 9\n",
        b"passing 10\n",
        b"passing 11\n",
    ]


def test_unacknowledged_lines_are_bounded() -> None:
    """Of a thousand lines to an end that reads nothing, few are sent, and the rest once it reads again."""
    both = Ends()
    both.connect()
    both.settle()
    for number in range(1000):
        both.ends[0].send(b"%d\n" % number)
    assert len(both.ways[1]) == MOST_UNACKNOWLEDGED
    assert not both.ends[0].all_acknowledged
    both.settle()
    assert both.received[1] == [b"%d\n" % number for number in range(1000)]


def test_a_line_may_hold_any_byte_but_its_end() -> None:
    """Blanks, and words of the link's own, are the line's."""
    both = Ends()
    both.connect()
    both.ends[1].send(b"heard 7 1 \n")
    both.settle()
    assert both.received[0] == [b"heard 7 1 \n"]


WRONG = [b"heard 3\n", b"heard -1\n", b"3 x\n", b"heard\n", b"\n", b"x y\n", b"heard 0\n", b"1_0 x\n", b"\xff x\n"]


@pytest.mark.parametrize("line", [*WRONG, b"9" * 400 + b" x\n", b"heard " + b"9" * 5000 + b"\n"])
def test_lines_of_another_channel_are_rejected(line: bytes) -> None:
    """It has sent two lines, of which one has arrived, and has received one. The refusal is a short line."""
    both = Ends()
    both.connect()
    both.settle()
    both.ends[0].send(b"a\n")
    both.ends[1].send(b"b\n")
    both.settle()
    both.ends[0].send(b"c\n")
    with pytest.raises(ValueError, match=r"\Acontrol link: .{10,100}\Z"):
        both.ends[0].feed(line)


def test_unanswered_beats_are_counted_until_the_peer_answers() -> None:
    """Beats without an answer are counted; one of the other end's is an answer as a line is. Acknowledgements, too."""
    both = Ends()
    for number in range(1, 4):
        both.ends[0].beat()
        assert both.ends[0].silent_beats == number
    both.connect()
    both.settle()
    assert both.ends[0].silent_beats == 0
    both.ends[0].beat()
    both.settle()
    assert both.ends[0].silent_beats == 1
    both.ends[1].beat()
    both.settle()
    assert both.ends[0].silent_beats == 0
    both.ends[0].beat()
    both.ends[0].send(b"x\n")
    both.settle()
    assert both.ends[0].silent_beats == 0
