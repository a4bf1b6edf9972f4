"""What one judged resume means, in a sentence for someone who has never seen a fork. Values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.cli.tables import counted, duration, escaped

_GOT = {
    "content_diverged": "got id {got} with other content than before: another log",
    "id_missing": "got messages without ids: another log",
    "session_recycled": "got it from a session that was deleted: another log",
    "successors_skipped": "got id {got}, past what was due",
    "forward_jump": "got id {got}, past what was due",
    "nothing_replayed": "got nothing of what was due",
    "inclusive": "got id {got} itself again",
    "cursor_ignored": "got the log again from id {first}",
    "other_stream": "got id {got}, which is another stream's",
    "other_session": "got id {got}, which is another session's",
    "replayed": "got all of it, in order",
    "continued": "got the next event",
    "idle": "got nothing, and nothing was due",
    "no_baseline": "got an answer that nothing here can be compared with",
    "opaque_ids": "got an id that has no order",
    "ids_absent": "got events without ids",
    "ids_ambiguous": "the same id had been used twice before",
    "encoded": "got an encoded stream, which cannot be read",
    "state_lost": "what it had before is no longer known here",
    "client_left": "left before anything could be judged",
    "upstream_closed": "got a part of it before the server ended the stream",
    "upstream_failed": "the connection to the server failed first",
    "not_found": "was refused with 404",
    "rejected": "was refused with 400, 410, 412, 416 or 422",
    "conflict": "was refused with 409",
    "unsupported": "was refused with 405 or 501",
    "unauthorized": "was refused with 401 or 403",
    "throttled": "was refused with 429",
    "upstream_error": "was refused with a 5xx",
    "not_a_stream": "was answered with something that is no event stream",
    "other": "was refused",
}
"""By reason; every other reason is a fork."""
_FORKED = "got id {got}: another log"
_HONEST = ("not_found", "rejected")
_DONE = {
    "annotate": "The stream was annotated.",
    "cut": "The session was cut.",
}


def sentence(judged: Mapping[str, Any], previous_replica: str | None, replica: str | None) -> str:
    """What was asked for, what came, and what it cost. Values of peers are escaped."""
    got = _GOT.get(judged["reason"], _FORKED).format(
        got=_id(judged["got"]), first=_id(judged["first_id"] or judged["got"])
    )
    head = f"{judged['verdict'].upper()}: the client asked for what follows {_id(judged['cursor'])} and {got}"
    parts = [f"{head} ({judged['reason']}, {judged['certainty']})."]
    if judged["lost"]:
        parts.append(f"{counted(judged['lost'], 'event')} {_be(judged['lost'])} lost.")
    if judged["duplicated"]:
        parts.append(f"{counted(judged['duplicated'], 'event')} came twice.")
    if judged["in_flight"] and judged["verdict"] != "resumed":
        parts.append(
            f"{counted(judged['in_flight'], 'request')} had no answer yet: one that comes now may be another's."
        )
    if judged["reason"] == "idle" and judged["in_flight"]:
        parts.append("A request is in flight, though: a dead stream looks the same.")
    if replica and previous_replica and replica != previous_replica:
        parts.append(f"The replica changed from {_id(previous_replica)} to {_id(replica)}.")
    if judged["reason"] in _HONEST:
        parts.append("The server said so out loud: the client can begin anew.")
    if judged["action"] in _DONE:
        parts.append(_DONE[judged["action"]])
    elif judged["would_cut"]:
        parts.append("In enforce the session would have been cut here.")
    return " ".join(parts)


def away(judged: Mapping[str, Any]) -> str:
    """How long the client was away: the words at the reconnect."""
    return "reconnect" if judged["away_s"] is None else f"{duration(judged['away_s'])} away"


def _id(value: str | None) -> str:
    return "?" if value is None else escaped(value)


def _be(count: int) -> str:
    return "is" if count == 1 else "are"
