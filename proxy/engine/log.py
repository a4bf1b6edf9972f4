"""The ids of one stream in one epoch, as two packed arrays of 64-bit words: the id, and its payload's digest.

Invariants: no payload and no id text is kept; a log holds a bounded number of entries, its first ones and
a window of the newest; an id shown only by a priming frame has its place, but no payload.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from enum import Enum

from proxy.engine.digest import PRIMING, same

_BEGINNING = 16
"""Entries at the beginning of a log that its window never drops: a server that replays everything
begins with them, and so does a log begun anew; without them the two look alike."""


class Log:
    """The ids of one stream in one epoch, oldest first: its beginning, and a window of the newest.

    Both together hold `limit` entries. A *place* counts from the first id ever appended, so it stays
    true when the window moves.
    """

    __slots__ = ("epoch", "ids", "run", "start", "total", "words")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.ids = array("Q")
        self.words = array("Q")
        self.start = 0
        """Where, behind the beginning, the oldest entry of the window stands once it is a ring."""
        self.total = 0
        """Entries appended ever: the place of the next one."""
        self.run = 0
        """Consecutive +1 steps of bare integers up to the newest id."""

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, id_word: int, word: int, limit: int) -> bool:
        """Add an entry; returns whether the log grew (False: the oldest entry was overwritten)."""
        ids = self.ids
        self.total += 1
        if len(ids) < limit:
            ids.append(id_word)
            self.words.append(word)
            return True
        beginning = self._beginning
        at = beginning + self.start
        ids[at] = id_word
        self.words[at] = word
        self.start = (self.start + 1) % (limit - beginning)
        return False

    @property
    def _beginning(self) -> int:
        return min(_BEGINNING, len(self.ids) // 4)

    @property
    def oldest(self) -> int:
        """The place from which on every entry is held."""
        size = len(self.ids)
        return 0 if self.total == size else self.total - size + self._beginning

    def may_hold(self, needle: bytes) -> bool:
        """Whether this id, `packed`, may stand in the window; False is certain. A quick look before a close one."""
        return needle in self.ids.tobytes()

    def has(self, id_word: int) -> bool:
        """Whether this id stands in the window."""
        return next(_occurrences(self.ids, id_word), None) is not None

    def places(self, id_word: int) -> list[int]:
        """Where this id stands, oldest first; empty if it does not."""
        beginning = self._beginning
        window = len(self.ids) - beginning
        first = self.total - window
        return sorted(
            first + (at - beginning - self.start) % window if at >= beginning else at
            for at in _occurrences(self.ids, id_word)
        )

    def word(self, place: int) -> int:
        """The digest word at `place`, which must still be held."""
        return self.words[self._index(place)]

    def _index(self, place: int) -> int:
        beginning = self._beginning
        if place < beginning:
            return place
        window = len(self.ids) - beginning
        return beginning + (self.start + place - self.total + window) % window

    def after(self, place: int) -> list[tuple[int, int]]:
        """The (id, digest) words after `place`, in order; nothing between them may be forgotten."""
        first = max(place + 1, self.oldest)
        if self.total == len(self.ids):
            return list(zip(self.ids[first:], self.words[first:], strict=True))
        turn = self._beginning + self.start  # where the window's oldest entry stands
        skip = first - self.oldest
        ids = (self.ids[turn:] + self.ids[self._beginning : turn])[skip:]
        words = (self.words[turn:] + self.words[self._beginning : turn])[skip:]
        return list(zip(ids, words, strict=True))

    def payload_count(self, word: int) -> int:
        """Under how many entries this payload stands."""
        return sum(1 for _ in _occurrences(self.words, word))


def packed(word: int) -> bytes:
    """A word as it stands in an array."""
    return word.to_bytes(8, sys.byteorder)


def _occurrences(words: array[int], word: int) -> Iterator[int]:
    """Where a word stands: a search of the bytes, ten times faster than one that boxes every word."""
    data = words.tobytes()
    needle = packed(word)
    at = data.find(needle)
    while at >= 0:
        if at % 8 == 0:
            yield at // 8
        at = data.find(needle, at + 1)


class Known(Enum):
    """How an id stands in a log."""

    NO = "no"
    PRIMED = "primed"
    """Only by priming frames."""
    SAME = "same"
    DIFFERENT = "different"
    UNSURE = "unsure"
    """As a message whose payload cannot be compared with this one."""
    AMBIGUOUS = "ambiguous"
    """Several times, with different payloads."""


def known(log: Log, id_word: int, word: int) -> tuple[Known, int]:
    """How `id_word` with payload `word` stands in `log`, and its (last fitting) place, else -1."""
    places = log.places(id_word)
    if not places:
        return Known.NO, -1
    stored = [(log.word(place), place) for place in places]
    messages = [(other, place) for other, place in stored if other != PRIMING]
    if not messages:
        return Known.PRIMED, places[-1]
    answers = {place: same(other, word) for other, place in messages}
    equal = [place for place, answer in answers.items() if answer]
    if equal:
        return Known.SAME, equal[-1]
    if len({other for other, _ in messages}) > 1:
        return Known.AMBIGUOUS, messages[-1][1]
    return (Known.UNSURE if None in answers.values() else Known.DIFFERENT), messages[-1][1]
