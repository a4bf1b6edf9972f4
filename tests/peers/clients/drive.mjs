// What the driven npm clients share: commands come in, one JSON line each, and what happens goes out with the monotonic time.
// `open` a client object under a name, `call` a tool on it, `close` it. Ends when stdin does.
// With `stale`, a session id, `open` sends that along with `initialize`, as some gateways do.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const say = (event, what) => console.log(JSON.stringify({ at: Number(process.hrtime.bigint()) / 1e9, event, ...what }));

const fetchWith = (stale) => (url, init) => {
  const headers = new Headers(init?.headers);
  if (stale && !headers.has("mcp-session-id")) headers.set("mcp-session-id", stale);
  return fetch(url, { ...init, headers });
};

// `connect(url, options, onNote, onFault)`, the options those of the transport, resolves to { client, transport }; `manifest` is the URL of the SDK's package.json.
export async function drive(connect, manifest) {
  const { name: package_, version } = JSON.parse(readFileSync(manifest, "utf8"));
  say("ready", { package: package_, version });
  const opened = new Map();
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    const name = command.client;
    if (command.do === "open") {
      const onNote = (data) => say("note", { client: name, text: data?.msg ?? data });
      const onFault = (error) => say("fault", { client: name, text: String(error).slice(0, 300) });
      connect(new URL(command.url), { fetch: fetchWith(command.stale) }, onNote, onFault).then(
        (both) => {
          opened.set(name, both);
          say("opened", { client: name });
        },
        (error) => say("failed", { client: name, text: String(error).slice(0, 600) }),
      );
    } else if (command.do === "call") {
      opened.get(name).client.callTool({ name: command.tool, arguments: command.arguments }).then(
        (result) => say("result", { key: command.key, text: result.content[0].text }),
        (error) => say("error", { key: command.key, code: error.data?.status ?? error.code ?? null, text: String(error).slice(0, 600) }),
      );
    } else {
      const { client, transport } = opened.get(name);
      transport
        .terminateSession()
        .then(() => client.close())
        .then(
          () => say("closed", { client: name }),
          (error) => say("failed", { client: name, text: String(error).slice(0, 600) }),
        );
    }
  }
  process.exit(0);
}
