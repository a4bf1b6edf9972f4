"""`make bench`: what the proxy costs on this machine; `python -m tests.bench memory` and the like for a part.

Without a name the three that install nothing run, with their defaults; the other arguments go to the one that is
named. `peers` alone sets up other proxies first.
"""

from __future__ import annotations

import sys

from tests.bench import judge, memory, peers, relay


def main(argv: list[str]) -> int:
    """Run what is named, or everything; the worst of the exit statuses."""
    match argv:
        case ["memory", *rest]:
            return memory.main(rest)
        case ["judge"]:
            return judge.main()
        case ["relay", *rest]:
            return relay.main(rest)
        case ["peers", *rest]:
            return peers.main(rest)
        case []:
            worst = max(relay.main([]), judge.main(), memory.main([]))
            print("a whole MCP call beside other proxies: python -m tests.bench peers (installs them)")
            return worst
        case _:
            print("usage: python -m tests.bench [memory | judge | relay | peers] [OPTION]…", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
