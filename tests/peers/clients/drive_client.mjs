// The npm client of the second generation, driven by a test. Usage: drive_client.mjs
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { drive } from "./drive.mjs";

async function connect(url, options, onNote, onFault) {
  const client = new Client({ name: "npm-client", version: "1.0.0" });
  client.onerror = onFault;
  client.setNotificationHandler("notifications/message", ({ params }) => onNote(params.data));
  const transport = new StreamableHTTPClientTransport(url, options);
  await client.connect(transport);
  return { client, transport };
}

await drive(connect, new URL("node_modules/@modelcontextprotocol/client/package.json", import.meta.url));
