"""An agent in Agent Engine can be talked to through the bridge.

The engine is Google's own: the container that `adk deploy agent_engine` makes runs this server, with Google's AdkApp behind it.
"""

import asyncio
import json
import sys
import urllib.request
import uuid
from pathlib import Path

import pytest

from checks import equal, true
from program import Program, programs  # noqa: F401, a fixture

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "adk_agents"


@pytest.fixture(scope="module")
async def engine(programs, tmp_path_factory):
    return await Program.start(
        [sys.executable, "-m", "google.adk.cli", "api_server", "--port", "0", "--express_mode"]
        + ["--session_service_uri", "memory://", "--artifact_service_uri", "memory://"]
        + ["--gemini_enterprise_app_name", "scripted", str(AGENTS)],
        r"Uvicorn running on (http://\S+)",
        programs,
        # Nobody is asked with it: the model is scripted.
        GOOGLE_API_KEY="x",
        PYTHONDONTWRITEBYTECODE="1",
    )


@pytest.fixture(scope="module")
async def bridge(request, engine, programs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("bridge")
    (directory / "token").write_text("an-unneeded-token")
    config = directory / "bridge.toml"
    config.write_text(
        f'[agent]\nkind = "agent-engine"\nbase_url = "{engine.url}"\n'
        f'token = {{ kind = "file", path = "{directory}/token" }}\n'
    )
    return await Program.start(
        [request.config.getoption("--bridge"), "serve", "--config", str(config), "--listen", "127.0.0.1:0"]
        + ["--data-dir", str(directory / "data")],
        r"listening on (http://\S+)",
        programs,
    )


def fetch(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


class Chat:
    """A front end that keeps what the bridge has."""

    def __init__(self, bridge, name):
        self.bridge, self.name = bridge, name

    async def messages(self):
        chat = await asyncio.to_thread(fetch, f"{self.bridge.url}/api/chats/{self.name}")
        return json.loads(chat)["messages"]

    async def post(self, messages, **more):
        body = {"id": self.name, "messages": messages, "trigger": "submit-message", **more}
        answer = await asyncio.to_thread(fetch, self.bridge.url + "/api/chat", body)
        lines = [line.removeprefix("data: ") for line in answer.split("\n\n") if line.startswith("data: {")]
        return [json.loads(line) for line in lines]

    async def say(self, text):
        return await self.post([user(text)])

    async def answer(self, change):
        """Posts the last message again, with its open parts changed."""
        message = (await self.messages())[-1]
        for part in message["parts"]:
            if part["type"].startswith("tool-") and part["state"] in ("approval-requested", "input-available"):
                change(part)
        return await self.post([message])

    async def decide(self, approved):
        def change(part):
            part["state"] = "approval-responded"
            part["approval"]["approved"] = approved

        return await self.answer(change)


def user(text):
    return {"id": str(uuid.uuid4()), "role": "user", "parts": [{"type": "text", "text": text}]}


def said(chunks):
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta").strip()


def kinds(chunks):
    return [chunk["type"] for chunk in chunks]


async def method(engine, name, **given):
    body = {"class_method": name, "input": given}
    return json.loads(await asyncio.to_thread(fetch, f"{engine.url}/api/reasoning_engine", body))["output"]


async def test_text_streams_word_by_word(bridge):
    chunks = await Chat(bridge, "text").say("say one two three")
    equal(said(chunks), "one two three")
    equal(kinds(chunks).count("text-delta"), 3)
    finish = [chunk for chunk in chunks if chunk["type"] == "finish"][0]
    equal(finish["finishReason"], "stop")
    true("totalTokens" in json.dumps(chunks) or "totalTokenCount" in json.dumps(chunks), chunks)


async def test_a_conversation_is_one_session(bridge):
    chat = Chat(bridge, "session")
    await chat.say("say hello")
    await chat.say('call set_mood {"mood": "fine_day"}')
    equal(said(await chat.say("history")).split(" | ")[:2], ["user:say hello", "model:hello"])
    true("fine_day" in said(await chat.say("call get_mood {}")), "the state is kept")


async def test_tools_and_their_failures(bridge):
    chat = Chat(bridge, "tools")
    chunks = await chat.say('call get_weather {"city": "Ulm"}')
    output = [chunk["output"] for chunk in chunks if chunk["type"] == "tool-output-available"]
    equal(output, [{"city": "Ulm", "weather": "sunny"}])
    chunks = await chat.say("fail now")
    true("error" in kinds(chunks), chunks)
    equal(said(await chat.say("say still here")), "still here")


@pytest.mark.parametrize("approved", [True, False])
async def test_a_confirmation_is_asked_and_answered(bridge, approved):
    chat = Chat(bridge, f"confirm-{approved}")
    chunks = await chat.say('call pay {"amount": 5, "recipient": "Hanako"}')
    true("tool-approval-request" in kinds(chunks), chunks)
    chunks = await chat.decide(approved)
    part = [part for part in (await chat.messages())[-1]["parts"] if part["type"] == "tool-pay"][0]
    if approved:
        equal(part["output"], {"paid": 5, "recipient": "Hanako"})
        true("paid" in said(chunks), chunks)
    else:
        equal(part["state"], "output-denied")
        true("rejected" in said(chunks), chunks)


async def test_the_front_end_runs_a_long_running_tool(bridge):
    chat = Chat(bridge, "client-tool")
    await chat.say('call pick_color {"question": "Which?"}')

    def change(part):
        part["state"], part["output"] = "output-available", {"some_color": "red"}

    chunks = await chat.answer(change)
    true('"some_color": "red"' in said(chunks), chunks)


async def test_artifacts_are_files(bridge):
    chunks = await Chat(bridge, "artifact").say('call save_note {"note": "remember"}')
    files = [chunk for chunk in chunks if chunk["type"] == "file"]
    equal([file["mediaType"] for file in files], ["image/png", "text/plain"])


@pytest.mark.parametrize("asked", [False, True])
async def test_a_lost_session_is_restored(bridge, engine, asked):
    chat = Chat(bridge, f"lost-{asked}")
    await chat.say('call set_mood {"mood": "kept"}')
    if asked:
        await chat.say('call pay {"amount": 5}')
    listed = await method(engine, "async_list_sessions", user_id="local")
    for session in listed["sessions"]:
        await method(engine, "async_delete_session", user_id="local", session_id=session["id"])
    if asked:
        # What was approved before the loss is not run by another session unasked.
        chunks = await chat.decide(True)
        true("call the tool again" in said(chunks), chunks)
    history = said(await chat.say("history"))
    true(history.startswith("user:call set_mood"), history)
    true("kept" in said(await chat.say("call get_mood {}")), "the state is restored")
    true("restored" in bridge.log(), "the log says it")


async def test_an_answer_is_made_again_without_what_followed(bridge):
    chat = Chat(bridge, "again")
    await chat.say("say first")
    await chat.say("say second")
    messages = await chat.messages()
    chunks = await chat.post([*messages[:2], user("history")], trigger="submit-message", messageId=messages[2]["id"])
    equal(said(chunks), "user:say first | model:first")
    equal(said(await chat.say("say on")), "on")
    equal(said(await chat.say("history")).count("say on"), 1)


async def test_a_deleted_chat_is_forgotten(bridge, engine):
    chat = Chat(bridge, "deleted")
    before = {session["id"] for session in (await method(engine, "async_list_sessions", user_id="local"))["sessions"]}
    await chat.say("say hello")
    after = (await method(engine, "async_list_sessions", user_id="local"))["sessions"]
    new = {session["id"] for session in after} - before
    equal(len(new), 1)
    await asyncio.to_thread(fetch, f"{bridge.url}/api/chats/deleted", None, "DELETE")
    for _ in range(200):
        left = (await method(engine, "async_list_sessions", user_id="local"))["sessions"]
        if not new & {session["id"] for session in left}:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the session is still there")
