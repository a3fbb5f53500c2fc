"""Google's own live client works, unmodified, against the scripted Gemini.

Google's client speaks TLS only, so a plain relay in this process stands between the two.
"""

import asyncio
import math
import ssl
import struct
from urllib.parse import urlparse

import pytest
from google import genai
from google.genai import errors, types
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from checks import equal, true
from relay import make_certificate, relay_to
from speech import silence, tones
from test_vertex import Token

# One model of each generation; crates/agents/src/gemini_live/generation.rs says how they differ.
MODEL = "gemini-live-2.5-flash"
EARLY_THIRD_MODEL = "gemini-3.1-flash-live-preview"
THIRD_MODEL = "gemini-3.8-live"
THINKING_MODEL = "gemini-3.8-live-extended-thinking"
MODELS = [MODEL, EARLY_THIRD_MODEL, THIRD_MODEL, THINKING_MODEL]
# The length of a letter of the scripted voice, 60 ms of two bytes each at 24 kHz.
LETTER_BYTES = 2 * 1440

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def options(gemini):
    """How Google's client reaches the scripted Gemini."""
    url = urlparse(gemini)
    relay = await asyncio.start_server(
        lambda *ends: relay_to(url.hostname, url.port, *ends), "127.0.0.1", 0, ssl=make_certificate()
    )
    port = relay.sockets[0].getsockname()[1]
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    yield types.HttpOptions(base_url=f"https://127.0.0.1:{port}", async_client_args={"ssl": trust})
    relay.close()


@pytest.fixture(scope="module")
async def client(options):
    client = genai.Client(api_key="x", http_options=options)
    yield client
    await client.aio.aclose()


def in_vertex(options, token):
    return genai.Client(
        vertexai=True,
        project="my-project",
        location="us-central1",
        credentials=Token(token),
        http_options=options,
    )


async def speak(session, text, pause=600):
    audio = tones(text) + silence(pause)
    for at in range(0, len(audio), 640):
        blob = types.Blob(data=audio[at : at + 640], mime_type="audio/pcm;rate=16000")
        await session.send_realtime_input(audio=blob)


def declare(*names, behavior=None):
    return [
        types.Tool(
            function_declarations=[
                types.FunctionDeclaration(
                    name=name,
                    description="A tool.",
                    parameters_json_schema={"type": "object", "properties": {}},
                    behavior=behavior,
                )
                for name in names
            ]
        )
    ]


def config(modality="AUDIO", **more):
    spoken = {"input_audio_transcription": {}, "output_audio_transcription": {}}
    return types.LiveConnectConfig(response_modalities=[modality], **(spoken if modality == "AUDIO" else {}), **more)


def config_of(model, **more):
    """A configuration that the model takes, whatever its generation."""
    if model == THINKING_MODEL:
        more.setdefault("thinking_config", types.ThinkingConfig(thinking_level="LOW"))
    return config(**more)


def user(text):
    return types.Content(role="user", parts=[types.Part(text=text)])


class Turn:
    """Everything that comes until the turn is complete."""

    def __init__(self):
        self.text = self.heard = self.spoken = ""
        self.audio = b""
        self.calls, self.cancelled = [], []
        self.interrupted = self.generated = False
        self.usage = self.handle = self.going = None
        self.resumable = None
        self.statuses = []

    def take(self, message):
        content = message.server_content
        if content:
            for part in (content.model_turn and content.model_turn.parts) or []:
                self.text += part.text or ""
                self.audio += (part.inline_data and part.inline_data.data) or b""
            if content.input_transcription:
                self.heard += content.input_transcription.text or ""
            if content.output_transcription:
                self.spoken += content.output_transcription.text or ""
            self.interrupted |= bool(content.interrupted)
            self.generated |= bool(content.generation_complete)
            if content.interaction_status:
                self.statuses.append(content.interaction_status.value)
        if message.tool_call:
            self.calls += message.tool_call.function_calls
        if message.tool_call_cancellation:
            self.cancelled += message.tool_call_cancellation.ids
        if message.session_resumption_update:
            self.handle = message.session_resumption_update.new_handle or self.handle
            self.resumable = message.session_resumption_update.resumable
        if message.go_away:
            self.going = message.go_away.time_left
        self.usage = message.usage_metadata or self.usage


async def turn(session, until=lambda turn: False):
    result = Turn()
    async for message in session.receive():
        result.take(message)
        if until(result):
            break
    return result


async def next_handle(session):
    """The handle that follows a turn."""
    message = await session._receive()
    return message.session_resumption_update.new_handle


async def test_text_in_text_out(client):
    async with client.aio.live.connect(model=MODEL, config=config("TEXT")) as session:
        await session.send_client_content(turns=user("say one two three"), turn_complete=True)
        first = await turn(session)
        equal(first.text, "one two three")
        true(first.generated, "generation complete")
        equal(first.usage.response_token_count, 3)
        await session.send_realtime_input(text="say four")
        equal((await turn(session)).text, "four")


async def test_text_in_audio_out(client):
    async with client.aio.live.connect(model=MODEL, config=config()) as session:
        await session.send_client_content(turns=user("say good morning"), turn_complete=True)
        answer = await turn(session)
        equal(answer.text, "")
        equal(answer.spoken, "good morning")
        equal(len(answer.audio), len("good morning") * LETTER_BYTES)
        true(any(answer.audio), "it sounds")


async def test_speech_in_speech_out(client):
    async with client.aio.live.connect(model=MODEL, config=config()) as session:
        for text in ["hello there", "say ünïcödé 日本"]:
            await speak(session, f"say {text}")
            answer = await turn(session)
            equal(answer.heard, f"say {text}")
            equal(answer.spoken, text)
            equal(len(answer.audio), len(text) * LETTER_BYTES)


async def test_a_sound_without_words_is_described(client):
    async with client.aio.live.connect(model=MODEL, config=config()) as session:
        tone = b"".join(struct.pack("<h", int(8000 * math.sin(2 * math.pi * 440 * at / 16000))) for at in range(16000))
        await session.send_realtime_input(audio=types.Blob(data=tone + silence(600), mime_type="audio/pcm;rate=16000"))
        answer = await turn(session)
        true(answer.heard.startswith("a sound of 1.0 seconds"), answer.heard)
        true(answer.spoken, "an answer")


async def test_the_end_of_the_stream_ends_a_turn(client):
    async with client.aio.live.connect(model=MODEL, config=config()) as session:
        await speak(session, "say over", pause=0)
        await session.send_realtime_input(audio_stream_end=True)
        equal((await turn(session)).spoken, "over")


async def test_explicit_activity(client):
    manual = types.RealtimeInputConfig(automatic_activity_detection=types.AutomaticActivityDetection(disabled=True))
    settings = config(realtime_input_config=manual)
    async with client.aio.live.connect(model=MODEL, config=settings) as session:
        await session.send_realtime_input(activity_start=types.ActivityStart())
        await speak(session, "say push to talk", pause=3000)
        await session.send_realtime_input(activity_end=types.ActivityEnd())
        answer = await turn(session)
        equal((answer.heard, answer.spoken), ("say push to talk", "push to talk"))


async def test_tools_of_the_second_generation(client):
    settings = config("TEXT", tools=declare("get_weather", "get_location"))
    async with client.aio.live.connect(model=MODEL, config=settings) as session:
        await session.send_client_content(
            turns=user('call get_weather {"location":"Rome"} && call get_location'), turn_complete=True
        )
        asked = await turn(session)
        equal(
            [(call.name, call.args) for call in asked.calls],
            [("get_weather", {"location": "Rome"}), ("get_location", {})],
        )
        true(len({call.id for call in asked.calls}) == 2, "ids of their own")
        results = [{"location": "Rome", "temperatureCelsius": 20}, {"city": "Rome"}]
        await session.send_tool_response(
            function_responses=[
                types.FunctionResponse(id=call.id, name=call.name, response=result)
                for call, result in zip(asked.calls, results, strict=True)
            ]
        )
        equal((await turn(session)).text, "It is 20 °C in Rome. You are in Rome.")


async def locate(session, calls):
    await session.send_tool_response(
        function_responses=types.FunctionResponse(id=calls[0].id, name="get_location", response={"city": "Kyoto"})
    )
    return await turn(session)


@pytest.mark.parametrize("model", MODELS)
async def test_every_generation_talks(client, model):
    async with client.aio.live.connect(model=model, config=config_of(model)) as session:
        await speak(session, "say hello there")
        answer = await turn(session)
        equal((answer.heard, answer.spoken), ("say hello there", "hello there"))
        equal(len(answer.audio), len("hello there") * LETTER_BYTES)
        await session.send_realtime_input(text="say and in writing")
        equal((await turn(session)).spoken, "and in writing")


@pytest.mark.parametrize("model", MODELS)
async def test_every_generation_knows_its_history(client, model):
    history = types.HistoryConfig(initial_history_in_client_content=True)
    settings = config_of(model, history_config=None if model == MODEL else history)
    async with client.aio.live.connect(model=model, config=settings) as session:
        await session.send_client_content(turns=[user("say old news")], turn_complete=True)
        if model != MODEL:
            # As Google's agent kit does.
            await session.send_realtime_input(text=".")
        equal((await turn(session)).spoken, "old news")


@pytest.mark.parametrize("model", [THIRD_MODEL, THINKING_MODEL])
async def test_calls_in_the_background(client, model):
    settings = config_of(model, tools=declare("get_location", behavior="NON_BLOCKING"))
    async with client.aio.live.connect(model=model, config=settings) as session:
        await speak(session, "where am I")
        asked = await turn(session, lambda turn: turn.calls)
        # To this client, one interaction has several turns.
        answer = await locate(session, asked.calls)
        equal(answer.spoken, "One moment. You are in Kyoto.")
        equal(answer.statuses[-1], "IDLE")


async def test_thinking_is_one_interaction_of_several_turns(client):
    async with client.aio.live.connect(model=THINKING_MODEL, config=config_of(THINKING_MODEL)) as session:
        await session.send_realtime_input(text="think deep then say done")
        answer = await turn(session)
        equal((answer.spoken, answer.statuses), ("One moment. done", ["IN_PROGRESS", "IDLE"]))


async def test_tools_can_be_replaced(client):
    async with client.aio.live.connect(model=THIRD_MODEL, config=config()) as session:
        await session.send_context_update(tools=declare("get_location", behavior="BLOCKING"))
        await session.send_realtime_input(text="where am I")
        asked = await turn(session, lambda turn: turn.calls)
        equal((await locate(session, asked.calls)).spoken, "You are in Kyoto.")


async def test_generations_refuse_what_others_take(client):
    async def opened(model, settings, action=None):
        async with client.aio.live.connect(model=model, config=settings) as session:
            if action:
                await action(session)
                await turn(session)

    async def media(session):
        blob = types.Blob(data=bytes(640), mime_type="audio/pcm;rate=16000")
        await session.send_realtime_input(media=blob)

    async def content(session):
        await session.send_client_content(turns=user("say hi"), turn_complete=True)

    async def scheduled(session):
        await session.send_realtime_input(text="call get_location")
        asked = await turn(session, lambda turn: turn.calls)
        response = types.FunctionResponse(
            id=asked.calls[0].id, name="get_location", response={}, scheduling="WHEN_IDLE"
        )
        await session.send_tool_response(function_responses=response)

    thinking = {"thinking_config": types.ThinkingConfig(thinking_level="LOW")}
    for model in [EARLY_THIRD_MODEL, THIRD_MODEL]:
        await closes(opened(model, config("TEXT")), 1007)
        await closes(opened(model, config(enable_affective_dialog=True)), 1007)
        await closes(opened(model, config(**thinking)), 1007)
        await closes(opened(model, config(), media), 1007)
    await closes(opened(EARLY_THIRD_MODEL, config(), content), 1007)
    await opened(THIRD_MODEL, config(), content)
    await closes(opened(THIRD_MODEL, config(proactivity={"proactive_audio": False})), 1007)
    await closes(opened(THINKING_MODEL, config()), 1007)
    blocking = config_of(THINKING_MODEL, tools=declare("get_location", behavior="BLOCKING"))
    await closes(opened(THINKING_MODEL, blocking), 1007)
    tools = config_of(THINKING_MODEL, tools=declare("get_location"))
    await closes(opened(THINKING_MODEL, tools, scheduled), 1007)


@pytest.mark.parametrize("model", [EARLY_THIRD_MODEL, THIRD_MODEL])
async def test_tools_of_the_third_generation(client, model):
    behavior = None if model == EARLY_THIRD_MODEL else "BLOCKING"
    settings = config(tools=declare("get_location", behavior=behavior))
    async with client.aio.live.connect(model=model, config=settings) as session:
        await speak(session, "where am I")
        asked = await turn(session, lambda turn: turn.calls)
        equal((await locate(session, asked.calls)).spoken, "You are in Kyoto.")


async def test_speech_interrupts_speech(client):
    async with client.aio.live.connect(model=MODEL, config=config()) as session:
        await session.send_realtime_input(text="slow 50")
        await turn(session, lambda turn: "word2" in turn.spoken)
        await speak(session, "say enough")
        cut = await turn(session)
        true(cut.interrupted, "interrupted")
        true("word50" not in cut.spoken, "nothing of the rest")
        answer = await turn(session)
        equal((answer.heard, answer.spoken), ("say enough", "enough"))


async def test_speech_cancels_open_calls(client):
    settings = config(tools=declare("get_location"))
    async with client.aio.live.connect(model=MODEL, config=settings) as session:
        await session.send_realtime_input(text="call get_location")
        asked = await turn(session)
        await speak(session, "say forget it")
        answer = await turn(session)
        equal(answer.cancelled, [asked.calls[0].id])
        equal(answer.spoken, "forget it")


async def test_a_session_is_taken_up_again(client):
    settings = config("TEXT", session_resumption={}, tools=declare("get_location"))
    async with client.aio.live.connect(model=MODEL, config=settings) as session:
        await session.send_client_content(turns=user("say remembered"), turn_complete=True)
        first = await turn(session)
        true(first.handle, "a handle before the first turn")
        handle = await next_handle(session)
        true(handle and handle != first.handle, "a handle after it")
        await session.send_client_content(turns=user("call get_location"), turn_complete=True)
        asked = await turn(session)
        equal(asked.resumable, False)
    resumed = config(session_resumption=types.SessionResumptionConfig(handle=handle), tools=declare("get_location"))
    async with client.aio.live.connect(model=MODEL, config=resumed) as session:
        await session.send_realtime_input(text="say again")
        answer = await turn(session)
        equal(answer.spoken, "again")
        true(answer.usage.prompt_token_count > first.usage.prompt_token_count, "the context is kept")
        # The call was lost with the connection: nobody waits for its result.
        await session.send_tool_response(
            function_responses=types.FunctionResponse(
                id=asked.calls[0].id, name="get_location", response={"city": "Kyoto"}
            )
        )
        await closes(turn(session), 1008)


async def test_video_is_seen(client):
    async with client.aio.live.connect(model=MODEL, config=config()) as session:
        await session.send_realtime_input(video=types.Blob(data=b"\xff\xd8jpeg", mime_type="image/jpeg"))
        await session.send_realtime_input(text="what is in the picture")
        equal((await turn(session)).spoken, "I see 1 image: image/jpeg (6 bytes).")


async def test_history_is_context(client):
    async with client.aio.live.connect(model=MODEL, config=config("TEXT", tools=declare("get_weather"))) as session:
        turns = [
            user("what is the weather in Oslo"),
            types.Content(
                role="model", parts=[types.Part.from_function_call(name="get_weather", args={"location": "Oslo"})]
            ),
            types.Content(
                role="user",
                parts=[
                    types.Part.from_function_response(
                        name="get_weather", response={"location": "Oslo", "temperatureCelsius": 3}
                    )
                ],
            ),
        ]
        await session.send_client_content(turns=turns, turn_complete=True)
        equal((await turn(session)).text, "It is 3 °C in Oslo.")


async def test_going_away_is_announced(client):
    async with client.aio.live.connect(model=MODEL, config=config("TEXT")) as session:
        await session.send_client_content(turns=user("go away 1s then say bye"), turn_complete=True)
        answer = await turn(session)
        equal((answer.text, answer.going), ("bye", "1s"))
        await closes(turn(session), 1011)


async def test_connections_end_on_demand(client):
    for words, code in [("close 1007", 1007), ("close 1011", 1011), ("drop", 1006)]:
        async with client.aio.live.connect(model=MODEL, config=config("TEXT")) as session:
            await session.send_client_content(turns=user(words), turn_complete=True)
            await closes(turn(session), code)


async def test_bad_setups_are_refused(client):
    async def opened(model, settings):
        async with client.aio.live.connect(model=model, config=settings):
            pass

    await closes(opened("no-such-model", config()), 1008)
    await closes(opened(MODEL, config("TEXT", session_resumption={"handle": "unknown"})), 1008)
    await closes(opened("gemini-2.5-flash-native-audio", config("TEXT")), 1007)


async def closes(action, code):
    try:
        await action
    except errors.APIError as error:
        equal(error.code, code)
    else:
        raise AssertionError(f"no close with {code}")


@pytest.mark.parametrize("model", MODELS)
async def test_every_generation_talks_in_vertex(options, model):
    behavior = {THIRD_MODEL: "BLOCKING", THINKING_MODEL: "NON_BLOCKING"}.get(model)
    settings = config_of(model, tools=declare("get_location", behavior=behavior))
    client = in_vertex(options, "a-token")
    async with client.aio.live.connect(model=model, config=settings) as session:
        await speak(session, "say hello there")
        answer = await turn(session)
        equal((answer.heard, answer.spoken), ("say hello there", "hello there"))
        await session.send_realtime_input(text="where am I")
        asked = await turn(session, lambda turn: turn.calls)
        answer = await locate(session, asked.calls)
        if model == MODEL:  # Its turn is complete with the call.
            answer = await turn(session)
        true(answer.spoken.endswith("You are in Kyoto."), answer.spoken)
    await client.aio.aclose()


async def test_vertex_wants_a_token_and_its_own_names(options):
    client = in_vertex(options, "a-token")
    with pytest.raises(errors.APIError) as refused:
        async with client.aio.live.connect(model="models/gemini-3.8-live", config=config()):
            pass
    equal(refused.value.code, 1008)
    await client.aio.aclose()
    url = urlparse(options.base_url)
    path = "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent"
    with pytest.raises(InvalidStatus) as refused:
        ssl_context = options.async_client_args["ssl"]
        async with connect(f"wss://{url.netloc}{path}", ssl=ssl_context):
            pass
    equal(refused.value.response.status_code, 401)
