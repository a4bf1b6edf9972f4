"""What the official conformance suite calls (suite.json), played alike by the servers of both Python SDKs.

A stage is what an SDK gives to one request: `log`, `progress`, `ask` and `close` reach the client, `offers` says
whether it has a capability; `inputs` and `state` are what it brought along when it was asked for more before.
"""

import json
import re
from pathlib import Path

import anyio

SUITE = json.loads(Path(__file__).with_name("suite.json").read_text())
CAPABILITY = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class Missing(Exception):
    """The client lacks capabilities that the request needs."""


def definitions(kind):
    """What a list request answers."""
    return [each["definition"] for each in SUITE[kind]]


def steps(kind, name):
    """The steps of a tool or a prompt, None for an unknown name."""
    return next((each["steps"] for each in SUITE[kind] if each["definition"]["name"] == name), None)


def filled(value, words):
    """`value` with `${name}` replaced in all its texts."""
    text = re.sub(r"\$\{(\w+)\}", lambda found: json.dumps(words.get(found[1], ""))[1:-1], json.dumps(value))
    return json.loads(text)


async def play(steps, arguments, stage):
    """The answer of a tool or prompt, or what is still needed, as a result in wire form."""
    words = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in arguments.items()
    }
    needed = still_needed([step for step in steps if "need" in step], stage)
    if needed is not None:
        return needed
    words.update({name: json.dumps(value) for name, value in stage.inputs.items()})
    for step in steps:
        match step:
            case {"log": text}:
                await stage.log(text)
            case {"progress": [done, total]}:
                await stage.progress(done, total)
            case {"wait_ms": ms}:
                await anyio.sleep(ms / 1000)
            case {"ask": request}:
                words["reply"] = json.dumps(await stage.ask(filled(request, words)))
            case {"close": True}:
                await stage.close()
            case {"require": capabilities}:
                if not all(stage.offers(name) for name in capabilities):
                    raise Missing(capabilities)
            case {"answer": answer}:
                return filled(answer, words)
    raise AssertionError("no answer in these steps")


def still_needed(rounds, stage):
    """The result that asks for the next thing needed, None if the client brought it all."""
    current = next((i for i, each in enumerate(rounds) if each.get("state") == stage.state), 0)
    for each in rounds[current:]:
        wanted = {
            name: request
            for name, request in each["need"].items()
            if stage.offers(CAPABILITY[request["method"]])
        }
        if not wanted.keys() <= stage.inputs.keys():
            state = {"requestState": each["state"]} if "state" in each else {}
            return {"resultType": "input_required", "inputRequests": wanted, **state}
    return None


def read(uri):
    """The result for a resource, None for an unknown one."""
    for each in SUITE["resources"]:
        if each["definition"]["uri"] == uri:
            return contents(uri, each, {})
    for each in SUITE["templates"]:
        if found := re.match(each["pattern"], uri):
            return contents(uri, each, {"id": found[1]})
    return None


def contents(uri, resource, words):
    """A resource's contents under its URI."""
    mime = resource["definition"]["mimeType"]
    return {"contents": [{"uri": uri, "mimeType": mime, **filled(resource["contents"], words)}]}
