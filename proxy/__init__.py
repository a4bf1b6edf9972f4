"""forkwatch: a transparent diagnostic reverse proxy for MCP streamable HTTP."""

__version__ = "0.1.0"
