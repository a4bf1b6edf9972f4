// What the official conformance suite calls (suite.json), played alike by the servers of both TypeScript SDKs.
//
// A stage is what an SDK gives to one request: log, progress, ask and close reach the client, offers says whether it
// has a capability; inputs and state are what it brought along when it was asked for more before.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export const SUITE = JSON.parse(readFileSync(new URL("suite.json", import.meta.url)));
const CAPABILITY = {
  "elicitation/create": "elicitation",
  "sampling/createMessage": "sampling",
  "roots/list": "roots",
};

// The client lacks capabilities that the request needs.
export class Missing extends Error {
  constructor(capabilities) {
    super(`the client lacks ${Object.keys(capabilities)}`);
    this.capabilities = capabilities;
  }
}

// What a list request answers.
export const definitions = (kind) => SUITE[kind].map((each) => each.definition);

// The steps of a tool or a prompt, undefined for an unknown name.
export const steps = (kind, name) => SUITE[kind].find((each) => each.definition.name === name)?.steps;

const quoted = (text) => JSON.stringify(text).slice(1, -1);

// `value` with ${name} replaced in all its texts.
const filled = (value, words) =>
  JSON.parse(JSON.stringify(value).replace(/\$\{(\w+)\}/g, (_, name) => quoted(words[name] ?? "")));

const asWord = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const asWords = (values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, asWord(value)]));

// The answer of a tool or prompt, or what is still needed, as a result in wire form.
export async function play(steps, args, stage) {
  const needed = await stillNeeded(steps.filter((step) => step.need), stage);
  if (needed) return needed;
  const words = { ...asWords(args), ...asWords(stage.inputs) };
  for (const step of steps) {
    if (step.log) await stage.log(step.log);
    if (step.progress) await stage.progress(...step.progress);
    if (step.wait_ms) await sleep(step.wait_ms);
    if (step.ask) words.reply = asWord(await stage.ask(filled(step.ask, words)));
    if (step.close) await stage.close();
    if (step.require && !Object.keys(step.require).every(stage.offers)) throw new Missing(step.require);
    if (step.answer) return filled(step.answer, words);
  }
  throw new Error("no answer in these steps");
}

// The result that asks for the next thing needed, undefined if the client brought it all.
async function stillNeeded(rounds, stage) {
  const current = Math.max(0, rounds.findIndex((each) => each.state === stage.state));
  for (const each of rounds.slice(current)) {
    const wanted = Object.entries(each.need).filter(([, request]) => stage.offers(CAPABILITY[request.method]));
    if (wanted.every(([name]) => name in stage.inputs)) continue;
    const state = each.state ? { requestState: await stage.seal(each.state) } : {};
    return { resultType: "input_required", inputRequests: Object.fromEntries(wanted), ...state };
  }
}

// The result for a resource, undefined for an unknown one.
export function read(uri) {
  const fixed = SUITE.resources.find((each) => each.definition.uri === uri);
  if (fixed) return contents(uri, fixed, {});
  for (const each of SUITE.templates) {
    const found = uri.match(new RegExp(each.pattern));
    if (found) return contents(uri, each, { id: found[1] });
  }
}

const contents = (uri, resource, words) => ({
  contents: [{ uri, mimeType: resource.definition.mimeType, ...filled(resource.contents, words) }],
});
