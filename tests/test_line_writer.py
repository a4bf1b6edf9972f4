"""Log lines against real descriptors: a stalled pipe, a reader that left, a full disk."""

from __future__ import annotations

import io
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.line_writer import LineWriter

ROOT = Path(__file__).parent.parent


def notice(count: int) -> bytes:
    """The line that says how many were dropped."""
    return b"dropped %d\n" % count


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.FileIO]]:
    """The read end of a pipe and the write end as a stream."""
    read, write = os.pipe()
    with open(write, "wb", buffering=0) as stream:
        yield read, stream
    os.close(read)


def read_to_end(fd: int) -> list[bytes]:
    """Every line until all writers have closed."""
    with open(fd, "rb", closefd=False) as stream:
        return stream.read().splitlines(keepends=True)


def within(seconds: float, work: threading.Thread) -> None:
    """Run `work`; fail if it is still at it after `seconds`."""
    work.start()
    work.join(seconds)
    assert not work.is_alive()


def test_lines_come_out_in_order() -> None:
    """What was queued before `close` is written by it."""
    out = io.BytesIO()
    writer = LineWriter(out, notice=notice)
    for n in range(1000):
        writer.msg(b"%d\n" % n)
    assert writer.close()
    assert out.getvalue() == b"".join(b"%d\n" % n for n in range(1000))
    assert writer.dropped == 0


def test_a_pipe_gets_no_more_at_once_than_it_takes_in_one_piece(
    pipe: tuple[int, io.FileIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a line could be cut in two by a reader that stalls; a file takes all there is."""
    sizes: list[int] = []
    write = os.write

    def measured(fd: int, data: memoryview) -> int:
        sizes.append(len(data))
        return write(fd, data)

    monkeypatch.setattr("proxy.line_writer.os.write", measured)
    with (tmp_path / "log").open("wb") as file:
        for stream, expected in ((pipe[1], select.PIPE_BUF), (file, 10_000)):
            sizes.clear()
            writer = LineWriter(stream, notice=notice)
            for _ in range(100):
                writer.msg(b"x" * 99 + b"\n")
            assert writer.close()
            assert max(sizes) <= expected
            assert sum(sizes) == 10_000
        assert len(sizes) == 1


def test_a_stalled_reader_blocks_nobody_and_what_is_lost_is_counted(pipe: tuple[int, io.FileIO]) -> None:
    """Nobody reads: every call returns, then every line is either there, whole, or in the count."""
    read, stream = pipe
    writer = LineWriter(stream, notice=notice, capacity=1000)
    line = b"x" * 99 + b"\n"

    def flood() -> None:
        for _ in range(20_000):
            writer.msg(line)

    within(20, threading.Thread(target=flood, daemon=True))
    # A pipe holds 64 KiB and the queue 1000 lines.
    assert writer.dropped > 18_000
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.extend(read_to_end(read)))
    reader.start()
    assert writer.close(deadline_s=20)
    stream.close()
    reader.join()
    notices = [int(text.split()[1]) for text in lines if text.startswith(b"dropped ")]
    assert sum(notices) == writer.dropped
    assert lines.count(line) + sum(notices) == 20_000
    assert len(lines) == lines.count(line) + len(notices)


def test_close_gives_up_after_its_deadline(pipe: tuple[int, io.FileIO]) -> None:
    """A reader that never reads does not keep the process."""
    read, stream = pipe
    writer = LineWriter(stream, notice=notice)
    for _ in range(2000):
        writer.msg(b"x" * 99 + b"\n")
    assert not writer.close(deadline_s=0.05)
    reader = threading.Thread(target=read_to_end, args=(read,))
    reader.start()
    assert writer.close(deadline_s=20)
    stream.close()
    reader.join()


def test_a_process_exits_while_its_reader_stalls_and_cuts_no_line() -> None:
    """The exit of the interpreter does not wait for the pipe, and what is in the pipe is whole lines."""
    program = (
        "import sys\n"
        "from proxy.line_writer import LineWriter\n"
        "writer = LineWriter(sys.stdout.buffer, notice=lambda n: b'')\n"
        "for _ in range(5000): writer.msg(b'y' * 332 + b'\\n')\n"
        "print(writer.close(0.2), file=sys.stderr)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pipesize=8192,  # two pages, so that larger writes would end inside a line
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.wait(20) == 0
        assert child.stderr.read() == b"False\n"
        lines = child.stdout.read().splitlines(keepends=True)
    assert len(lines) > 10
    assert set(lines) == {b"y" * 332 + b"\n"}


def test_a_descriptor_somebody_made_non_blocking_still_gets_whole_lines(pipe: tuple[int, io.FileIO]) -> None:
    """A full non-blocking pipe is waited for, in the writer's thread."""
    read, stream = pipe
    os.set_blocking(stream.fileno(), False)
    writer = LineWriter(stream, notice=notice)
    sent = [b"%d " % n + b"z" * 300 + b"\n" for n in range(2000)]
    for line in sent:
        writer.msg(line)
    assert not writer.close(deadline_s=0.05)
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.extend(read_to_end(read)))
    reader.start()
    assert writer.close(deadline_s=20)
    stream.close()
    reader.join()
    assert lines == sent


def test_a_line_longer_than_a_pipe_takes_at_once_comes_out_whole(pipe: tuple[int, io.FileIO]) -> None:
    """Length alone loses nothing while somebody reads."""
    read, stream = pipe
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.extend(read_to_end(read)))
    reader.start()
    writer = LineWriter(stream, notice=notice)
    sent = [b"a" * 200_000 + b"\n", b"b\n", b"c" * 5000 + b"\n"]
    for line in sent:
        writer.msg(line)
    assert writer.close(deadline_s=20)
    stream.close()
    reader.join()
    assert lines == sent


def test_a_reader_that_left_costs_lines_and_nothing_else() -> None:
    """A broken pipe raises nowhere; the lines count as dropped."""
    read, write = os.pipe()
    with open(write, "wb", buffering=0) as stream:
        os.close(read)
        writer = LineWriter(stream, notice=notice)
        for _ in range(10):
            writer.msg(b"x\n")
        assert writer.close()
    assert writer.dropped == 10


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    """No space left on the device raises nowhere either."""
    with open("/dev/full", "wb", buffering=0) as stream:
        writer = LineWriter(stream, notice=notice)
        writer.msg(b"x\n")
        assert writer.close()
    assert writer.dropped == 1


def test_a_stream_closed_by_somebody_else_costs_lines_and_nothing_else() -> None:
    """A stream without a descriptor that was closed under the writer."""
    out = io.BytesIO()
    writer = LineWriter(out, notice=notice)
    out.close()
    writer.msg(b"x\n")
    assert writer.close()
    assert writer.dropped == 1


def test_a_line_after_close_is_dropped_and_counted() -> None:
    """`close` may be called twice; what comes later is only counted."""
    out = io.BytesIO()
    writer = LineWriter(out, notice=notice)
    assert writer.close()
    writer.msg(b"late\n")
    assert writer.close()
    assert (out.getvalue(), writer.dropped) == (b"", 1)
