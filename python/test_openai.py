"""A bridge before a scripted server of chat completions, judged by OpenAI's own package.

The server holds every request against OpenAI's types, without a field more than they have; OpenAI's client reads its answers.
"""

import base64
import collections.abc
import json
import os
import re
import subprocess
import threading
import types
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, NotRequired, Required, Union, get_args, get_origin

import openai
import pytest
from openai.types.chat import completion_create_params
from pydantic import TypeAdapter
from typing_extensions import get_type_hints, is_typeddict

from checks import equal, true

FIXTURES = json.loads((Path(__file__).parent.parent / "fixtures/openai/streams.json").read_text())
# A picture of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

REQUEST = completion_create_params.CompletionCreateParamsStreaming


def fits(value, kind):
    """Whether a value is of one of OpenAI's types at every depth. Pydantic alone looks into no list that is an Iterable, and
    forgives fields that nobody knows."""
    origin, options = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired, Annotated):
        return fits(value, options[0])
    if origin is collections.abc.Iterable or origin is list:
        return isinstance(value, list) and all(fits(item, options[0]) for item in value)
    if origin in (Union, types.UnionType):
        return any(fits(value, option) for option in options)
    if is_typeddict(kind):
        fields = get_type_hints(kind, include_extras=True)
        required = {name for name, field in fields.items() if get_origin(field) is Required}
        if not isinstance(value, dict) or not required <= set(value) <= set(fields):
            return False
        return all(fits(item, fields[name]) for name, item in value.items())
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValueError:
        return False
    return True


def chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [choice]}


USAGE = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}


def called(index, name, arguments):
    """A call whose arguments come in two pieces."""
    first, second = arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]
    begin = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": first}}
    yield chunk({"tool_calls": [begin]})
    yield chunk({"tool_calls": [{"index": index, "function": {"arguments": second}}]})


def answer(messages):
    """What the scripted model says to a conversation."""
    last = messages[-1]
    words = last["content"] if isinstance(last["content"], str) else "a picture"
    if last["role"] == "tool":
        yield chunk({"role": "assistant", "content": "The results: "})
        results = [message["content"] for message in messages if message["role"] == "tool"]
        yield chunk({"content": " and ".join(results)})
        yield chunk({}, "stop")
    elif "pay and roll" in words:
        yield chunk({"role": "assistant", "content": None})
        yield from called(0, "process_payment", '{"amount": 5, "recipient": "Ann"}')
        yield from called(1, "roll_dice", '{"count": 2}')
        yield chunk({}, "tool_calls")
    else:
        yield chunk({"role": "assistant", "content": ""})
        yield chunk({"content": f"You sent {words}."})
        yield chunk({}, "stop")
    yield USAGE


class Server(ThreadingHTTPServer):
    """Answers as scripted, or with one of the fixtures if the model is named so; keeps what it was asked."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.problems = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/chat/completions":
            self.send_error(404)
            return
        self.server.asked.append(body)
        try:
            true(fits(body, REQUEST), "not a request that OpenAI knows")
            check_order(body["messages"])
        except AssertionError as problem:
            self.server.problems.append((body, problem))
        fixture = re.fullmatch(r"fixture-(\d+)", body["model"])
        events = FIXTURES[int(fixture[1])]["events"] if fixture else [*answer(body["messages"]), "data: [DONE]\n\n"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write((event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n").encode())

    def log_message(self, *_):
        pass


def check_order(messages):
    """Every call has one result, directly behind it, as OpenAI demands."""
    expected = []
    for message in messages:
        if message["role"] == "tool":
            equal(message["tool_call_id"], expected.pop(0))
        else:
            equal(expected, [])
            expected = [call["id"] for call in message.get("tool_calls", [])]
    equal(expected, [])


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def bridge(request, server, tmp_path_factory):
    """The address of a bridge whose model is the scripted one."""
    directory = tmp_path_factory.mktemp("bridge")
    config = directory / "bridge.toml"
    config.write_text(
        f'[agent]\nkind = "openai"\nmodel = "scripted"\nbase_url = "{server.url}"\ninstruction = "Be brief."\n'
        'tools = ["process_payment", "roll_dice"]\n'
    )
    command = [
        request.config.getoption("--bridge"),
        "serve",
        "--config",
        config,
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        directory / "data",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "RUST_LOG": "warn"}
    ) as program:
        try:
            line = program.stdout.readline().strip()
            true(line.startswith("listening on "), f"the bridge did not say where it listens: {line!r}")
            yield line.removeprefix("listening on ").rstrip("/")
        finally:
            program.kill()


def post(bridge, chat, messages):
    """The chunks of an answer, and the message that is stored then."""
    body = json.dumps({"id": chat, "messages": messages}).encode()
    request = urllib.request.Request(f"{bridge}/api/chat", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        lines = [line.decode().strip().removeprefix("data: ") for line in response if line.strip()]
    equal(lines[-1], "[DONE]")
    with urllib.request.urlopen(f"{bridge}/api/chats/{chat}", timeout=60) as response:
        stored = json.load(response)["messages"][-1]
    return [json.loads(line) for line in lines[:-1] if line.startswith("{")], stored


def user(*parts):
    return {"id": "u", "role": "user", "parts": list(parts)}


def test_the_client_of_openai_reads_the_scripted_server(server):
    client = openai.OpenAI(base_url=server.url, api_key="x", max_retries=0)
    question = [{"role": "user", "content": "pay and roll"}]
    with client.chat.completions.stream(
        model="scripted", messages=question, stream_options={"include_usage": True}
    ) as stream:
        completion = stream.get_final_completion()
    calls = completion.choices[0].message.tool_calls
    equal([call.function.name for call in calls], ["process_payment", "roll_dice"])
    equal(json.loads(calls[0].function.arguments), {"amount": 5, "recipient": "Ann"})
    equal(completion.usage.total_tokens, 5)


OFFICIAL = [index for index, case in enumerate(FIXTURES) if case.get("official")]


@pytest.mark.parametrize("index", OFFICIAL, ids=[FIXTURES[index]["name"] for index in OFFICIAL])
def test_the_client_of_openai_reads_the_fixtures_as_the_bridge_does(server, index):
    says = FIXTURES[index]["says"]
    client = openai.OpenAI(base_url=server.url, api_key="x", max_retries=0)
    stream = client.chat.completions.create(
        model=f"fixture-{index}", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    text, calls, finish = "", {}, None
    for event in stream:
        for choice in event.choices:
            text += (choice.delta.content or "") + (choice.delta.refusal or "")
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(piece.index, ["", ""])
                call[0] += piece.function.name or ""
                call[1] += piece.function.arguments or ""
    equal(text, says.get("text", ""))
    equal([[name, json.loads(arguments or "{}")] for name, arguments in calls.values()], says.get("calls", []))
    true(finish is not None, "the answer ends")


@pytest.mark.parametrize("approved", [True, False])
def test_requests_are_what_openai_takes(server, bridge, approved):
    chat = f"chat-{approved}"
    question = user({"type": "text", "text": "pay and roll"})
    chunks, message = post(bridge, chat, [question])
    true(any(chunk["type"] == "tool-approval-request" for chunk in chunks), chunks)
    asked = next(part for part in message["parts"] if part["type"] == "tool-process_payment")
    asked["state"] = "approval-responded"
    asked["approval"]["approved"] = approved
    _, message = post(bridge, chat, [question, message])
    said = message["parts"][-1]["text"]
    true(said.startswith("The results: "), message)
    equal("denied this call" in said, not approved)
    picture = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PIXEL}"}
    document = {
        "type": "file",
        "mediaType": "application/pdf",
        "url": "data:application/pdf;base64," + base64.b64encode(b"%PDF-").decode(),
    }
    sound = {
        "type": "file",
        "mediaType": "audio/wav",
        "url": "data:audio/wav;base64," + base64.b64encode(b"RIFF").decode(),
    }
    chunks, message = post(bridge, chat, [user({"type": "text", "text": "look"}, picture, document, sound)])
    true("You sent a picture." in json.dumps(message), message)
    kinds = [piece["type"] for piece in server.asked[-1]["messages"][-1]["content"]]
    equal(kinds, ["text", "image_url", "file", "input_audio"])
    equal(message["metadata"]["usage"]["totalTokens"], 5)
    equal(server.problems, [])


def test_the_judge_judges():
    """A request that OpenAI would refuse is one that the server notes."""
    fine = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    true(fits(fine, REQUEST), "it is fine")
    for change in [
        {"colour": "red"},
        {"model": None},
        {"stream": "yes"},
        {"messages": [{"role": "user", "content": "hi", "mood": "good"}]},
        {"messages": [{"role": "nobody", "content": "hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "picture", "url": "x"}]}]},
        {"messages": [{"role": "tool", "content": "{}"}]},
        {"tools": [{"type": "function"}]},
        {"tools": [{"type": "function", "function": {"description": "nameless"}}]},
    ]:
        true(not fits({**fine, **change}, REQUEST), change)
    with pytest.raises(AssertionError):
        check_order([{"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "user", "content": "hi"}])
