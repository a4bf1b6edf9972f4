// A session of the npm client of the second generation. Usage: client.mjs URL; prints what it saw as one JSON line.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { session } from "./session.mjs";

const client = new Client({ name: "npm-client", version: "1.0.0" });
const subscribe = (seen) => client.setNotificationHandler("notifications/message", ({ params }) => seen(params.data));
await session(client, new StreamableHTTPClientTransport(new URL(process.argv[2])), subscribe);
