"""The suite's server on the second generation of the official Python SDK. Usage: suite_py2.py PORT."""

import sys
import warnings

import stores
import suite
import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

warnings.simplefilter("ignore")  # the SDK calls its own logging and sampling deprecated
MISSING_CAPABILITY = -32021
REQUESTS = {
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
}


class Stage:
    """One request on this SDK."""

    def __init__(self, context, params):
        self.context = context
        brought = params.input_responses or {}
        self.inputs = {name: each.model_dump(mode="json", by_alias=True) for name, each in brought.items()}
        self.state = params.request_state

    async def log(self, text):
        """Send a log message on the request's stream."""
        await self.context.session.send_log_message("info", text, related_request_id=self.context.request_id)

    async def progress(self, done, total):
        """Report progress on the request's stream, if the client wants it."""
        await self.context.session.report_progress(done, total)

    async def ask(self, request):
        """The client's answer to a request on this request's stream."""
        request_type, result_type = REQUESTS[request["method"]]
        answer = await self.context.session.send_request(
            request_type.model_validate(request),
            result_type,
            metadata=ServerMessageMetadata(related_request_id=self.context.request_id),
        )
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def close(self):
        """Close the request's stream, so that the client has to come back."""
        if self.context.close_sse_stream is not None:
            await self.context.close_sse_stream()

    def offers(self, capability):
        """Whether the client has this capability."""
        capabilities = self.context.session.client_capabilities
        return capabilities is not None and getattr(capabilities, capability) is not None


def listing(result_type, **values):
    """A handler that answers a list request."""

    async def handle(_context, _params):
        return result_type.model_validate(values)

    return handle


def playing(kind, result_type):
    """A handler that plays the steps of a tool or a prompt."""

    async def handle(context, params):
        steps = suite.steps(kind, params.name)
        if steps is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown: {params.name}")
        try:
            result = await suite.play(steps, params.arguments or {}, Stage(context, params))
        except suite.Missing as missing:
            needed = {"requiredCapabilities": missing.args[0]}
            raise MCPError(MISSING_CAPABILITY, "The client lacks a capability", needed) from None
        if result.get("resultType") == "input_required":
            return types.InputRequiredResult.model_validate(result)
        return result_type.model_validate(result)

    return handle


async def read_resource(_context, params):
    """A resource's contents, or the error for an unknown one."""
    result = suite.read(str(params.uri))
    if result is None:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": str(params.uri)})
    return types.ReadResourceResult.model_validate(result)


async def accept(_context, _params):
    """The answer to what needs none."""
    return types.EmptyResult()


server = Server(
    "suite-py2",
    on_list_tools=listing(types.ListToolsResult, tools=suite.definitions("tools")),
    on_call_tool=playing("tools", types.CallToolResult),
    on_list_prompts=listing(types.ListPromptsResult, prompts=suite.definitions("prompts")),
    on_get_prompt=playing("prompts", types.GetPromptResult),
    on_list_resources=listing(types.ListResourcesResult, resources=suite.definitions("resources")),
    on_list_resource_templates=listing(
        types.ListResourceTemplatesResult, resourceTemplates=suite.definitions("templates")
    ),
    on_read_resource=read_resource,
    on_subscribe_resource=accept,
    on_unsubscribe_resource=accept,
    on_completion=listing(types.CompleteResult, **suite.SUITE["completion"]),
    on_set_logging_level=accept,
)
server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
app = server.streamable_http_app(event_store=stores.make("uuid"), retry_interval=500)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
