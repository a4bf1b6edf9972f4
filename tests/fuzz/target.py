"""What a fuzzer is: a check of one input that raises on a finding, and what its inputs are made of.

A check holds for any bytes. What it varies beside them, such as the cuts of a stream, it draws from a generator
seeded by the input itself, so that an input is the whole reproduction of what it found.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")

SLOW_S = 1.0
"""Processor time that nothing of 64 KiB may take, with coverage instrumented; the common case takes 1 ms."""


class Finding(AssertionError):
    """A law does not hold."""


@dataclass(frozen=True, slots=True)
class Target:
    """One fuzzer: `check` raises on a finding; `words` are what inputs are made of beside arbitrary bytes."""

    check: Callable[[bytes], None]
    words: Sequence[bytes]
    largest: int = 4096


def must(holds: bool, law: str, *shown: object) -> None:
    """Raise a Finding that names the law and shows what breaks it, unless it holds."""
    if not holds:
        raise Finding(f"{law}: {' | '.join(repr(value)[:2000] for value in shown)}")


def same(what: str, found: object, wanted: object) -> None:
    """Raise a Finding unless both are equal."""
    must(found == wanted, f"{what} differs (found | wanted)", found, wanted)


def chance(data: bytes) -> random.Random:
    """The generator of what an input leaves open."""
    return random.Random(zlib.crc32(data))


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """`data` cut at these offsets, in order."""
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def cuttings(data: bytes, single_bytes: int = 512) -> Iterator[list[int]]:
    """Where to cut: nowhere, thrice at random, and at every byte of a short input."""
    draw = chance(data)
    yield []
    for most in (2, 8, 32):
        yield sorted(draw.randint(0, len(data)) for _ in range(draw.randint(1, most)))
    if len(data) <= single_bytes:
        yield list(range(1, len(data)))


@contextmanager
def bounded(what: str, limit_s: float = SLOW_S) -> Iterator[None]:
    """A Finding if this takes more processor time."""
    began = time.thread_time()
    yield
    took = time.thread_time() - began
    must(took < limit_s, f"{what} took {took:.2f} s of processor time, {limit_s:g} s allowed")
