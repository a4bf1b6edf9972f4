"""Who showed an id last, across the sessions of an upstream: a bounded table of hints."""

from __future__ import annotations

from array import array

_MOST = 1 << 20
_GENERATIONS = 2
_ENTRY_BYTES = 8


class Owners:
    """Which session last showed an id, for ids that are unique across an upstream.

    A bounded open-addressing table of 64-bit words (40 bits of the id's hash, 24 of the session's
    number), in two generations: when the young one is half full it becomes the old one. Its
    answers are hints; whoever uses one looks into that session's log.
    """

    __slots__ = ("_count", "_mask", "_old", "_old_mask", "_young", "limit")

    _FIRST = 1 << 10
    _PROBES = 4
    NUMBERS = 1 << 24

    def __init__(self, limit: int = _MOST) -> None:
        self.limit = limit
        """Entries of a generation at most; a power of two. A table that is larger shrinks at its next turn."""
        self._mask = self._FIRST - 1
        self._young = array("Q", bytes(8 * self._FIRST))
        self._old = array("Q", bytes(8))
        self._old_mask = 0
        self._count = 0

    def fit(self, held_bytes: int) -> None:
        """Hold no more bytes than this, as far as the smallest table allows, and never more than by default."""
        entries = held_bytes // (_GENERATIONS * _ENTRY_BYTES)
        self.limit = min(max(1 << entries.bit_length() >> 1, self._FIRST), _MOST)

    @property
    def bytes(self) -> int:
        """Memory held."""
        return 8 * (len(self._young) + len(self._old))

    def claim(self, id_word: int, number: int) -> int:
        """Record that session `number` showed the id; returns who showed it last, or -1."""
        table, mask = self._young, self._mask
        tag = id_word >> 24
        slot = id_word & mask
        for _ in range(self._PROBES):
            held = table[slot]
            if not held:
                table[slot] = tag << 24 | number
                self._count += 1
                if self._count > mask >> 1:
                    self._turn()
                return self._find(self._old, self._old_mask, id_word)
            if held >> 24 == tag:
                table[slot] = tag << 24 | number
                return held & (self.NUMBERS - 1)
            slot = (slot + 1) & mask
        table[id_word & mask] = tag << 24 | number
        return self._find(self._old, self._old_mask, id_word)

    def who(self, id_word: int) -> int:
        """The session that last showed the id, or -1."""
        number = self._find(self._young, self._mask, id_word)
        return number if number >= 0 else self._find(self._old, self._old_mask, id_word)

    def _find(self, table: array[int], mask: int, id_word: int) -> int:
        tag = id_word >> 24
        slot = id_word & mask
        for _ in range(self._PROBES):
            held = table[slot]
            if not held:
                return -1
            if held >> 24 == tag:
                return held & (self.NUMBERS - 1)
            slot = (slot + 1) & mask
        return -1

    def _turn(self) -> None:
        size = min(2 * len(self._young), self.limit)
        self._old, self._old_mask = self._young, self._mask
        self._young, self._mask = array("Q", bytes(8 * size)), size - 1
        self._count = 0
