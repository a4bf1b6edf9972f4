// The npm client of the first generation, driven by a test. Usage: drive_sdk.mjs
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { drive } from "./drive.mjs";

async function connect(url, options, onNote, onFault) {
  const client = new Client({ name: "npm-sdk", version: "1.0.0" });
  client.onerror = onFault;
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => onNote(params.data));
  const transport = new StreamableHTTPClientTransport(url, options);
  await client.connect(transport);
  return { client, transport };
}

await drive(connect, new URL("node_modules/@modelcontextprotocol/sdk/package.json", import.meta.url));
