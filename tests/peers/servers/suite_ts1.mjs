// The suite's server on the first generation of the official TypeScript SDK. Usage: suite_ts1.mjs PORT
import { randomUUID } from "node:crypto";
import { InMemoryEventStore } from "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";
import { SUITE, definitions, play, read, steps } from "./suite.mjs";

const RESULTS = {
  "sampling/createMessage": types.CreateMessageResultSchema,
  "elicitation/create": types.ElicitResultSchema,
};
const CAPABILITIES = {
  tools: {},
  prompts: {},
  resources: { subscribe: true },
  completions: {},
  logging: {},
};

// One request on this SDK; nothing is brought along before 2026-07-28.
const makeStage = (server, extra) => ({
  inputs: {},
  log: (data) => extra.sendNotification({ method: "notifications/message", params: { level: "info", data } }),
  progress: async (progress, total) => {
    const progressToken = extra._meta?.progressToken;
    if (progressToken === undefined) return;
    await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress, total } });
  },
  ask: (request) => extra.sendRequest(request, RESULTS[request.method]),
  close: () => extra.closeSSEStream?.(),
  offers: (capability) => Boolean(server.getClientCapabilities()?.[capability]),
});

const unknown = (what) => new types.McpError(types.ErrorCode.InvalidParams, `Unknown: ${what}`);

function makeServer() {
  const server = new Server({ name: "suite-ts1", version: "1.0.0" }, { capabilities: CAPABILITIES });
  const playing = (kind) => async ({ params }, extra) => {
    const found = steps(kind, params.name);
    if (!found) throw unknown(params.name);
    return play(found, params.arguments ?? {}, makeStage(server, extra));
  };
  const accept = async () => ({});
  server.setRequestHandler(types.ListToolsRequestSchema, async () => ({ tools: definitions("tools") }));
  server.setRequestHandler(types.CallToolRequestSchema, playing("tools"));
  server.setRequestHandler(types.ListPromptsRequestSchema, async () => ({ prompts: definitions("prompts") }));
  server.setRequestHandler(types.GetPromptRequestSchema, playing("prompts"));
  server.setRequestHandler(types.ListResourcesRequestSchema, async () => ({ resources: definitions("resources") }));
  server.setRequestHandler(types.ListResourceTemplatesRequestSchema, async () => ({
    resourceTemplates: definitions("templates"),
  }));
  server.setRequestHandler(types.ReadResourceRequestSchema, async ({ params }) => {
    const result = read(params.uri);
    if (!result) throw unknown(params.uri);
    return result;
  });
  server.setRequestHandler(types.CompleteRequestSchema, async () => SUITE.completion);
  server.setRequestHandler(types.SubscribeRequestSchema, accept);
  server.setRequestHandler(types.UnsubscribeRequestSchema, accept);
  server.setRequestHandler(types.SetLevelRequestSchema, accept);
  return server;
}

const transports = new Map(); // session id -> transport
const app = createMcpExpressApp();
app.all("/mcp", async (request, response) => {
  const known = request.headers["mcp-session-id"];
  let transport = transports.get(known);
  if (known && !transport) {
    response.status(404).json({ jsonrpc: "2.0", id: null, error: { code: -32001, message: "Session not found" } });
    return;
  }
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      eventStore: new InMemoryEventStore(),
      retryInterval: 500,
      onsessioninitialized: (id) => transports.set(id, transport),
    });
    transport.onclose = () => transports.delete(transport.sessionId);
    await makeServer().connect(transport);
  }
  await transport.handleRequest(request, response, request.body);
});
app.listen(Number(process.argv[2]), "127.0.0.1");
