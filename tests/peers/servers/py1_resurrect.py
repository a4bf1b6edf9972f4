"""py1.py that takes any session id for its own. Usage: py1_resurrect.py PORT uuid|int.

Servers do this to survive a restart or to add a replica: they make a new transport, and with it a new log,
under the session id that the client still holds. What follows is a fork.
"""

import runpy
from pathlib import Path

import anyio
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

handle_known_session = StreamableHTTPSessionManager._handle_stateful_request


async def handle_any_session(self, scope, receive, send):
    """Make a session of the id that the request carries before it is looked up."""
    session_id = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
    if session_id and session_id not in self._server_instances:
        transport = StreamableHTTPServerTransport(
            mcp_session_id=session_id,
            event_store=self.event_store,
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
        )
        self._server_instances[session_id] = transport

        async def serve(*, task_status=anyio.TASK_STATUS_IGNORED):
            async with transport.connect() as (read, write):
                task_status.started()
                await self.app.run(read, write, self.app.create_initialization_options(), stateless=True)

        await self._task_group.start(serve)
    await handle_known_session(self, scope, receive, send)


StreamableHTTPSessionManager._handle_stateful_request = handle_any_session
runpy.run_path(str(Path(__file__).with_name("py1.py")), run_name="__main__")
