"""The table at the end of a run."""

from __future__ import annotations

from tests.load.soak import Outcome, Sample
from tests.load.truth import Truth

MIB = 1 << 20
_LISTED = ("events altered", "missed fork", "false alarm")
"""Told even where there are none."""


def table(out: Outcome) -> str:
    """What was played, what was said of it, and what must not have happened."""
    options, totals = out.options, out.totals
    lines = [
        f"== {options.name}: {options.mode}, seed {options.seed}, {options.streams} streams, {options.seconds:.0f} s"
        + (f", defect {options.defect}" if options.defect else ""),
        f"{'truth':15}{'play':22}{'resumes':>8}  verdicts",
    ]
    for truth in Truth:
        for (found, play), given in sorted(out.judge.by_play.items()):
            if found is truth:
                verdicts = ", ".join(f"{name} {count}" for name, count in given.most_common(4))
                more = f", {len(given) - 4} more" if len(given) > 4 else ""
                lines.append(f"{truth:15}{play:22}{given.total():8}  {verdicts}{more}")
    streams = sorted(sample.streams for sample in _steady(out))
    middle = streams[len(streams) // 2] if streams else 0
    lines += [
        f"resumes {totals.resumes} ({totals.resumes / max(out.took_s, 0.1):.1f}/s), judged {out.judge.judged}, "
        f"events {totals.events}, sessions {totals.sessions}, calls {totals.calls}",
        f"streams open: median {middle}, least {min(streams, default=0)}, most {max(streams, default=0)}",
        f"RSS {out.rss_warm / MIB:.1f} MiB after the warm-up, {out.rss_end / MIB:.1f} MiB at the end, of which "
        f"the ledger {out.ledger_warm / MIB:.1f} and {out.ledger_end / MIB:.1f}; "
        f"descriptors {out.idle_fds[0]} before, {out.idle_fds[1]} after",
        f"processor: proxy {out.cpu_s:.0f} s, load {out.own_cpu_s:.0f} s of {out.took_s:.0f} s; "
        f"load average {out.load_average:.1f}",
        f"faults: upstream killed {out.kills}, streams hit {totals.blurred_streams}, admin pages {out.admin_pages}, "
        f"failed open {out.fail_open}",
    ]
    lines.append("findings: " + ", ".join(f"{name} {n}" for name, n in sorted(out.findings.items()) if n))
    counts = out.violations.counts
    lines.append(" · ".join(f"{kind} {counts[kind]}" for kind in _LISTED))
    lines += [f"known fault, {count} times: {what}" for what, count in sorted(out.judge.known.items())]
    for kind, count in sorted(counts.items()):
        lines.append(f"VIOLATION {kind}: {count}")
        lines += [f"    {detail[:700]}" for detail in out.violations.told[kind][:4]]
    return "\n".join(lines)


def _steady(out: Outcome) -> list[Sample]:
    return [s for s in out.samples if out.options.seconds * 0.25 < s.at_s < out.options.seconds]
