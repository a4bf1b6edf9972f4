"""py1_resurrect.py, loaded and ready to start when stdin says so. Usage: py1_standby.py PORT.

A crashed server whose replacement is warm is back before its clients are. Clients are asked to wait
for two seconds, so that the new log has grown by then.
"""

import runpy
import sys
from pathlib import Path

import mcp.server.fastmcp
import uvicorn  # noqa: F401  loaded here, so that the start is quick

RETRY_MS = 2000


class PatientServer(mcp.server.fastmcp.FastMCP):
    """FastMCP with another retry interval."""

    def __init__(self, *args, **options):
        super().__init__(*args, **{**options, "retry_interval": RETRY_MS})


mcp.server.fastmcp.FastMCP = PatientServer
sys.stdin.readline()
sys.argv = [sys.argv[0], sys.argv[1], "int"]
runpy.run_path(str(Path(__file__).with_name("py1_resurrect.py")), run_name="__main__")
