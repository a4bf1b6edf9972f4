"""A model of an MCP server and of what its clients do, byte by byte, on the engine without sockets.

The server keeps one log for each stream, with ids of one counter; it replays exactly what follows a cursor.
It may restart with an empty memory, which is the fork. Until then all it does is healthy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.engine.digest import id_word
from proxy.engine.findings import Ending
from proxy.engine.heads import Answer
from proxy.engine.ledger import Baseline
from tests.engine.drive import event, result
from tests.engine.shell import STREAM, Client, Phase, Shell, body_of

NOT_FOUND = Answer(404, False)


@dataclass
class ServerStream:
    """One logical stream: its log, and the request it answers if it is a call's."""

    request: int | None = None
    log: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(eq=False)
class Link:
    """One exchange as the server sees it: what it has written and the proxy has not read yet."""

    client: Client
    request: int | None = None
    uploaded: bool = False
    stream: ServerStream | None = None
    unread: bytearray = field(default_factory=bytearray)
    reborn: bool = False
    """It resumes a cursor that the server issued before its restart, known to the proxy."""


class Server:
    """One session's server side, and the exchanges under way in it."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.links: list[Link] = []
        self.streams: list[ServerStream] = []
        self.standalone = ServerStream()
        self.counter = 0
        self.incarnation = 0
        self.forked = False
        self.alive = False
        self.requests = 0
        self.clients_before = 0
        """Clients that the newest `initialize` came after."""

    # ---- incarnations

    def initialize(self, carry: bool) -> None:
        """The client begins anew, and the server issues the same id; what was is over, and said to be."""
        for link in self.open_links():
            self.lose(link)
        self.clients_before = len(self.shell.clients)
        self.shell.open_session(carry="s1" if carry else None)
        self._empty()
        self.forked = False
        self.alive = True

    def restart(self) -> None:
        """The server loses its memory and its connections, yet goes on to serve the session: the fork."""
        for link in self.open_links():
            if link.client.phase is Phase.STREAMING:
                self.lose(link)
        self._empty()
        self.forked = True

    def _empty(self) -> None:
        self.streams = []
        self.standalone = ServerStream()
        self.counter = 0
        self.incarnation += 1

    def lose(self, link: Link) -> None:
        """The upstream's connection breaks."""
        link.client.end(Ending.UPSTREAM_FAILED)

    # ---- requests

    def open_links(self) -> list[Link]:
        """The exchanges under way."""
        self.links = [link for link in self.links if link.client.open]
        return list(self.links)

    def post(self) -> Link:
        """A call begins; its body is still coming."""
        self.requests += 1
        link = Link(self.shell.begin("POST"), request=self.requests)
        self.links.append(link)
        return link

    def upload(self, link: Link, too_large: bool) -> None:
        """The body of a call has come."""
        link.uploaded = True
        body = body_of(link.request or 0)
        if too_large:
            link.request = None
        link.client.uploaded(None if too_large else body)

    def get(self, cursor: int | None) -> Link:
        """A GET, which with a cursor is a resume."""
        link = Link(self.shell.begin("GET", cursor=cursor), uploaded=True)
        self.links.append(link)
        return link

    def respond(self, link: Link, as_stream: bool) -> None:
        """The server answers: a call by a stream or in JSON, a GET by the stream it asks for."""
        client = link.client
        if not self.alive:
            client.responded(NOT_FOUND).end()
        elif client.request.method == "GET":
            self._attach(link)
        elif as_stream:
            link.stream = ServerStream(link.request)
            self.streams.append(link.stream)
            client.responded(STREAM)
        else:
            client.responded(Answer(200, False)).end()

    def _attach(self, link: Link) -> None:
        cursor = link.client.request.cursor
        if cursor is None:
            link.stream = self.standalone
            link.client.responded(STREAM)
            return
        stream = self._stream_of(int(cursor))
        if stream is None and not self.forked:
            link.client.responded(NOT_FOUND).end()
            return
        session = link.client.exchange.session
        found = None if session is None else session.locate(id_word(cursor))
        link.stream = stream or ServerStream()
        link.reborn = stream is None and isinstance(found, Baseline) and not session_ended(link)
        replay = [frame for number, frame in link.stream.log if number > int(cursor)]
        link.unread += b"".join(replay)
        link.client.responded(STREAM)

    def _stream_of(self, number: int) -> ServerStream | None:
        every = [self.standalone, *self.streams]
        return next((each for each in every if any(at == number for at, _ in each.log)), None)

    # ---- events

    def emit(self, link: Link, answer: bool) -> None:
        """An event on the stream of this connection: the newest one of the stream carries it."""
        stream = link.stream
        assert stream is not None
        self.counter += 1
        number = self.counter
        if answer and stream.request is not None:
            frame = result(number, stream.request, f"{self.incarnation}")
            stream.request = None
        else:
            frame = event(number, f"{self.incarnation}-{number}")
        stream.log.append((number, frame))
        carrier = [each for each in self.open_links() if each.stream is stream][-1]
        carrier.unread += frame

    def flow(self, link: Link, size: int) -> None:
        """The proxy reads so many bytes of this connection."""
        chunk = bytes(link.unread[:size])
        del link.unread[:size]
        link.client.send(chunk)

    def relayed(self) -> list[int]:
        """The ids that any client has been sent, of this incarnation and of earlier ones."""
        return self._relayed_to(self.shell.clients)

    def stale(self, number: int) -> bool:
        """Whether an id was sent before the newest `initialize` alone: to resume it is the client's own fork."""
        return number not in self._relayed_to(self.shell.clients[self.clients_before :])

    def _relayed_to(self, clients: list[Client]) -> list[int]:
        texts = (bytes(client.sent) for client in clients if client.exchange.relay is not None)
        return sorted(
            {
                int(part.split(b"\n")[0])
                for text in texts
                for part in text.split(b"id: ")[1:]
                if b"\n\n" in part
            }
        )


def session_ended(link: Link) -> bool:
    """Whether the session of this exchange was deleted."""
    session = link.client.exchange.session
    return session is not None and session.ended
