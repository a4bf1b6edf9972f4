// What every client does in the peer tests: a streamed call, a call whose stream the server closes, standalone notifications, DELETE.
import { once, EventEmitter } from "node:events";

const POKED = ["g0", "g1", "g2"];

export async function session(client, transport, subscribe) {
  const notes = [];
  const arrived = new EventEmitter();
  const errors = [];
  client.onerror = (error) => errors.push(String(error));
  subscribe((data) => {
    notes.push(data.msg ?? data); // fastmcp's servers wrap the text in an object
    arrived.emit("note");
  });
  await client.connect(transport);
  const call = async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text;
  const results = [await call("count", { n: 3 }), await call("poll", {})];
  results.push(await call("poke", { n: POKED.length }));
  while (!POKED.every((text) => notes.includes(text))) {
    await once(arrived, "note", { signal: AbortSignal.timeout(10_000) });
  }
  const sessionId = transport.sessionId;
  await transport.terminateSession();
  await client.close();
  console.log(JSON.stringify({ results, notes: notes.sort(), session: Boolean(sessionId), errors }));
}
