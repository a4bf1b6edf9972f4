"""The rows of the tables of docs/proxies.md, each with what measures its cells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.between.crossing import Route
from tests.between.judgements import cut, resume_without_an_answer, verdicts, verdicts_on_replicas
from tests.between.streams import (
    delay_of_an_event,
    delay_of_an_unbuffered_event,
    end_after_silence,
    end_and_cause_of_a_broken_call,
    end_of_a_broken_call,
    host_and_forwarded_for,
    largest_headers,
    news_of_a_client_that_left,
)

Measure = Callable[[Route], Awaitable[str]]

IN_FRONT: dict[str, Measure] = {
    "an event reaches the client": delay_of_an_event,
    "the server dies during a call: the client sees": end_of_a_broken_call,
    "the client leaves a silent stream: the server learns it": news_of_a_client_that_left,
    "a stream is silent past the limit": end_after_silence,
    "a resume with the same log; with another": verdicts,
    "the cut and the 404 of `enforce`": cut,
    "`Host`; `X-Forwarded-For` at the server": host_and_forwarded_for,
    "largest header line of a request; of a response": largest_headers,
}
"""The rows of the first table but two, which a drain fills."""

BEHIND: dict[str, Measure] = {
    "an event reaches the client": delay_of_an_event,
    "the same with `X-Accel-Buffering: no`": delay_of_an_unbuffered_event,
    "a replica dies during a call: seen, counted": end_and_cause_of_a_broken_call,
    "the client leaves a silent stream: the replica learns it": news_of_a_client_that_left,
    "a stream is silent past the limit": end_after_silence,
    "a resume with the same log; at the other replica, with its own": verdicts_on_replicas,
    "a replica takes a resume and dies: the proxy": resume_without_an_answer,
    "`Host`; `X-Forwarded-For` at the replica": host_and_forwarded_for,
    "largest header line of a request; of a response": largest_headers,
}
"""The rows of the second table."""

MARKING = {resume_without_an_answer, largest_headers}
"""After these nginx takes replicas for dead, and leaves them alone for ten seconds."""
