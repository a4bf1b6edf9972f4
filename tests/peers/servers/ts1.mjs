// A server on the first generation of the official TypeScript SDK, with the event store that it ships. Usage: ts1.mjs PORT
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { InMemoryEventStore } from "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import express from "express";
import { z } from "zod";

const port = Number(process.argv[2]);
const transports = new Map(); // session id -> transport

const answer = (text) => ({ content: [{ type: "text", text }] });
const message = (data) => ({ method: "notifications/message", params: { level: "info", data } });

function makeServer() {
  const server = new McpServer({ name: "ts1", version: "1.0.0" }, { capabilities: { logging: {} } });
  const counted = { n: z.number().default(5), ms: z.number().default(100), tag: z.string().default("c") };
  server.registerTool("count", { inputSchema: counted }, async ({ n, ms, tag }, extra) => {
    for (let i = 0; i < n; i++) {
      await extra.sendNotification(message(`${tag}${i}`));
      await sleep(ms);
    }
    return answer(`done ${tag} ${n}`);
  });
  server.registerTool("poll", { inputSchema: { ms: z.number().default(100) } }, async ({ ms }, extra) => {
    await sleep(5); // apart from the priming event: the store's ids only tell milliseconds apart
    await extra.sendNotification(message("before-close"));
    await sleep(50);
    extra.closeSSEStream?.();
    await sleep(ms);
    await extra.sendNotification(message("while-away"));
    await sleep(ms);
    return answer("polled");
  });
  const poked = { n: z.number().default(1), tag: z.string().default("g") };
  server.registerTool("poke", { inputSchema: poked }, async ({ n, tag }) => {
    for (let i = 0; i < n; i++) {
      await server.server.notification(message(`${tag}${i}`));
      await sleep(5);
    }
    return answer("poked");
  });
  return server;
}

const app = express();
app.use(express.json());
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
app.listen(port, "127.0.0.1");
