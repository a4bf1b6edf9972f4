"""One connection that serves a stream: which of the ids it brings are new, and what they begin.

Live frames are checked by order alone; membership is looked up while a connection is *unsettled*,
that is, while it may still be replaying what the stream has shown before.
"""

from __future__ import annotations

from proxy.engine.continuity import FrameKind, Shown
from proxy.engine.digest import PRIMING
from proxy.engine.findings import AttachmentKind, Finding, Raised
from proxy.engine.ids import INTEGER, EventId, IdClass, compare
from proxy.engine.ledger import Session, Stream
from proxy.engine.log import Known, known

_OPAQUE, _TIMED, _POST = IdClass.OPAQUE, IdClass.TIMED, AttachmentKind.POST


class Attachment:
    """Records what one connection of `session` shows into `stream`, frame by frame.

    A frame must be judged before it is given here.
    """

    __slots__ = ("_again", "_appended", "_last", "_same_log", "_settled", "kind", "session", "stream")

    def __init__(self, session: Session, stream: Stream, kind: AttachmentKind) -> None:
        self.session = session
        self.stream = stream
        self.kind = kind
        self._settled = kind is _POST
        """No replay can come any more: this connection has brought a new id, or is a POST's."""
        self._appended = False
        self._last: EventId | None = None
        self._again: list[tuple[int, int]] = []
        """What came again before anything new: the (id, digest) words, in order."""
        self._same_log = False
        """Among them was a payload that stands under one id only: it is the log that was known."""

    def begin_epoch(self) -> None:
        """What this connection brings is another log of its stream, and the session's next epoch.

        What came first and looked like a replay was that log's beginning: cursors may name it.
        """
        self.session.next_epoch(self.stream)
        self._last = None
        for id_word, word in self._again:
            self.session.place_aside(self.stream, id_word, word)
        self._again.clear()

    @property
    def position(self) -> int | None:
        """Where the newest id stands, as `Session.position` says it; None if this does not know offhand."""
        last, dialect = self._last, self.session.evidence.dialect
        if last is not None and dialect is not None and dialect.cls is not _TIMED:
            return last.seq[0]
        return None

    def follow(self, raw: bytes, id_word: int, word: int) -> bool:
        """Record the message of a live stream if its id plainly is new; else do nothing.

        The common case of `record`: a settled connection, and an id with the tags of the one before
        and a greater number than any; of an opaque dialect, one that this session has not shown.
        """
        session, stream, log = self.session, self.stream, self.stream.log
        dialect = session.evidence.dialect
        if not self._settled or dialect is None or log.epoch != session.epoch:
            return False
        if dialect.cls is _OPAQUE:
            if dialect.unique and session.upstream.owners.who(id_word) == session.number:
                return False
            session.append(stream, raw, id_word, word, None, None)
            self._last = None
            return True
        last, newest = self._last, session.newest
        if newest is None or last is not stream.last:
            return False
        parsed = dialect.parse(raw)
        if last is None:
            # The first id of a call's stream is new; of bare integers, a number beyond all in the session.
            if parsed is None or dialect.inclusive:
                return False
            if dialect is INTEGER and not (session.grew and parsed.seq > newest.seq):
                return False
            session.append(stream, raw, id_word, word, parsed, None)
            self._last = parsed
            return True
        if parsed is None or parsed[:3] != last[:3] or parsed.seq <= last.seq:
            return False
        if parsed.seq <= newest.seq and session.grew:
            return False
        session.extend(stream, log, raw, id_word, word, parsed, last)
        self._last = parsed
        return True

    def record(self, shown: Shown) -> Raised | None:
        """Take note of one frame; returns a finding it gives rise to, else None."""
        if shown.kind is FrameKind.NOTHING and shown.id is None:
            return None
        if shown.id is None:
            self.stream.unnumbered = True
            return None
        parsed = self.session.read(shown.id)
        if shown.kind is not FrameKind.MESSAGE:
            self._record_priming(shown, shown.id, parsed)
            return None
        if self._settled and self._follows(shown, parsed):
            self._append(shown, shown.id, parsed)
            return None
        return self._record_checked(shown, shown.id, parsed)

    def _follows(self, shown: Shown, parsed: EventId | None) -> bool:
        """Whether order alone shows the id to be new (for unique ids: nobody has shown it here)."""
        session, last = self.session, self.stream.last
        dialect = session.evidence.dialect
        assert dialect is not None
        if parsed is None:
            return not (dialect.unique and session.upstream.owners.who(shown.id_word) == session.number)
        if last is not None and parsed.seq <= last.seq:
            return False
        newest = session.newest
        return not (
            session.grew and newest is not None and dialect.name == "integer" and parsed.seq <= newest.seq
        )

    def _record_checked(self, shown: Shown, raw: bytes, parsed: EventId | None) -> Raised | None:
        session, stream = self.session, self.stream
        log = session.current_log(stream)
        how, _ = known(log, shown.id_word, shown.word)
        if how in (Known.SAME, Known.UNSURE):
            if not self._settled and len(self._again) < session.bounds.ids_per_stream:
                self._again.append((shown.id_word, shown.word))
                self._same_log |= how is Known.SAME and log.payload_count(shown.word) == 1
            return None  # shown before: a replay
        if how in (Known.DIFFERENT, Known.AMBIGUOUS):
            if self._begins():
                self.begin_epoch()
                self._append(shown, raw, parsed)
                return None
            self._append(shown, raw, parsed)
            return Raised(Finding.ID_REUSED, session.name, stream.label, "another payload")
        if not self._settled and session.elsewhere(parsed, shown.id_word, shown.word, stream) is not None:
            session.complete = False  # crossed: delivered here, but it has its owner elsewhere
            return None
        if self._same_log and not self._settled and self._comes_before(parsed):
            session.complete = False  # of the replayed past, but not held: no place among what is
            return None
        if self._begins() and self._comes_before(parsed):
            self.begin_epoch()
        owners = session.owners(shown.id_word, shown.word, stream)
        if owners and self.kind is AttachmentKind.RESUME and all(how is Known.SAME for _, how in owners):
            session.complete = False  # a replay from beyond the window: it has its owner there
            return None
        reused = bool(owners)
        self._append(shown, raw, parsed)
        return Raised(Finding.ID_REUSED, session.name, stream.label, "another stream") if reused else None

    def _begins(self) -> bool:
        """Whether this is the first new id of a plain GET that continues a stream: it may start anew."""
        return self.kind is AttachmentKind.GET and not self._appended and self.stream.shown > 0

    def _comes_before(self, parsed: EventId | None) -> bool:
        dialect = self.session.evidence.dialect
        if dialect is None or dialect.cls is _TIMED:
            return False
        return compare(parsed, self.stream.last, dialect) == -1

    def _append(self, shown: Shown, raw: bytes, parsed: EventId | None) -> None:
        self.session.append(self.stream, raw, shown.id_word, shown.word, parsed, self._last)
        self._last = parsed
        self._appended = self._settled = True
        self._again.clear()

    def _record_priming(self, shown: Shown, raw: bytes, parsed: EventId | None) -> None:
        """A priming id gets a place, so that a cursor of it can be found, but moves H only forward."""
        session, stream = self.session, self.stream
        if session.current_log(stream).has(shown.id_word):
            return
        last = stream.last
        if parsed is None or last is None or parsed.seq > last.seq:
            session.append(stream, raw, shown.id_word, PRIMING, parsed, self._last)
            self._last = parsed
        else:
            session.place_aside(stream, shown.id_word)
