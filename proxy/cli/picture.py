"""The picture that explains a fork, in characters: ids over time, before a reconnect and after it.

Up is a newer id, right is later. The two halves have a time scale each; the id axis has a row for each
id that matters (the cursor `L`, the newest id `H`, what came) and as many between them as help. Values
of the admin interface in, lines out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from math import log2
from textwrap import wrap
from typing import Any, NamedTuple

from proxy.cli.sentences import away
from proxy.cli.tables import Screen, clock, escaped

_MOST_ROWS = 15
_LABEL = 14
_NO_BREAK = "\xa0"
_BAD = {"fork": "of another log", "crossed": "not of this stream", "gap": "lost"}
"""What the mark for harm means, by verdict. In the first two all is so from the deciding event on."""
_OTHERS = ("fork", "crossed")


class _Glyphs(NamedTuple):
    before: str
    good: str
    twice: str
    bad: str
    due: str
    guide: str
    axis: str
    jump: str
    bar: str
    floor: str
    corner: str
    foot: str


_UNICODE = _Glyphs("○", "●", "=", "x", "░", "┄", "│", "⋮", "║", "─", "└", "╨")
_ASCII = _Glyphs("o", "*", "=", "x", ".", "-", "|", ":", "#", "-", "+", "#")
_STYLES = {"x": "red", "=": "yellow", "●": "green", "*": "green", "░": "dim", "┄": "dim"}


class Point(NamedTuple):
    """An event: when, which place in the ids, and how it looks."""

    at: float
    position: int
    glyph: str


class Resume(NamedTuple):
    """One judged resume, and the connection the client had before on the same stream."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any]

    @property
    def judged(self) -> dict[str, Any]:
        """The judgement, as the interface has it."""
        return {**self.after["judged"]}


def picture(resume: Resume, on: Screen) -> list[str]:
    """The lines of the picture; none if nothing is known that has a place in it."""
    glyphs = _UNICODE if on.unicode else _ASCII
    before = [Point(at, int(position), glyphs.before) for at, position in _points(resume.before)]
    after = _after(resume, glyphs)
    marks = _marks(resume.judged)
    if not before and not after and not marks:
        return []
    scale = _Scale([*before, *after], marks)
    label = max([len(text) for text in scale.labels.values()] or [0])
    half = (on.width - label - 5) // 2
    left, right = _Half(before, half, scale), _Half(after, half, scale)
    _draw(left, right, resume, scale, glyphs)
    lines = [_heading(resume, label, half, glyphs)]
    for row in reversed(range(scale.rows)):
        axis = glyphs.jump if row in scale.jumps else glyphs.axis
        cells = f"{left.text(row)}{glyphs.bar}{right.text(row)}".rstrip()
        lines.append(f"{scale.labels.get(row, ''):>{label}} {axis}{_painted(cells, on)}".rstrip())
    floor = glyphs.floor * half
    lines.append(f"{'':{label}} {glyphs.corner}{floor}{glyphs.foot}{floor}")
    lines.append(_times(resume, label, half))
    legend = _legend(resume, left.used | right.used, glyphs)
    indent = " " * (label + 3)
    wrapped = wrap(legend, on.width, initial_indent=indent, subsequent_indent=indent)
    return lines + [line.replace(_NO_BREAK, " ") for line in wrapped]


def _points(connection: Mapping[str, Any] | None) -> Sequence[tuple[float, float]]:
    return [] if connection is None else [*connection["points"]]


def _after(resume: Resume, glyphs: _Glyphs) -> list[Point]:
    """What came on the resumed connection, each event as what it was."""
    judged, cursor = resume.judged, resume.judged["cursor_position"]
    forked = judged["verdict"] in _OTHERS
    after = []
    for at, position in _points(resume.after):
        glyph = glyphs.good
        if forked and at >= judged["at"]:
            glyph = glyphs.bad
        elif cursor is not None and position <= cursor:
            glyph = glyphs.twice
        after.append(Point(at, int(position), glyph))
    if forked and judged["got_position"] is not None and all(each.glyph != glyphs.bad for each in after):
        after.append(
            Point(judged["at"], int(judged["got_position"]), glyphs.bad)
        )  # it came, and was held back
    return after


def _marks(judged: Mapping[str, Any]) -> dict[int, str]:
    """The places that have a name, and what stands beside the axis there."""
    named: dict[int, tuple[list[str], str]] = {}
    got = judged["got"] if judged["verdict"] != "resumed" else None
    for name, place, id in (
        ("H", judged["high_position"], judged["high"]),
        ("L", judged["cursor_position"], judged["cursor"]),
        ("got", judged["got_position"], got),
    ):
        if place is not None and id is not None:
            named.setdefault(int(place), ([], id))[0].append(name)
    return {place: f"{'='.join(names)} {escaped(id, _LABEL)}" for place, (names, id) in named.items()}


class _Scale:
    """The axis of ids: which row a place is in. Its steps differ, so that what matters can be told apart."""

    def __init__(self, points: Sequence[Point], marks: Mapping[int, str]) -> None:
        places = [point.position for point in points]
        self._keys = sorted({*marks, *_ends(points)})
        spans = [high - low for low, high in pairwise(self._keys)]
        inside = [any(low < each < high for each in places) for low, high in pairwise(self._keys)]
        heights = [min(span, 2) for span in spans]
        _grow(heights, spans, inside)
        self._feet = [sum(heights[:at]) for at in range(len(self._keys))]
        self.rows = self._feet[-1] + 1
        self.labels = {self.row(place): text for place, text in marks.items()}
        """By row."""
        self.jumps = {
            row
            for at, (span, some) in enumerate(zip(spans, inside, strict=True))
            if span > 3 * heights[at] and not some
            for row in range(self._feet[at] + 1, self._feet[at + 1])
        }
        """The rows where the axis leaves many ids out."""

    def row(self, place: int) -> int:
        """Counted from the bottom."""
        for at, (low, high) in enumerate(pairwise(self._keys)):
            if low <= place <= high:
                height = self._feet[at + 1] - self._feet[at]
                return self._feet[at] + -((low - place) * height // (high - low))
        return 0


def _ends(points: Sequence[Point]) -> set[int]:
    """The lowest and the highest place of each kind of points."""
    ends: set[int] = set()
    for _, group in groupby(sorted(points, key=lambda each: each.glyph), key=lambda each: each.glyph):
        places = [each.position for each in group]
        ends |= {min(places), max(places)}
    return ends


def _grow(heights: list[int], spans: Sequence[int], inside: Sequence[bool]) -> None:
    """Give rows to the steps with points in them, first where most ids share one, while there are some."""
    while sum(heights) < _MOST_ROWS - 1:
        shares = [
            log2(span) / height if some and height < span else 0.0
            for height, span, some in zip(heights, spans, inside, strict=True)
        ]
        if not any(shares):
            return
        heights[shares.index(max(shares))] += 1


class _Half:
    """One side of the reconnect: rows of cells, with a time scale of its own."""

    def __init__(self, points: Sequence[Point], width: int, scale: _Scale) -> None:
        self._points, self._scale, self.width = points, scale, width
        self._cells = [[" "] * width for _ in range(scale.rows)]
        self.used: set[str] = set()
        """The glyphs that stand for events, for the legend."""
        times = [point.at for point in points]
        self._start, self._end = (min(times), max(times)) if times else (0.0, 0.0)

    def text(self, row: int) -> str:
        """A row of it."""
        return "".join(self._cells[row])

    def fill(self, row: int, glyph: str) -> None:
        """A whole row of one glyph."""
        self._cells[row] = [glyph] * self.width
        self.used.add(glyph)

    def mark(self, row: int, column: int, glyph: str) -> None:
        """One glyph."""
        self._cells[row][column] = glyph
        self.used.add(glyph)

    def write(self, row: int, column: int, text: str) -> None:
        """Words, cut where the half ends."""
        self._cells[row][column : column + len(text)] = text[: self.width - column]

    def column(self, at: float) -> int:
        """Where a time is. Points leave a column free on either side."""
        if self._end <= self._start:
            return 1
        share = min(max((at - self._start) / (self._end - self._start), 0.0), 1.0)
        return 1 + round(share * (self.width - 3))

    def plot(self) -> None:
        """The points, over whatever is there."""
        for point in self._points:
            self.mark(self._scale.row(point.position), self.column(point.at), point.glyph)


def _draw(left: _Half, right: _Half, resume: Resume, scale: _Scale, glyphs: _Glyphs) -> None:
    judged = resume.judged
    cursor, high = judged["cursor_position"], judged["high_position"]
    if cursor is not None and high is not None and judged["outstanding"]:
        for row in range(scale.row(cursor) + 1, scale.row(high) + 1):
            right.fill(row, glyphs.due)
        if judged["lost"]:
            right.write(
                (scale.row(cursor) + 1 + scale.row(high)) // 2, right.width // 3, f" {judged['lost']} lost "
            )
    if cursor is not None:
        left.fill(scale.row(cursor), glyphs.guide)
        right.fill(scale.row(cursor), glyphs.guide)
    if judged["verdict"] == "gap":
        _draw_lost(right, resume, scale, glyphs)
    left.plot()
    right.plot()
    if judged["verdict"] == "refused":
        row = scale.row(cursor) if cursor is not None else scale.rows // 2
        right.write(row, 1, f"{glyphs.bad} refused: {escaped(judged['reason'], 24)} ")


def _draw_lost(right: _Half, resume: Resume, scale: _Scale, glyphs: _Glyphs) -> None:
    """The ids that never came: a column of marks where the stream passed over them."""
    judged = resume.judged
    came = [int(position) for at, position in _points(resume.after) if at < judged["at"]]
    low = max((place for place in (judged["cursor_position"], *came) if place is not None), default=None)
    got, high = judged["got_position"], judged["high_position"]
    last = high if got is None or (high is not None and low is not None and low < high < got) else got - 1
    if low is None or last is None:
        return
    for row in sorted({scale.row(place) for place in _some(low + 1, last)}):
        right.mark(row, right.column(judged["at"]), glyphs.bad)


def _some(first: int, last: int) -> list[int]:
    """The places from `first` to `last`, or as many of them as a picture can have rows."""
    step = max((last - first) // (4 * _MOST_ROWS), 1)
    return [*range(first, last, step), last] if first <= last else []


def _heading(resume: Resume, label: int, half: int, glyphs: _Glyphs) -> str:
    """The replicas, and how long the client was away."""
    gone = away(resume.judged)
    before = escaped((resume.before or {}).get("replica") or "", half - len(gone) - 2)
    after = escaped(resume.judged["replica"] or "", half - 1)
    return f"{'':{label + 2}}{before}{gone:>{half - 1 - len(before)}} {glyphs.bar} {after}".rstrip()


def _times(resume: Resume, label: int, half: int) -> str:
    """The times at the ends of both halves."""
    ends = []
    for connection in (resume.before, resume.after):
        points = _points(connection)
        first, last = (clock(points[0][0]), clock(points[-1][0])) if points else ("", "")
        if connection is resume.after and not points:
            first = clock(resume.after["opened_at"])
        last = last if last != first else ""
        ends.append(f" {first}{last:>{half - 1 - len(first)}}")
    return f"{'':{label + 2}}{ends[0]} {ends[1]}".rstrip()


def _legend(resume: Resume, used: set[str], glyphs: _Glyphs) -> str:
    """What the marks of this picture mean; a line may end at any plain space of it."""
    meanings = (
        (glyphs.before, "before"),
        (glyphs.good, "came after"),
        (glyphs.twice, "came twice"),
        (glyphs.bad, _BAD.get(resume.judged["verdict"], "")),
        (glyphs.due, "due"),
    )
    return "  ".join(f"{glyph} {text}".replace(" ", _NO_BREAK) for glyph, text in meanings if glyph in used)


def _painted(cells: str, on: Screen) -> str:
    return "".join(on.paint("".join(group), style) for style, group in groupby(cells, key=_STYLES.get))
