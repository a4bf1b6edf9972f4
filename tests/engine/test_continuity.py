"""The table of continuity, row by row, and pairs of resumes that look alike and are not.

Every case runs whole, byte by byte, cut at every byte, with the start of a further frame behind it, with both
line ends, and with every message written by another serialiser: the judgement is always the same.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.engine.findings import PRODUCIBLE
from tests.engine.continuity_cases import CASES, Case
from tests.engine.drive import Cut, Drive, Seen, crlf, cut_at, reserialised, single_bytes, whole

UNFINISHED = b'id: 999\ndata: {"method":"no'


def run(case: Case, cut: Cut = whole, *behind: bytes) -> list[Seen]:
    """The judgements of a case with its resumed stream cut like this."""
    drive = Drive(ids=case.ids)
    drive.initialize()
    if case.shown:
        drive.show(*case.shown)
    if case.before is not None:
        case.before(drive)
    if case.resume is not None:
        case.resume(drive, case.cursor)
        return drive.verdicts
    connection = drive.get(case.cursor)
    connection.send(*case.then, *behind, cut=cut)
    drive.pass_time(case.silent_s)
    if case.end is not None:
        connection.end(case.end)
    return drive.verdicts


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_judgement_is_the_same_however_the_stream_is_cut(case: Case) -> None:
    """Whole, byte by byte, cut at every byte, and with the start of a further frame behind it."""
    expected = [] if case.expect is None else [case.expect]
    other_end = replace(case, then=tuple(crlf(each) for each in case.then))
    for this in (case, other_end):
        assert run(this) == expected
        assert run(this, single_bytes) == expected
        assert run(this, whole, UNFINISHED) == expected
        assert run(this, single_bytes, UNFINISHED) == expected
    length = sum(map(len, other_end.then))
    assert [at for at in range(1, length) if run(other_end, cut_at(at)) != expected] == []


REWRITABLE = [case for case in CASES if case.rewritable and b'data: {"' in b"".join(case.then)]


@pytest.mark.parametrize("case", REWRITABLE, ids=str)
def test_the_judgement_is_the_same_whoever_serialises(case: Case) -> None:
    """Key order, white space and an explicit null are no other payload."""
    rewritten = replace(case, then=tuple(reserialised(each) for each in case.then))
    assert rewritten.then != case.then
    assert run(rewritten) == ([] if case.expect is None else [case.expect])


def test_the_table_produces_every_judgement_there_is() -> None:
    """Each verdict, reason and certainty has a case; what a store has lost needs a store."""
    produced = {case.expect[:3] for case in CASES if case.expect is not None}
    possible = {(verdict.value, reason.value, certainty.value) for verdict, reason, certainty in PRODUCIBLE}
    assert possible - produced == {("unverifiable", "state_lost", "suspected")}
    assert produced <= possible


def test_cases_have_names_of_their_own() -> None:
    """A name in a failure leads to one row."""
    assert len({case.name for case in CASES}) == len(CASES)
