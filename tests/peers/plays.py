"""What the tools of the scripted server do: forks, calls that are pending meanwhile, and healthy work.

`forked` shows some events of its log, loses the connection, and answers the resume with another log;
the moment it wrote the first frame of that is kept. The healthy plays break their streams too, and
continue them as a server in good order does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.peers.scripted import Play, Responder, Scene, Session, after
from tests.scenarios.frames import event, priming, result

WRONG = "the answer of another log"
RETRY_MS = 300
"""What a healthy stream asks its client to wait before it comes back."""
FORKED_RETRY_MS = 1000
"""What a stream asks that will fork: what happens sooner was not brought about by one more attempt."""
LATE_RETRY_MS = 2500
"""What `dropped` asks: its client comes back when everything else is over."""
CLEAN, LOST = "clean", "lost"
"""How a healthy stream breaks: as a server that wants to be polled, or as a network does."""


# ---- plays that fork


async def _forked(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """Four events and the loss of the connection; the resume gets another log, of the kind `log`."""
    scene, kind = session.server.scenes[arguments["scene"]], arguments["log"]
    unique = kind == "foreign"
    first, second, third, last = [uuid.uuid4() if unique else session.next() for _ in range(4)]
    another = {
        "restarted": [event(1, "reborn"), result(2, request, WRONG)],
        "misaddressed": [event(1, "reborn"), result(2, "somebody else's", WRONG)],
        "rewritten": [event(third, "rewritten"), result(last, request, WRONG)],
        "foreign": [scene.foreign],
    }[kind]
    session.resumes[str(last)] = partial(_offend, scene, another)
    await to.begin()
    await to.send(priming(first, FORKED_RETRY_MS), event(second, "1"), event(third, "2"), event(last, "last"))
    await scene.consumed.wait()
    to.drop()


async def _offend(scene: Scene, frames: list[bytes], cursor: str, to: Responder) -> None:
    await scene.go.wait()
    await to.begin()
    scene.offended_at = scene.offended_at or time.monotonic()
    await to.send(*frames)
    await to.end()


async def _own(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """Answer at once, under an id that no other event has; `forked` may show it to somebody else."""
    scene = session.server.scenes[arguments["scene"]]
    scene.foreign = result(uuid.uuid4(), request, WRONG)
    await to.begin()
    await to.send(scene.foreign)
    await to.end()


# ---- calls that are pending while another one forks


async def _slow(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """One event, and no answer: the stream stays open."""
    await to.begin()
    await to.send(event(session.next(), "slow"))
    await to.hold()


async def _silent(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """Not even a response head."""
    session.server.scenes[arguments["scene"]].reached.set()
    await to.hold()


async def _dropped(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """The connection is lost, and the client stays away for a while; its resume is never answered."""
    scene = session.server.scenes[arguments["scene"]]

    async def never(cursor: str, to: Responder) -> None:
        await to.hold()

    first, last = session.next(), session.next()
    session.resumes[str(last)] = never
    await to.begin()
    await to.send(priming(first, LATE_RETRY_MS), event(last, "late"))
    await scene.consumed.wait()
    to.drop()
    scene.lost.set()


# ---- healthy plays


async def _answer(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """A priming event, n notifications, the answer."""
    await to.begin()
    await to.send(priming(session.next(), RETRY_MS))
    for i in range(arguments.get("n", 0)):
        await to.send(event(session.next(), f"{arguments['tag']}{i}"))
    await to.send(result(session.next(), request, f"done {arguments.get('tag', '')}"))
    await to.end()


async def _plain(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """An answer that is no stream."""
    content = [{"type": "text", "text": f"done {arguments.get('tag', '')}"}]
    await to.answer(200, {"jsonrpc": "2.0", "id": request, "result": {"content": content}})


async def _broken(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """A stream that breaks in as many ways as `breaks` says, each time after one notification."""
    log: list[tuple[int, bytes]] = []
    breaks: list[str] = list(arguments["breaks"])
    scene = session.server.scenes.get(arguments.get("scene", ""))

    async def show(frame: Callable[[int], bytes], to: Responder) -> None:
        number = session.next()
        log.append((number, frame(number)))
        session.resumes[str(number)] = go_on
        await to.send(log[-1][1])

    async def go_on(cursor: str | None, to: Responder) -> None:
        await to.begin()
        await to.send(*after(log, cursor))
        await show(lambda number: priming(number, RETRY_MS), to)
        if breaks:
            await show(lambda number: event(number, f"{arguments['tag']}{len(breaks)}"), to)
            if breaks.pop(0) == CLEAN:
                await to.end()
            else:
                assert scene is not None
                await scene.consumed.wait()
                to.drop()
            return
        await show(lambda number: result(number, request, f"done {arguments['tag']}"), to)
        await to.end()

    await go_on(None, to)


async def _poke(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """Notifications on the standalone stream; with `away` its connection ends before them."""
    if arguments.get("away") and session.standalone is not None:
        listener, session.standalone = session.standalone, None
        number = session.next()
        session.standalone_log.append((number, priming(number, RETRY_MS)))
        await listener.send(session.standalone_log[-1][1])
        await listener.end()
    for i in range(arguments.get("n", 1)):
        frame = session.notify(f"{arguments['tag']}{i}")
        if session.standalone is not None:
            await session.standalone.send(frame)
    await _plain(session, to, request, arguments)


PLAYS: dict[str, Play] = {
    "forked": _forked,
    "own": _own,
    "slow": _slow,
    "silent": _silent,
    "dropped": _dropped,
    "answer": _answer,
    "plain": _plain,
    "broken": _broken,
    "poke": _poke,
}
"""What each tool does."""
