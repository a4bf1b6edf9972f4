"""`forkwatch demo`: a real server, a real client, and a fork between them that the proxy catches.

Needs the `demo` extra, the official MCP SDK. Nothing else of the package imports this.
"""
