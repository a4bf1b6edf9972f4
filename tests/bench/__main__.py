"""`make bench`: what the proxy costs on this machine; `python -m tests.bench memory` and the like for a part.

Without a name all three run, with their defaults; the other arguments go to the one that is named.
"""

from __future__ import annotations

import sys

from tests.bench import judge, memory, relay


def main(argv: list[str]) -> int:
    """Run what is named, or everything; the worst of the exit statuses."""
    match argv:
        case ["memory", *rest]:
            return memory.main(rest)
        case ["judge"]:
            return judge.main()
        case ["relay", *rest]:
            return relay.main(rest)
        case []:
            return max(relay.main([]), judge.main(), memory.main([]))
        case _:
            print("usage: python -m tests.bench [memory | judge | relay] [OPTION]…", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
