"""The suite's server on the first generation of the official Python SDK. Usage: suite_py1.py PORT."""

import sys

import stores
import suite
import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import McpError
from mcp.shared.message import ServerMessageMetadata
from starlette.applications import Starlette
from starlette.routing import Route

server = Server("suite-py1")
RESULTS = {"sampling/createMessage": types.CreateMessageResult, "elicitation/create": types.ElicitResult}


class Stage:
    """One request on this SDK; nothing is brought along before 2026-07-28."""

    inputs, state = {}, None

    def __init__(self):
        self.context = server.request_context
        self.request_id = self.context.request_id

    async def log(self, text):
        """Send a log message on the request's stream."""
        await self.context.session.send_log_message("info", text, related_request_id=str(self.request_id))

    async def progress(self, done, total):
        """Report progress on the request's stream, if the client wants it."""
        token = self.context.meta.progressToken if self.context.meta else None
        if token is not None:
            await self.context.session.send_progress_notification(
                token, done, total, related_request_id=str(self.request_id)
            )

    async def ask(self, request):
        """The client's answer to a request on this request's stream."""
        asked = types.ServerRequest.model_validate(request)
        metadata = ServerMessageMetadata(related_request_id=self.request_id)
        answer = await self.context.session.send_request(asked, RESULTS[request["method"]], metadata=metadata)
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def close(self):
        """Close the request's stream, so that the client has to come back."""
        if self.context.close_sse_stream is not None:
            await self.context.close_sse_stream()

    def offers(self, capability):
        """Whether the client has this capability."""
        return getattr(self.context.session.client_params.capabilities, capability) is not None


def unknown(what):
    """The error for a name or URI that is not there."""
    return McpError(types.ErrorData(code=types.INVALID_PARAMS, message=f"Unknown: {what}"))


def answering(request_type, result_type, result):
    """Handle these requests with what the function makes of their parameters, in wire form."""

    async def handle(request):
        return types.ServerResult(result_type.model_validate(await result(request.params)))

    server.request_handlers[request_type] = handle


def always(**values):
    """A result that does not depend on the parameters."""

    async def result(_params):
        return values

    return result


def playing(kind):
    """The result of the steps of a tool or a prompt."""

    async def result(params):
        steps = suite.steps(kind, params.name)
        if steps is None:
            raise unknown(params.name)
        return await suite.play(steps, params.arguments or {}, Stage())

    return result


async def reading(params):
    """A resource's contents, or the error for an unknown one."""
    result = suite.read(str(params.uri))
    if result is None:
        raise unknown(params.uri)
    return result


answering(types.ListToolsRequest, types.ListToolsResult, always(tools=suite.definitions("tools")))
answering(types.CallToolRequest, types.CallToolResult, playing("tools"))
answering(types.ListPromptsRequest, types.ListPromptsResult, always(prompts=suite.definitions("prompts")))
answering(types.GetPromptRequest, types.GetPromptResult, playing("prompts"))
answering(
    types.ListResourcesRequest, types.ListResourcesResult, always(resources=suite.definitions("resources"))
)
answering(
    types.ListResourceTemplatesRequest,
    types.ListResourceTemplatesResult,
    always(resourceTemplates=suite.definitions("templates")),
)
answering(types.ReadResourceRequest, types.ReadResourceResult, reading)
answering(types.CompleteRequest, types.CompleteResult, always(**suite.SUITE["completion"]))
for accepted in (types.SubscribeRequest, types.UnsubscribeRequest, types.SetLevelRequest):
    answering(accepted, types.EmptyResult, always())


class Endpoint:
    """The transport as an ASGI application, with the protection that the SDK has on loopback."""

    def __init__(self):
        local = TransportSecuritySettings(
            allowed_hosts=["127.0.0.1:*", "localhost:*"],
            allowed_origins=["http://127.0.0.1:*", "http://localhost:*"],
        )
        self.manager = StreamableHTTPSessionManager(
            server, event_store=stores.make("int"), retry_interval=500, security_settings=local
        )

    async def __call__(self, scope, receive, send):
        """Serve one request."""
        await self.manager.handle_request(scope, receive, send)


endpoint = Endpoint()
app = Starlette(routes=[Route("/mcp", endpoint)], lifespan=lambda _app: endpoint.manager.run())
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
