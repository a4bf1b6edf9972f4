"""One run of the load against one proxy process, and what must be so when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.load import life
from tests.load.actor import Actor
from tests.load.dialects import DIALECTS
from tests.load.launcher import LEFT
from tests.load.process import Proxy
from tests.load.stage import Load
from tests.load.truth import Judge, Totals, Violations
from tests.load.wire import Wire

WARM_UP = 0.4
"""The part of a run after which memory must not grow any more."""
RSS_GROWTH = 0.10
RSS_ALLOWANCE_BYTES = 8 << 20
"""Growth after the warm-up beyond what the ledger accounts for: a tenth, and what an allocator may keep of a burst."""
MEMORY_TELLS_S = 180.0
"""In a shorter run the ledger has not come to its steady state after the warm-up: sessions live minutes."""
WIND_UP_S = 60.0
IDLE_S = 20.0
"""Within which the last idle connections are closed."""


@dataclass(frozen=True)
class Options:
    """What is to be run."""

    seconds: float
    streams: int
    seed: int
    rate: float
    """Resumes a second, about."""
    mode: str = "observe"
    faults: bool = False
    defect: str = ""
    log: str = "file"
    deadline_s: float = 2.0
    name: str = "load"


@dataclass
class Sample:
    """What was measured at one moment."""

    at_s: float
    rss: int
    fds: int
    streams: int


@dataclass
class Outcome:
    """What came of a run."""

    options: Options
    judge: Judge
    violations: Violations
    totals: Totals
    samples: list[Sample] = field(default_factory=list)
    idle_fds: tuple[int, int] = (0, 0)
    """Before and after."""
    rss_warm: int = 0
    rss_end: int = 0
    ledger_warm: int = 0
    ledger_end: int = 0
    """What the proxy accounts for itself, and bounds by `ledger_bytes`; in bytes, as all of these."""
    cpu_s: float = 0.0
    own_cpu_s: float = 0.0
    fail_open: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    admin_pages: int = 0
    took_s: float = 0.0
    load_average: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether nothing happened that must not."""
        return not self.violations.counts


class Soak:
    """The parts of a run."""

    def __init__(self, options: Options, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.wire = Wire()
        violations = Violations()
        judge = Judge(options.mode, violations, lenient=options.defect == "raising")
        self.out = Outcome(options, judge, violations, Totals())
        # An actor lives some seconds longer than its cycle: playing, waiting for verdicts.
        cycle_s = max(0.2, options.streams / options.rate - 0.3)
        self.load = Load(
            self.wire, judge, violations, self.out.totals, options.mode, options.deadline_s,
            cycle_s=cycle_s, event_every_s=min(1.0, cycle_s / 3), faults=options.faults,
        )  # fmt: skip
        self.actors = [
            Actor(self.load, DIALECTS[n % len(DIALECTS)], Random(f"{options.seed}/{n}"))
            for n in range(options.streams + options.streams // 40)  # some are away at any moment
        ]

    async def run(self) -> Outcome:
        """The whole run."""
        options, out = self.options, self.out
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: out.violations.add("broken off", str(context))
        )
        port = self.wire.listen()
        self.load.up.set()
        self.proxy = Proxy(
            self.directory, port, options.mode, options.deadline_s, defect=options.defect, log=options.log
        )
        self.proxy.start()
        try:
            self.wire.serve_through(self.proxy.forkwatch.port)
            await self.proxy.forkwatch.metrics()
            before = self.proxy.fds() + (options.log != "file")  # our own reader of the feed
            async with self._beside():
                started = time.monotonic()
                await self._play()
                out.took_s = time.monotonic() - started
                await self._settle(before)
        finally:
            status = self.proxy.stop()
            self.wire.close()
        self._last_words(status)
        return out

    @contextlib.asynccontextmanager
    async def _beside(self) -> AsyncIterator[None]:
        """What goes on during the run, beside the actors."""
        jobs = [self.proxy.listen(self.out.judge.heard), self._watch()]
        if self.options.faults:
            jobs += [self._kill_now_and_then(), self._poll_admin()]
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    self.out.violations.add("broken off", repr(result))

    async def _play(self) -> None:
        """All actors, for the time that was asked for; then each ends what it is at."""
        out = self.out
        own = time.process_time()
        lives = [asyncio.ensure_future(life.live(actor)) for actor in self.actors]
        await asyncio.sleep(self.options.seconds)
        out.rss_end, out.ledger_end = self.proxy.rss(), await self.proxy.ledger()
        out.cpu_s = self.proxy.cpu_s()
        out.own_cpu_s = time.process_time() - own
        out.load_average = os.getloadavg()[0]
        self.load.over.set()
        done, late = await asyncio.wait(lives, timeout=WIND_UP_S)
        for task in late:
            task.cancel()
            self.out.violations.add("stuck", "an actor did not come to its end")
        for task in done:
            if (error := task.exception()) is not None:
                out.violations.add("broken off", "".join(traceback.format_exception(error)[-3:]))

    # ---- beside the actors

    async def _watch(self) -> None:
        started, progress = time.monotonic(), sys.stderr.isatty()
        while True:
            at_s = time.monotonic() - started
            totals, out = self.out.totals, self.out
            out.samples.append(Sample(at_s, self.proxy.rss(), self.proxy.fds(), totals.streams))
            if out.rss_warm == 0 and at_s >= WARM_UP * self.options.seconds:
                out.rss_warm, out.ledger_warm = self.proxy.rss(), await self.proxy.ledger()
            if progress:
                wrong = sum(out.violations.counts.values())
                print(f"\r{self.options.name}: {at_s:5.0f} s of {self.options.seconds:.0f}, {totals.streams} streams, "
                      f"{totals.resumes} resumes, {totals.events} events, {wrong} violations ",
                      end="", file=sys.stderr, flush=True)  # fmt: skip
            await asyncio.sleep(1.0)

    async def _kill_now_and_then(self) -> None:
        """The upstream dies in mid-stream and comes back."""
        rng = Random(f"{self.options.seed}/kills")
        every = max(3.0, self.options.seconds / 8, 1.5 * self.load.cycle_s)  # between two, most have played
        while not self.load.over.is_set():
            await asyncio.sleep(rng.uniform(0.7, 1.0) * every)
            if self.load.over.is_set():
                return
            self.load.up.clear()
            self.out.judge.fault_at = time.monotonic()
            self.wire.kill()
            self.out.kills += 1
            await asyncio.sleep(rng.uniform(0.1, 0.6))
            self.wire.listen()
            self.load.up.set()

    async def _poll_admin(self) -> None:
        """Somebody looks at the admin interface all the time."""
        while True:
            for path in ("/", "/api/v1/status", "/api/v1/sessions?limit=100", "/api/v1/config"):
                status = await self.proxy.admin(path)
                self.out.admin_pages += 1
                if status != 200:
                    self.out.violations.add("admin", f"{path}: {status}")
            await asyncio.sleep(0.5)

    # ---- what must be so

    async def _settle(self, fds_before: int) -> None:
        """Everything has ended: nothing may be left in the proxy, and its counters agree with the truth."""
        out, forkwatch = self.out, self.proxy.forkwatch
        for client in self.wire.pool[:]:
            client.transport.abort()
        deadline = time.monotonic() + IDLE_S
        while True:
            left = {
                f"{name} {dict(labels)}": value
                for (name, labels), value in (await forkwatch.metrics()).items()
                if name.endswith(("requests_in_flight", "_streams_open"))
            }
            fds = self.proxy.fds()
            if (not left and fds <= fds_before) or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
        out.idle_fds = (fds_before, fds)
        for what, value in left.items():
            # a DELETE on which the detector failed ends nothing
            if not out.judge.lenient or "http_" in what or "streams_open" in what:
                out.violations.add("left over", f"{what} {value}")
        if fds > fds_before:
            out.violations.add("descriptors", f"{fds_before} before, {fds} after")
        long_enough = self.options.seconds >= MEMORY_TELLS_S
        accounted = max(0, out.ledger_end - out.ledger_warm)
        if long_enough and out.rss_end > out.rss_warm * (1 + RSS_GROWTH) + accounted + RSS_ALLOWANCE_BYTES:
            out.violations.add("memory", f"{out.rss_warm} after the warm-up, {out.rss_end} at the end, "
                                         f"{accounted} more in the ledger")  # fmt: skip
        out.judge.finish()
        await self._compare_counters()
        if self.wire.unasked:
            out.violations.add("unasked", f"{self.wire.unasked} requests that nobody made")

    async def _compare_counters(self) -> None:
        out = self.out
        given: dict[tuple[str, str, str], int] = {}
        attempts = 0
        for (name, labels), value in (await self.proxy.forkwatch.metrics()).items():
            found = dict(labels)
            match name:
                case "forkwatch_resume_verdicts_total":
                    key = found["verdict"], found["reason"], found["certainty"]
                    given[key] = given.get(key, 0) + int(value)
                case "forkwatch_resume_attempts_total":
                    attempts += int(value)
                case "forkwatch_findings_total":
                    out.findings[found["finding"]] += int(value)
                case "forkwatch_fail_open_total":
                    out.fail_open += int(value)
                case _:
                    pass
        if out.judge.lenient:
            if not out.fail_open:
                out.violations.add("no defect", "nothing failed open, though it was made to")
            return
        if given != dict(out.judge.given):
            out.violations.add("counters", f"counted {given}, logged {dict(out.judge.given)}")
        if attempts != sum(given.values()):
            out.violations.add("counters", f"{attempts} resumes, {sum(given.values())} verdicts")
        if out.fail_open:
            out.violations.add("fail open", str(out.fail_open))
        if self.options.defect == "stepping" and not self.proxy.went_back():
            out.violations.add("no defect", "the clock never went back")

    def _last_words(self, status: int) -> None:
        if status != 0:
            self.out.violations.add("exit status", str(status))
        said = self.proxy.forkwatch.errors.read_text()
        if self.options.log == "file":
            said += self.proxy.log_file.read_text()
        if LEFT in said:
            self.out.violations.add("garbage", said[said.index(LEFT) :][:1000])
        if "Traceback" in said:
            self.out.violations.add("traceback", said[said.index("Traceback") :][:1000])
