"""The command line: arguments to one module per command, each with `run(args) -> exit status`.

A command's module is imported when it is used, and this one imports the standard library only: a
container asks `forkwatch healthcheck` every few seconds, and pays for what is imported here.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module

from proxy import __version__
from proxy.errors import ConfigError, ListenFailed

_MODES = ("observe", "annotate", "enforce")
_LEVELS = ("debug", "info", "warning", "error")
_VERDICTS = ("resumed", "rewound", "fork", "gap", "crossed", "refused", "unverifiable", "inconclusive")
"""Those of `proxy.engine.findings`, whose import would cost the health check more than its question."""
_STATES = ("active", "quarantined", "ended")
_WAIT = re.compile(r"(?:([0-9]{1,4})m)?(?:([0-9]{1,6}(?:\.[0-9]{1,3})?)s)?")


class CommandFailed(Exception):
    """A command cannot do what was asked. `main` prints the lines to standard error and exits 1.

    The first line says what is wrong and what to do; each further one is a detail of it.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 failed, 2 wrong arguments or configuration.

    `argv` is without the program's name; None takes the process's own.
    """
    parser = _parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has written the help, the version or the error
        return stop.code if isinstance(stop.code, int) else 2
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        status = import_module(f"proxy.cli.{args.command}").run(args)
        if sys.stdout is not None:  # it is None where the shell closed it
            sys.stdout.flush()  # here, where a closed pipe is still known as one
    except ConfigError as error:
        for line in error.lines():
            print(line, file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ListenFailed as error:
        print(f"forkwatch: {error}", file=sys.stderr)
        return error.exit_code
    except CommandFailed as error:
        print("forkwatch: " + "\n".join(error.lines), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return int(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forkwatch",
        description="A transparent diagnostic reverse proxy for MCP streamable HTTP.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"forkwatch {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    run = _command(commands, "run", "run the proxy until it is told to stop")
    _add_configuration(run)
    check = _command(commands, "check", "validate a configuration and report everything at once")
    _add_configuration(check)
    check.add_argument("--explain", action="store_true", help="print every value and where it comes from")

    demo = _command(commands, "demo", "show a fork happen and be caught, with nothing else needed")
    demo.add_argument("--mode", choices=_MODES, help="the mode of the proxy in the middle")
    demo.add_argument("--plain", action="store_true", help="no colour and no progress")
    demo.add_argument("--keep", action="store_true", help="leave it running at the end, to look around")

    health = _command(commands, "healthcheck", "exit 0 if a running proxy is ready, for containers")
    health.add_argument(
        "--status",
        metavar="HOST:PORT",
        help="its status address (default: FORKWATCH__STATUS, or 127.0.0.1:9464)",
    )
    hashing = _command(commands, "hash", "print a session id as the logs show it")
    hashing.add_argument("raw", metavar="RAW_SESSION_ID", help="the value of Mcp-Session-Id")
    _command(commands, "version", "print the version")
    _add_tail(commands)
    _add_questions(commands)
    _add_changes(commands)
    return parser


def _add_tail(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tail = _command(commands, "tail", "read the proxy's JSON log lines and render them for people")
    tail.add_argument("--session", metavar="S", help="of this session, as the logs show it or raw")
    tail.add_argument(
        "--verdict",
        metavar="V",
        action="append",
        type=_verdicts,
        help=f"judged so; again or with commas for several: {', '.join(_VERDICTS)}",
    )
    tail.add_argument("--upstream", metavar="U", help="of the upstream with this name")
    tail.add_argument("-f", "--file", metavar="FILE", help="read this file instead of standard input")
    tail.add_argument("-F", "--follow", action="store_true", help="go on as the file grows or is rotated")
    tail.add_argument("--level", metavar="LEVEL", choices=_LEVELS, help=f"the least: {', '.join(_LEVELS)}")
    tail.add_argument("--event", metavar="NAME", help="this event, or with a prefix such as resume. several")
    tail.add_argument("--plain", action="store_true", help="no colour")


def _add_questions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The commands that ask a running proxy."""
    _add_admin(_command(commands, "status", "what a running proxy does: its state, upstreams and verdicts"))
    sessions = _command(commands, "sessions", "the sessions a running proxy knows, the newest first")
    sessions.add_argument("--state", choices=_STATES, help="only those in this state")
    sessions.add_argument("--upstream", metavar="U", help="only those of the upstream with this name")
    sessions.add_argument("--verdict", choices=_VERDICTS, help="only those with a resume judged so")
    sessions.add_argument(
        "--limit", metavar="N", type=_count, default=50, help="at most so many; 0 is all (default: 50)"
    )
    _add_admin(sessions)
    session = _command(commands, "session", "one session: its connections, and a picture of its resumes")
    _add_session(session)
    _add_admin(session)
    _add_admin(_command(commands, "config", "the settings a running proxy has in force, and their sources"))


def _add_changes(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The commands that change what a running proxy does."""
    policy = _command(commands, "policy", "switch what a running proxy does about a fork, for a time")
    policy.add_argument(
        "mode", metavar="MODE", choices=(*_MODES, "configured"), help=f"{', '.join(_MODES)}, or configured"
    )
    policy.add_argument("--upstream", metavar="U", help="of this upstream alone (default: of all)")
    policy.add_argument("--ttl", metavar="TIME", help="back to the configured mode after it (default: 1h)")
    _add_admin(policy)
    quarantine = _command(commands, "quarantine", "refuse a session's requests until its client starts anew")
    _add_session(quarantine)
    quarantine.add_argument("--release", action="store_true", help="let a quarantined session go on instead")
    _add_admin(quarantine)
    drain = _command(commands, "drain", "end the streams in good order, before a running proxy is stopped")
    either = drain.add_mutually_exclusive_group()
    either.add_argument(
        "--wait",
        metavar="TIME",
        type=_wait_s,
        help="wait so long for it to be done, such as 20s; 1 if it is not",
    )
    either.add_argument("--undo", action="store_true", help="serve again")
    _add_admin(drain)
    reload = _command(commands, "reload", "read the configuration again; an error keeps the one in force")
    reload.add_argument("--dry-run", action="store_true", help="only say what would change")
    _add_admin(reload)


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the session, as the logs show it or raw")
    parser.add_argument("--upstream", metavar="U", help="the upstream it is of, if several know the id")


def _add_admin(parser: argparse.ArgumentParser) -> None:
    """The flags that `proxy.cli.client` reads."""
    admin = parser.add_argument_group("the running proxy")
    admin.add_argument(
        "--admin",
        metavar="ADDR",
        help="its admin interface, unix:PATH or HOST:PORT (default: FORKWATCH__ADMIN)",
    )
    admin.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where its clients connect, if several run (default: FORKWATCH__LISTEN)",
    )
    admin.add_argument(
        "--token-file", metavar="FILE", help="the admin token (default: FORKWATCH__ADMIN_TOKEN_FILE)"
    )
    admin.add_argument("--json", action="store_true", help="print what the admin interface answers")


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _wait_s(text: str) -> float:
    """Seconds of `20s`, `1.5s` or `1m30s`."""
    found = _WAIT.fullmatch(text)
    if not text or found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 20s or 1m30s")
    return int(found[1] or 0) * 60 + float(found[2] or 0)


def _verdicts(text: str) -> str:
    """The text as it is, if it is verdicts with commas between them."""
    if unknown := [name for name in text.split(",") if name.strip() not in _VERDICTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not a verdict; use {', '.join(_VERDICTS)}")
    return text


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    description = f"{summary[0].upper()}{summary[1:]}."
    return commands.add_parser(name, help=summary, description=description, allow_abbrev=False)


def _add_configuration(parser: argparse.ArgumentParser) -> None:
    """The flags that `proxy.cli.loading` reads."""
    parser.add_argument("--config", metavar="FILE", help="the configuration, YAML or JSON")
    parser.add_argument(
        "--upstream", metavar="URL", help="the one MCP server, instead of the file's; no file is needed then"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="where clients connect; port 0 picks one")
    parser.add_argument("--status", metavar="HOST:PORT", help="where health and metrics are served")
    parser.add_argument("--mode", choices=_MODES, help="what to do about a fork, for every upstream")
    parser.add_argument("--state", metavar="URL", help="where session state is kept: memory://")
    parser.add_argument("--log-format", choices=("json", "console", "auto"), help="how log lines look")
