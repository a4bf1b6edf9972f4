"""A new configuration for a running proxy: checked first, taken whole, and the old one kept on any error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.config import Loaded, rows
from proxy.config.settings import Settings
from proxy.errors import ConfigError, Problem
from proxy.logs import Log
from proxy.metrics import Metrics

FIXED = ("listen", "status", "admin", "state", "tls")
"""What a running process cannot change: its addresses, whether it speaks TLS, where it keeps state."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload did, or would do: the keys that changed, and those that wait for a restart."""

    changed: list[str]
    restart_needed: list[str]
    warnings: list[str]


class Reload:
    """Reads the configuration again, from the same file, variables and flags as at the start.

    `read` loads it and may block; `apply` puts settings in force on the event loop, and raises OSError
    or ValueError, changing nothing, for files that cannot be used any more.
    """

    def __init__(
        self,
        loaded: Loaded,
        read: Callable[[], Loaded],
        apply: Callable[[Settings], None],
        metrics: Metrics,
        log: Log,
    ) -> None:
        self.loaded = loaded
        """The configuration in force."""
        self.errors: list[str] = []
        """Why the last reload was rejected; empty if it was not."""
        self._read = read
        self._apply = apply
        self._metrics = metrics
        self._log = log
        self._one_at_a_time = asyncio.Lock()

    async def run(self, *, dry: bool = False) -> Reloaded:
        """Reload, or only say what would change. Raises ConfigError with every problem; the old one stays."""
        async with self._one_at_a_time:
            try:
                # A file may be large, on a slow disk, or a pipe: no stream waits for it.
                found = await asyncio.to_thread(self._read)
                effective = _without_fixed(self.loaded.settings, found.settings)
                result = _compare(self.loaded.settings, effective, found)
                if not dry:
                    self._put_in_force(effective)
            except ConfigError as error:
                if not dry:
                    self._rejected(error)
                raise
            if not dry:
                self._accepted(replace(found, settings=effective), result)
            return result

    def _put_in_force(self, settings: Settings) -> None:
        try:
            self._apply(settings)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            message = f"a certificate, key or token cannot be used: {reason}"
            problem = Problem("", None, message, "check its file")
            raise ConfigError([problem]) from error

    def _accepted(self, loaded: Loaded, result: Reloaded) -> None:
        self.loaded = loaded
        self.errors = []
        self._metrics.config_reload_ok = True
        self._metrics.config_reload_at = time.time()
        self._log.event(
            "config.reloaded",
            path=str(loaded.path or ""),
            changed=result.changed,
            restart_needed=result.restart_needed,
            warnings=result.warnings,
        )

    def _rejected(self, error: ConfigError) -> None:
        self.errors = list(error.lines())
        self._metrics.config_reload_ok = False
        self._log.event(
            "config.rejected", level="error", path=str(self.loaded.path or ""), errors=self.errors
        )


def _without_fixed(old: Settings, new: Settings) -> Settings:
    """The new settings with what cannot change as it was. A renewed certificate is no change of `tls`."""
    kept = {name: getattr(old, name) for name in FIXED if name != "tls"}
    if (old.tls is None) != (new.tls is None):
        kept["tls"] = old.tls
    return replace(new, **kept)


def _compare(old: Settings, effective: Settings, found: Loaded) -> Reloaded:
    return Reloaded(_differing(old, effective), _differing(effective, found.settings), list(found.warnings))


def _differing(one: Settings, other: Settings) -> list[str]:
    """The keys that differ, an upstream's under its name; only the name of one that is new or gone."""
    before, after = _named(one), _named(other)
    names = [f"upstreams[{u.name}]" for u in (*other.upstreams, *one.upstreams)]
    whole = [n for n in dict.fromkeys(names) if (f"{n}.url" in before) != (f"{n}.url" in after)]
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [*(key for key in keys if not key.startswith(tuple(f"{n}." for n in whole))), *whole]


def _named(settings: Settings) -> dict[str, str]:
    """Every key with its value; upstreams by their names, since their places may change."""
    names = {f"upstreams[{i}]": f"upstreams[{u.name}]" for i, u in enumerate(settings.upstreams)}
    found = {}
    for key, value in rows(settings):
        place, dot, rest = key.partition(".")
        found[f"{names.get(place, place)}{dot}{rest}"] = value
    return found
