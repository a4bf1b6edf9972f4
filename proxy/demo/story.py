"""The story of the demo from beginning to end, told while it happens, and whether it ended as it should."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from proxy.demo.acts import Resume, broken_call, other_customer, settle
from proxy.demo.children import DemoFailed
from proxy.demo.customer import visit
from proxy.demo.screen import Screen
from proxy.demo.stage import VERDICTS, Stage, set_up

SAME_REPLICA = (
    "The network drops a stream; the resume reaches the same replica",
    "Ana asks replica A for her balance. Her connection breaks; the SDK comes back with the id of the last"
    " event it saw, Last-Event-ID, and asks for the rest.",
)
OTHER_REPLICA = (
    "The same again, but the resume reaches the other replica",
    "Replica B never saw this session and adopts it: 200, a well-formed stream, and a log in which those"
    " ids belong to Bob, another customer.",
)
WAITING = "the client waits a moment before it comes back …"
AT_ONCE_S = 1.0
"""The client's own pause before it resumes is part of it."""
CAUGHT = (
    "Caught. What to do: route each session to one replica (sticky routing on Mcp-Session-Id), or give the"
    " replicas one event store."
)
KEPT = "Everything is still running, until Ctrl-C. In another terminal, as in an incident:"
INSTEAD = "To see the call fail at once instead: forkwatch demo --mode enforce"
WATCH = (
    f'Watch for it: {VERDICTS}{{verdict="fork"}} under /metrics on the status port, and resume.judged'
    " in the log."
)


async def tell(mode: str, screen: Screen, *, keep: bool = False) -> list[str]:
    """Play both acts with the proxy in `mode`. What went otherwise than it should, one line each; [] is good.

    `keep`: then leave everything running, until the task is cancelled, for whoever wants to look.
    Raises DemoFailed, alone or in a group, when the story cannot go on.
    """
    screen.title()
    screen.progress("starting two replicas and forkwatch …")
    async with set_up(mode) as stage, visit("ana", stage.forkwatch.url) as ana:
        await settle(stage)
        screen.act(1, *SAME_REPLICA)
        screen.progress(WAITING)
        healthy = await broken_call(stage, ana, stage.a)
        _show(screen, healthy)
        await other_customer(stage, "bob")
        screen.act(2, *OTHER_REPLICA)
        screen.progress(WAITING)
        forked = await broken_call(stage, ana, stage.b)
        _show(screen, forked)
        problems = [*_healthy(healthy), *_caught(mode, forked)]
        if keep and not problems:
            screen.commands(KEPT, _commands(stage, str(forked.judged["session"])))
            await asyncio.get_running_loop().create_future()
    screen.progress("ending what was started …")
    if not problems:
        screen.paragraph(CAUGHT, "bold")
        screen.paragraph(WATCH)
        if forked.wrong:
            screen.paragraph(INSTEAD)
    return problems


def _command() -> str:
    """How to run this program from where the demo was started."""
    if shutil.which("forkwatch"):
        return "forkwatch"
    beside = Path(sys.argv[0])
    return str(beside) if beside.name == "forkwatch" else f"{sys.executable} -m proxy"


def _commands(stage: Stage, session: str) -> list[tuple[str, str]]:
    """What an engineer would look at now, in this order, and why."""
    forkwatch = stage.forkwatch
    run, admin = _command(), f"--admin {forkwatch.admin_url.removeprefix('http://')}"
    return [
        (
            f"curl -s {forkwatch.status_url}/metrics | grep 'verdict=\"fork\"' | grep -v ' 0.0'",
            "what the alert saw",
        ),
        (f"{run} status {admin}", "is it broken now, and for which upstream"),
        (f"{run} sessions --verdict fork {admin}", "for whom"),
        (f"{run} session {session} {admin}", "what happened: the picture"),
        (f"{run} tail --session {session} -f {forkwatch.child.output}", "the log of that session"),
        (f"{run} policy enforce --ttl 1h {admin}", "cut such sessions from now on, for an hour"),
        (forkwatch.admin_url, "the same in a browser, live"),
    ]


def _show(screen: Screen, resume: Resume) -> None:
    screen.picture(resume)
    answer = resume.answer
    if answer.failed:
        when = "at once" if resume.answered_s < AT_ONCE_S else f"after {resume.answered_s:.0f} s"
        screen.client(f'the call failed {when}: "{answer.text}"', good=resume.verdict[0] == "fork")
    elif resume.wrong:
        screen.client(f'"{answer.text}": a success, no warning, and wrong', good=False)
    else:
        screen.client(f'"{answer.text}", the right answer', good=True)
    screen.wire([comment for attachment in resume.resumed for comment in attachment.comments])
    screen.judged(resume)


def _healthy(resume: Resume) -> list[str]:
    problems = []
    if resume.verdict[0] != "resumed":
        problems.append(f"the healthy resume was judged {'/'.join(resume.verdict)}, not resumed")
    if resume.wrong or resume.answer.failed:
        problems.append(f"the healthy resume brought the client {resume.answer.text!r}")
    if resume.counted != {resume.verdict: 1}:
        problems.append(f"the healthy resume moved the verdict counters by {resume.counted}")
    return problems


def _caught(mode: str, resume: Resume) -> list[str]:
    problems = []
    if resume.verdict[0] != "fork":
        problems.append(f"the fork was judged {'/'.join(resume.verdict)}, not fork")
    if resume.counted.get(resume.verdict) != 1:
        problems.append(f"the fork moved the verdict counters by {resume.counted}")
    comments = [comment for attachment in resume.resumed for comment in attachment.comments]
    match mode:
        case "enforce" if not (resume.answer.failed and "Session terminated" in resume.answer.text):
            problems.append(
                f"forkwatch did not end the call in enforce; the client got {resume.answer.text!r}"
            )
        case "annotate" if not any("verdict=fork" in comment for comment in comments):
            problems.append("forkwatch did not annotate the stream")
        case "observe" if comments:
            problems.append("forkwatch changed the stream in observe")
    return problems


def failures(error: DemoFailed | ExceptionGroup[Exception]) -> list[str]:
    """What the DemoFailed in what `tell` raises say, one line each. Raises the rest of a group again."""
    if isinstance(error, DemoFailed):
        return [str(error)]
    ours, rest = error.split(DemoFailed)
    if rest is not None:
        raise rest
    return [] if ours is None else [line for inner in ours.exceptions for line in failures(inner)]
