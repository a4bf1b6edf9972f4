"""The command line: arguments to one module per command, each with `run(args) -> exit status`.

A command's module is imported when it is used, and this one imports the standard library only: a
container asks `forkwatch healthcheck` every few seconds, and pays for what is imported here.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from proxy import __version__
from proxy.errors import ConfigError, ListenFailed

_MODES = ("observe", "annotate", "enforce")


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

    health = _command(commands, "healthcheck", "exit 0 if a running proxy is ready, for containers")
    health.add_argument(
        "--status",
        metavar="HOST:PORT",
        help="its status address (default: FORKWATCH__STATUS, or 127.0.0.1:9464)",
    )
    hashing = _command(commands, "hash", "print a session id as the logs show it")
    hashing.add_argument("raw", metavar="RAW_SESSION_ID", help="the value of Mcp-Session-Id")
    _command(commands, "version", "print the version")
    return parser


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
