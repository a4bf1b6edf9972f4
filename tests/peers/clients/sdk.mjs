// A session of the npm client of the first generation. Usage: sdk.mjs URL; prints what it saw as one JSON line.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { session } from "./session.mjs";

const client = new Client({ name: "npm-sdk", version: "1.0.0" });
const subscribe = (seen) => client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => seen(params.data));
await session(client, new StreamableHTTPClientTransport(new URL(process.argv[2])), subscribe);
