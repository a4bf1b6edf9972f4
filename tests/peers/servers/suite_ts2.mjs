// The suite's server on the second generation of the official TypeScript SDK. Usage: suite_ts2.mjs PORT
//
// Requests of 2026-07-28 have no session, each gets a server of its own; those before have one.
import { randomBytes, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from "@modelcontextprotocol/node";
import {
  MissingRequiredClientCapabilityError,
  ProtocolError,
  Server,
  WebStandardStreamableHTTPServerTransport,
  createMcpHandler,
  createRequestStateCodec,
  isLegacyRequest,
} from "@modelcontextprotocol/server";
import { Missing, SUITE, definitions, play, read, steps } from "./suite.mjs";

const INVALID_PARAMS = -32602;
const CAPABILITIES = {
  tools: {},
  prompts: {},
  resources: { subscribe: true },
  completions: {},
  logging: {},
};
const codec = createRequestStateCodec({ key: randomBytes(32) });

// Numbers the events of each stream from one: STREAM_NUMBER.
class CountingStore {
  streams = new Map();

  async storeEvent(stream, message) {
    const messages = this.streams.get(stream) ?? [];
    this.streams.set(stream, messages);
    return `${stream}_${messages.push(message)}`;
  }

  async getStreamIdForEventId(id) {
    const stream = id.slice(0, id.lastIndexOf("_"));
    return this.streams.has(stream) ? stream : undefined;
  }

  async replayEventsAfter(id, { send }) {
    const stream = await this.getStreamIdForEventId(id);
    const after = Number(id.slice(id.lastIndexOf("_") + 1));
    for (const [index, message] of (this.streams.get(stream) ?? []).entries()) {
      if (index >= after) await send(`${stream}_${index + 1}`, message);
    }
    return stream;
  }
}

// One request on this SDK.
const makeStage = (server, context) => ({
  inputs: context.mcpReq.inputResponses ?? {},
  state: context.mcpReq.requestState(),
  seal: (state) => codec.mint(state, context),
  log: (text) => context.mcpReq.log("info", text),
  progress: async (progress, total) => {
    const progressToken = context.mcpReq._meta?.progressToken;
    if (progressToken === undefined) return;
    await context.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total } });
  },
  ask: (request) => context.mcpReq.send(request),
  close: () => context.http?.closeSSE?.(),
  offers: (capability) => {
    const declared = context.mcpReq.envelope?.["io.modelcontextprotocol/clientCapabilities"];
    return Boolean((declared ?? server.getClientCapabilities())?.[capability]);
  },
});

function makeServer() {
  const server = new Server(
    { name: "suite-ts2", version: "1.0.0" },
    { capabilities: CAPABILITIES, requestState: { verify: codec.verify } },
  );
  const playing = (kind) => async ({ params }, context) => {
    const found = steps(kind, params.name);
    if (!found) throw new ProtocolError(INVALID_PARAMS, `Unknown: ${params.name}`);
    try {
      return await play(found, params.arguments ?? {}, makeStage(server, context));
    } catch (error) {
      if (!(error instanceof Missing)) throw error;
      throw new MissingRequiredClientCapabilityError({ requiredCapabilities: error.capabilities });
    }
  };
  const accept = async () => ({});
  server.setRequestHandler("tools/list", async () => ({ tools: definitions("tools") }));
  server.setRequestHandler("tools/call", playing("tools"));
  server.setRequestHandler("prompts/list", async () => ({ prompts: definitions("prompts") }));
  server.setRequestHandler("prompts/get", playing("prompts"));
  server.setRequestHandler("resources/list", async () => ({ resources: definitions("resources") }));
  server.setRequestHandler("resources/templates/list", async () => ({ resourceTemplates: definitions("templates") }));
  server.setRequestHandler("resources/read", async ({ params }) => {
    const result = read(params.uri);
    if (!result) throw new ProtocolError(INVALID_PARAMS, "Resource not found", { uri: params.uri });
    return result;
  });
  server.setRequestHandler("completion/complete", async () => SUITE.completion);
  server.setRequestHandler("resources/subscribe", accept);
  server.setRequestHandler("resources/unsubscribe", accept);
  server.setRequestHandler("logging/setLevel", accept);
  return server;
}

const transports = new Map(); // session id -> transport

async function serveSession(request) {
  const known = request.headers.get("mcp-session-id");
  let transport = transports.get(known);
  if (known && !transport) {
    const error = { code: -32001, message: "Session not found" };
    return Response.json({ jsonrpc: "2.0", id: null, error }, { status: 404 });
  }
  if (!transport) {
    transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      eventStore: new CountingStore(),
      retryInterval: 500,
      onsessioninitialized: (id) => transports.set(id, transport),
      onsessionclosed: (id) => transports.delete(id),
    });
    await makeServer().connect(transport);
  }
  return transport.handleRequest(request);
}

const sessionless = createMcpHandler(makeServer, { legacy: "reject" });
const serve = toNodeHandler({
  fetch: async (request) => ((await isLegacyRequest(request)) ? serveSession(request) : sessionless.fetch(request)),
});
const hostIsLocal = localhostHostValidation();
const originIsLocal = localhostOriginValidation();

createServer((request, response) => {
  if (!hostIsLocal(request, response) || !originIsLocal(request, response)) return;
  if (new URL(request.url, "http://localhost").pathname !== "/mcp") {
    response.writeHead(404).end();
    return;
  }
  serve(request, response);
}).listen(Number(process.argv[2]), "127.0.0.1");
