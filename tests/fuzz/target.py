"""Readers of foreign input, as the fuzzer knows them."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from zlib import crc32

from .mutate import Make


@dataclass(frozen=True, slots=True)
class Target:
    """A reader; `documented` are the errors that it may raise.

    A case may make `base_steps` calls and take `base_mib`, and as much again for each of its bytes as the other two
    limits state. The shares of all targets divide the processor's time.
    """

    name: str
    make: Make
    run: Callable[[bytes], object]
    documented: tuple[type[Exception], ...] = ()
    share: float = 1.0
    base_steps: int = 500_000
    steps_per_byte: int = 20
    base_mib: float = 32.0
    memory_per_byte: int = 400


def case(target: Target, seed: int, number: int) -> bytes:
    """Return the bytes of a case: always the same ones."""
    return target.make(Random(f"{target.name}/{seed}/{number}"))


def pieces(data: bytes) -> list[bytes]:
    """Cut the data as a network may: at places that depend on the data alone."""
    random = Random(crc32(data))
    found, at = [], 0
    usual = random.choice((1, 3, 20, 1000, 100_000))
    while at < len(data):
        if len(found) > 300:
            usual = len(data)
        length = 1 + int(random.expovariate(1 / usual))
        found.append(data[at : at + length])
        at += length
    return found
