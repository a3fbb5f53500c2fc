"""A real ADK server can be spoken with through the bridge.

The model of the ADK server is a scripted Gemini. Google's client speaks TLS only, so a plain relay in this process stands
between the two.
"""

import asyncio
import base64
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

import pytest
from websockets.asyncio.client import connect

from checks import equal, true
from program import Program, programs  # noqa: F401, a fixture
from relay import make_certificate, relay_to
from speech import silence, tones

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "adk_agents"
# Between the ADK server and its model.
LINES = []


@pytest.fixture(scope="module")
async def adk(gemini, programs, tmp_path_factory):
    """A real ADK server."""
    model = urlparse(gemini)
    trusted = tmp_path_factory.mktemp("trusted") / "trusted.pem"
    relay = await asyncio.start_server(
        lambda *ends: relayed(model, *ends), "127.0.0.1", 0, ssl=make_certificate(trusted)
    )
    port = relay.sockets[0].getsockname()[1]
    server = await Program.start(
        [sys.executable, "-m", "google.adk.cli", "api_server", "--port", "0"]
        + ["--session_service_uri", "memory://", "--artifact_service_uri", "memory://", str(AGENTS)],
        r"Uvicorn running on (http://\S+)",
        programs,
        GOOGLE_API_KEY="x",
        GOOGLE_GEMINI_BASE_URL=f"https://127.0.0.1:{port}",
        SSL_CERT_FILE=str(trusted),
        PYTHONDONTWRITEBYTECODE="1",
    )
    yield server
    relay.close()


@pytest.fixture(scope="module")
async def bridges(request, adk, programs, tmp_path_factory):
    """A bridge for each of some apps of the ADK server."""
    directory = tmp_path_factory.mktemp("bridges")
    started = {}
    for app in ["spoken", "speaker", "third", "scripted"]:
        config = directory / f"{app}.toml"
        config.write_text(f'[agent]\nkind = "adk"\nbase_url = "{adk.url}"\napp = "{app}"\n')
        started[app] = await Program.start(
            [request.config.getoption("--bridge"), "serve", "--config", str(config), "--listen", "127.0.0.1:0"]
            + ["--data-dir", str(directory / app)],
            r"listening on (http://\S+)",
            programs,
        )
    return started


async def relayed(model, reader, writer):
    LINES.append(writer)
    await relay_to(model.hostname, model.port, reader, writer)


def cut():
    """Cuts the lines between the ADK server and its model."""
    while LINES:
        LINES.pop().transport.abort()


class Live:
    """A client of `/live`."""

    def __init__(self, bridge, chat):
        self.bridge, self.chat = bridge, chat

    async def __aenter__(self):
        self.socket = await connect(f"{self.bridge.url.replace('http', 'ws', 1)}/live?chat={self.chat}")
        return self

    async def __aexit__(self, *_):
        await self.socket.close()

    async def send(self, **frame):
        await self.socket.send(json.dumps(frame))

    async def audio(self, pcm):
        for at in range(0, len(pcm), 640):
            chunk = base64.b64encode(pcm[at : at + 640]).decode()
            await self.send(type="audio_chunk", chunk=chunk, sampleRate=16000, channels=1, bitDepth=16)

    async def speak(self, text):
        await self.audio(tones(text) + silence(600))

    async def write(self, text):
        message = {"role": "user", "parts": [{"type": "text", "text": text}]}
        await self.send(type="message", messages=[message])

    async def modality(self, modality):
        await self.send(type="modality", modality=modality)

    async def turn(self, until=None):
        """One turn, from its start to its end; it has one end. `until` is the chunk at which lines are cut."""
        turn = Turn()
        while True:
            frame = await self.socket.recv()
            if frame.startswith("data: "):
                turn.take(frame)
                if until is not None and turn.of(until):
                    until = None
                    cut()
                continue
            control = json.loads(frame)
            if control["type"] == "interrupted":
                turn.interrupted = True
            elif control["type"] == "error":
                raise AssertionError(frame)
            elif control["type"] == "turn-end":
                equal(turn.done, 1)
                ends = [chunk["type"] for chunk in turn.chunks if chunk["type"] in ("finish", "abort", "error")]
                true(ends.count("finish") + ends.count("abort") <= 1 and ends, f"ends: {ends}")
                return turn


class Turn:
    def __init__(self):
        self.chunks, self.pcm, self.done, self.interrupted = [], b"", 0, False

    def take(self, frame):
        body = frame.removeprefix("data: ").strip()
        if body == "[DONE]":
            self.done += 1
            return
        chunk = json.loads(body)
        if chunk["type"] == "data-pcm":
            equal(chunk["data"]["sampleRate"], 24000)
            self.pcm += base64.b64decode(chunk["data"]["chunk"])
        else:
            self.chunks.append(chunk)

    def of(self, kind):
        return [chunk for chunk in self.chunks if chunk["type"] == kind]

    @property
    def text(self):
        return "".join(chunk["delta"] for chunk in self.of("text-delta"))

    @property
    def heard(self):
        final = [chunk["data"]["text"] for chunk in self.of("data-transcription") if chunk["data"]["final"]]
        return final[-1] if final else None


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def found(url):
    """What is there, or nothing."""
    try:
        return ask(url)
    except urllib.error.HTTPError:
        return ""


async def get(bridge, path):
    return json.loads(await asyncio.to_thread(ask, bridge.url + path))


async def post(bridge, chat, text):
    message = {"id": f"m-{text}", "role": "user", "parts": [{"type": "text", "text": text}]}
    body = {"id": chat, "messages": [message], "trigger": "submit-message"}
    turn = Turn()
    for line in (await asyncio.to_thread(ask, bridge.url + "/api/chat", body)).split("\n\n"):
        if line.startswith("data: "):
            turn.take(line)
    return turn


@pytest.mark.parametrize("app", ["spoken", "third"])
async def test_it_hears_and_speaks(bridges, app):
    bridge = bridges[app]
    async with Live(bridge, "hears") as live:
        for words in ["hello", "and again"]:
            await live.speak(f"say {words}")
            turn = await live.turn()
            equal((turn.heard, turn.text), (f"say {words}", words))
            true(len(turn.pcm) > 1000, "it sounds")
    messages = (await get(bridge, "/api/chats/hears"))["messages"]
    said = [(it["role"], "".join(part.get("text", "") for part in it["parts"])) for it in messages]
    equal(said, [("user", "say hello"), ("assistant", "hello"), ("user", "say and again"), ("assistant", "and again")])


async def test_it_writes(bridges):
    for app in ["spoken", "speaker", "third"]:
        async with Live(bridges[app], "writes") as live:
            await live.modality("text")
            await live.write("say some written words")
            turn = await live.turn()
            equal((turn.text, turn.pcm), ("some written words", b""))


@pytest.mark.parametrize("app", ["spoken", "third"])
async def test_its_own_tools_run(bridges, app):
    async with Live(bridges[app], "tools") as live:
        await live.modality("audio")
        for _ in range(2):
            await live.write('call get_weather {"city":"Tokyo"}')
            turn = await live.turn()
            outputs = [chunk["output"] for chunk in turn.of("tool-output-available")]
            equal(outputs, [{"city": "Tokyo", "weather": "sunny"}])
            # All that a model says about one question is one turn, what it says during its calls included.
            true("sunny" in turn.text, turn.text)
        await live.speak('call wait {"seconds":0.5} && call get_weather {"city":"Oslo"}')
        turn = await live.turn()
        equal(len(turn.of("tool-output-available")), 2)
        true(turn.text, "it tells")


async def test_what_its_tools_save_is_shown(bridges):
    async with Live(bridges["spoken"], "saves") as live:
        await live.modality("audio")
        await live.write('call save_note {"note":"remember"}')
        turn = await live.turn()
        equal([chunk["mediaType"] for chunk in turn.of("file")], ["image/png", "text/plain", "audio/wav"])
        true(turn.text, "it tells")
        await live.speak("say still here")
        equal((await live.turn()).text, "still here")


async def test_a_model_that_goes_away_behind_the_server(bridges):
    async with Live(bridges["spoken"], "away") as live:
        await live.speak("say before")
        equal((await live.turn()).text, "before")
        await live.write("go away 1s once then say warned")
        # ADK takes another connection to it, which knows nothing of the question, and does not tell.
        turn = await live.turn()
        true(turn.text == "warned" or turn.of("error"), turn.chunks)
        await live.speak("say after")
        equal((await live.turn()).text, "after")


async def test_a_long_running_tool_is_the_front_ends(bridges):
    async with Live(bridges["spoken"], "client") as live:
        await live.speak('call pick_color {"question":"which?"}')
        turn = await live.turn()
        (call,) = turn.of("tool-input-available")
        equal((call["toolName"], call["input"]), ("pick_color", {"question": "which?"}))
        await live.send(type="tool_result", toolCallId=call["toolCallId"], result={"color": "red"})
        turn = await live.turn()
        true("red" in turn.text and turn.pcm, turn.text)
        await live.speak("say still here")
        equal((await live.turn()).text, "still here")


async def test_a_long_running_tool_beside_one_of_the_server(bridges):
    async with Live(bridges["spoken"], "beside") as live:
        await live.modality("audio")
        await live.write('call get_weather {"city":"Tokyo"} && call pick_color {"question":"which?"}')
        turn = await live.turn()
        calls = {chunk["toolName"]: chunk["toolCallId"] for chunk in turn.of("tool-input-available")}
        equal([chunk["toolCallId"] for chunk in turn.of("tool-output-available")], [calls["get_weather"]])
        await live.send(type="tool_result", toolCallId=calls["pick_color"], result={"color": "blue"})
        turn = await live.turn()
        true(turn.of("finish"), turn.chunks)


async def test_what_cannot_be_asked_about_is_not_run(bridges):
    bridge = bridges["spoken"]
    async with Live(bridge, "unasked") as live:
        await live.modality("audio")
        await live.write('call pay {"amount":50}')
        turn = await live.turn()
        (error,) = turn.of("tool-output-error")
        true(error["errorText"].startswith("not run: "), error)
        equal((turn.of("tool-output-available"), turn.of("tool-approval-request")), ([], []))
    kinds = [row["kind"] for row in await get(bridge, "/api/audit?chat=unasked")]
    equal(kinds, ["approval.unsupported"])


async def test_a_request_over_http_has_the_session_to_itself(bridges, adk):
    bridge = bridges["spoken"]
    async with Live(bridge, "both") as live:
        for round in range(3):
            await live.speak(f"say spoken {round}")
            equal((await live.turn()).text, f"spoken {round}")
            turn = await post(bridge, "both", f"say written {round}")
            equal((turn.text, turn.pcm), (f"written {round}", b""))
    session = json.loads(await asyncio.to_thread(ask, f"{adk.url}/apps/spoken/users/local/sessions/both"))
    said = json.dumps(session["events"])
    for round in range(3):
        true(f"spoken {round}" in said and f"written {round}" in said, said)


async def test_speech_during_a_request_is_heard_after_it(bridges, adk):
    bridge = bridges["spoken"]
    session = f"{adk.url}/apps/spoken/users/local/sessions/during"
    async with Live(bridge, "during") as live:
        request = asyncio.create_task(post(bridge, "during", 'call wait {"seconds":2}'))
        while "functionCall" not in await asyncio.to_thread(found, session):
            await asyncio.sleep(0.05)
        await live.speak("say heard later")
        equal(len((await request).of("tool-output-available")), 1)
        turn = await live.turn()
        equal((turn.heard, turn.text), ("say heard later", "heard later"))


async def test_what_needs_approval_is_asked_in_writing(bridges):
    bridge = bridges["spoken"]
    async with Live(bridge, "approve") as live:
        await live.write('call pay {"amount":50}')
        turn = await live.turn()
        (question,) = turn.of("tool-approval-request")
        # A conversation by voice may go on meanwhile.
        await live.modality("audio")
        await live.send(type="tool_result", toolCallId=question["toolCallId"], status="approved")
        turn = await live.turn()
        (output,) = turn.of("tool-output-available")
        equal(output["output"], {"paid": 50, "recipient": "nobody"})


async def test_lost_connections_are_opened_again(bridges):
    async with Live(bridges["spoken"], "lost") as live:
        await live.speak("say before")
        equal((await live.turn()).text, "before")
        cut()
        await live.speak("say between")
        equal((await live.turn()).text, "between")
        await live.write('call wait {"seconds":2}')
        turn = await live.turn(until="tool-input-available")
        # The tool comes to its end; what the model has to say about it may come in a turn of its own.
        equal([chunk["output"] for chunk in turn.of("tool-output-available")], [{"waited": 2}])
        await live.speak("say after")
        while (await live.turn()).text != "after":
            pass
        await live.write("say bye")
        equal((await live.turn()).text, "bye")


async def test_a_question_that_breaks_every_connection_is_given_up(bridges):
    async with Live(bridges["spoken"], "poison") as live:
        await live.modality("audio")
        await live.write("drop")
        turn = await live.turn()
        (error,) = turn.of("error")
        true("ADK server" in error["errorText"], error)


async def test_who_cannot_be_spoken_with_says_so(bridges):
    async with Live(bridges["scripted"], "mute") as live:
        await live.modality("audio")
        while True:
            frame = await live.socket.recv()
            if '"error"' in frame:
                true("ADK server" in frame, frame)
                break
        await live.write("say but it writes")
        equal((await live.turn()).text.strip(), "but it writes")
