"""Google's own clients work, unmodified, against the scripted Gemini."""

import asyncio
import io
import os
import struct
import zlib
from functools import partial
from importlib.util import find_spec

import pytest
from google import genai
from google.genai import errors, types

from checks import equal, true

MODEL = "gemini-2.5-pro"
# The family that refuses calls whose thought signature was lost.
STRICT_MODEL = "gemini-3.8-flash"


# Google's client closes itself when it is collected, in whichever event loop runs then: not in one of another test.
@pytest.fixture(scope="session")
def client(gemini):
    return genai.Client(api_key="x", http_options={"base_url": gemini})


# The tools of the demo, as Python functions: Google's client reads their signatures.


def get_weather(location: str) -> dict:
    """Tells the current weather in a city.

    Args:
      location: The city.
    """
    return {"location": location, "temperatureCelsius": len(location), "condition": "sunny"}


def search_database(query: str) -> dict:
    """Searches the database of users."""
    return {"message": "Found 10 users", "query": query}


def update_database(query: str, set: dict[str, str]) -> dict:
    """Changes users in the database."""
    return {"message": "Database updated", "query": query, "set": set}


def declared(*functions):
    """A configuration that tells the model of the functions and leaves running them to the caller."""
    return types.GenerateContentConfig(
        tools=list(functions),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )


WEATHER_SCHEMA = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="get_weather",
            description="Tells the current weather in a city.",
            parameters_json_schema={
                "type": "object",
                "properties": {"location": {"type": "string"}},
                "required": ["location"],
                "additionalProperties": False,
            },
        )
    ]
)


def user(text):
    return types.Content(role="user", parts=[types.Part(text=text)])


def stream(client, contents, config=None, model=MODEL):
    return list(client.models.generate_content_stream(model=model, contents=contents, config=config))


def parts_of(chunks):
    return [
        part
        for chunk in chunks
        for candidate in chunk.candidates or []
        for part in (candidate.content and candidate.content.parts) or []
    ]


def refused(error, run, code, status):
    try:
        run()
    except error as raised:
        equal((raised.code, raised.status), (code, status))
        return raised
    raise AssertionError("nothing was raised")


def test_text_streams_in_pieces(client):
    chunks = stream(client, "say one two three four five")
    true(len(chunks) >= 5, f"{len(chunks)} chunks")
    equal("".join(chunk.text or "" for chunk in chunks), "one two three four five")
    equal([chunk.candidates[0].finish_reason for chunk in chunks[:-1]], [None] * (len(chunks) - 1))
    equal(chunks[-1].candidates[0].finish_reason, types.FinishReason.STOP)
    counts = [chunk.usage_metadata.candidates_token_count for chunk in chunks]
    equal(counts, sorted(counts))
    last = chunks[-1].usage_metadata
    equal(last.total_token_count, last.prompt_token_count + last.candidates_token_count)
    equal({chunk.model_version for chunk in chunks}, {MODEL})
    equal(len({chunk.response_id for chunk in chunks}), 1)


def test_text_comes_whole(client):
    response = client.models.generate_content(model=MODEL, contents="say one two three")
    equal(response.text, "one two three")
    equal(len(response.candidates[0].content.parts), 1)
    equal(response.candidates[0].finish_reason, types.FinishReason.STOP)


def test_text_streams_asynchronously(client):
    async def run():
        pieces = []
        async for chunk in await client.aio.models.generate_content_stream(model=MODEL, contents="say one two three"):
            pieces.append(chunk.text)
        return pieces

    equal("".join(asyncio.run(run())), "one two three")


def test_thoughts_come_first(client):
    config = types.GenerateContentConfig(
        thinking_config=types.ThinkingConfig(include_thoughts=True), system_instruction="Be brief."
    )
    for model in (MODEL, STRICT_MODEL):
        parts = parts_of(stream(client, "think about cats", config, model))
        thoughts = [bool(part.thought) for part in parts]
        true(True in thoughts and False in thoughts, f"{thoughts}")
        equal(thoughts, sorted(thoughts, reverse=True))
        equal(len([part for part in parts if part.thought_signature]), 1)
        # What came goes back as it came.
        history = [user("think about cats"), types.Content(role="model", parts=parts), user("say yes")]
        equal(stream(client, history, config, model)[-1].candidates[0].finish_reason, types.FinishReason.STOP)


def test_thoughts_come_only_when_asked_for(client):
    equal([part for part in parts_of(stream(client, "think about cats")) if part.thought], [])


def test_a_call_is_answered_by_hand(client):
    for model in (MODEL, STRICT_MODEL):
        history = [user("what is the weather in Tokyo")]
        config = types.GenerateContentConfig(tools=[WEATHER_SCHEMA])
        first = client.models.generate_content(model=model, contents=history, config=config)
        [call] = first.function_calls
        equal((call.id, call.name, call.args), (None, "get_weather", {"location": "Tokyo"}))
        true(first.candidates[0].content.parts[0].thought_signature, "the call has no signature")
        history.append(first.candidates[0].content)
        result = {"location": "Tokyo", "temperatureCelsius": 21, "condition": "sunny"}
        history.append(
            types.Content(role="user", parts=[types.Part.from_function_response(name=call.name, response=result)])
        )
        chunks = stream(client, history, config, model)
        equal("".join(chunk.text or "" for chunk in chunks), "It is 21 °C and sunny in Tokyo.")


def test_calls_come_in_parallel(client):
    history = [user("weather in Tokyo and Paris")]
    config = declared(get_weather)
    parts = [part for part in parts_of(stream(client, history, config)) if part.function_call]
    equal([part.function_call.args for part in parts], [{"location": "Tokyo"}, {"location": "Paris"}])
    equal([bool(part.thought_signature) for part in parts], [True, False])
    history.append(types.Content(role="model", parts=parts))
    responses = [
        types.Part.from_function_response(name="get_weather", response=get_weather(**part.function_call.args))
        for part in parts
    ]
    history.append(types.Content(role="user", parts=responses))
    response = client.models.generate_content(model=MODEL, contents=history, config=config)
    equal(response.text, "It is 5 °C and sunny in Tokyo. It is 5 °C and sunny in Paris.")
    history[-1].parts.pop()
    refused(
        errors.ClientError,
        lambda: client.models.generate_content(model=MODEL, contents=history, config=config),
        400,
        "INVALID_ARGUMENT",
    )


def test_a_lost_signature_is_refused(client):
    history = [user("what is the weather in Tokyo")]
    config = declared(get_weather)
    first = client.models.generate_content(model=STRICT_MODEL, contents=history, config=config)
    first.candidates[0].content.parts[0].thought_signature = None
    history.append(first.candidates[0].content)
    history.append(
        types.Content(
            role="user", parts=[types.Part.from_function_response(name="get_weather", response={"result": "sunny"})]
        )
    )
    error = refused(
        errors.ClientError,
        lambda: client.models.generate_content(model=STRICT_MODEL, contents=history, config=config),
        400,
        "INVALID_ARGUMENT",
    )
    true("thought_signature" in error.message, error.message)


def test_functions_are_called_automatically(client):
    config = types.GenerateContentConfig(tools=[get_weather, search_database, update_database])
    for model in (MODEL, STRICT_MODEL):
        response = client.models.generate_content(model=model, contents="weather in Rome and Paris", config=config)
        equal(response.text, "It is 4 °C and sunny in Rome. It is 5 °C and sunny in Paris.")
        response = client.models.generate_content(
            model=model, contents="search the database and update it", config=config
        )
        equal(response.text, "Database updated.")
        texts = [
            part.text
            for content in response.automatic_function_calling_history
            for part in content.parts
            if part.text and content.role == "model"
        ]
        equal(texts, ["Found 10 users. "])


def test_functions_are_called_automatically_while_streaming(client):
    config = types.GenerateContentConfig(tools=[get_weather])
    chunks = stream(client, "what is the weather in Rome", config, STRICT_MODEL)
    texts = [part.text for part in parts_of(chunks) if part.text]
    equal("".join(texts), "It is 4 °C and sunny in Rome.")


def test_only_declared_tools_are_called(client):
    response = client.models.generate_content(model=MODEL, contents="what is the weather in Tokyo")
    equal(response.function_calls, None)
    true("get_weather" in response.text, response.text)


def test_arguments_stream(client):
    # The typed client offers this for Google's cloud only; the request and the answer are the same.
    config = declared(WEATHER_SCHEMA)
    config.http_options = types.HttpOptions(
        extra_body={"toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}}}
    )
    calls = [part.function_call for part in parts_of(stream(client, "what is the weather in Reykjavik", config))]
    equal((calls[0].name, calls[0].will_continue, calls[0].args), ("get_weather", True, None))
    partial = [arg for call in calls for arg in call.partial_args or []]
    equal({arg.json_path for arg in partial}, {"$.location"})
    equal("".join(arg.string_value for arg in partial), "Reykjavik")
    equal([bool(arg.will_continue) for arg in partial], [True] * (len(partial) - 1) + [False])
    equal((calls[-1].name, calls[-1].will_continue), (None, None))


def test_images_are_seen(client):
    image = png(3, 2)
    contents = types.Content(
        role="user",
        parts=[
            types.Part(text="what is in this image"),
            types.Part.from_bytes(data=image, mime_type="image/png"),
            types.Part.from_bytes(data=b"\xff\xd8\xff\xfb\xef\xbe", mime_type="image/jpeg"),
        ],
    )
    response = client.models.generate_content(model=MODEL, contents=contents)
    expected = f"I see 2 images: image/png ({len(image)} bytes, 3×2 pixels); image/jpeg (6 bytes)."
    equal(response.text, expected)


def test_images_are_drawn(client):
    config = types.GenerateContentConfig(response_modalities=["TEXT", "IMAGE"])
    blobs = [part.inline_data for part in parts_of(stream(client, "draw a cat", config)) if part.inline_data]
    [blob] = blobs
    equal(blob.mime_type, "image/png")
    equal(size_of(blob.data), (256, 256))


def test_an_unsafe_answer_stops(client):
    chunks = stream(client, "safety")
    true(chunks[0].text, "there are no words before the stop")
    last = chunks[-1].candidates[0]
    equal(last.finish_reason, types.FinishReason.SAFETY)
    equal(last.safety_ratings[0].blocked, True)


def test_a_bad_prompt_is_blocked(client):
    [chunk] = stream(client, "blocked")
    equal(chunk.candidates, None)
    equal(chunk.prompt_feedback.block_reason, types.BlockedReason.PROHIBITED_CONTENT)


def test_answers_have_a_limit(client):
    equal(stream(client, "max tokens")[-1].candidates[0].finish_reason, types.FinishReason.MAX_TOKENS)
    config = types.GenerateContentConfig(max_output_tokens=3)
    response = client.models.generate_content(model=MODEL, contents="say one two three four", config=config)
    equal(response.text, "one two three ")
    equal(response.candidates[0].finish_reason, types.FinishReason.MAX_TOKENS)


def test_a_malformed_call_is_reported(client):
    [chunk] = stream(client, "malformed")
    equal(chunk.candidates[0].finish_reason, types.FinishReason.MALFORMED_FUNCTION_CALL)


def test_an_empty_answer_is_an_answer(client):
    [chunk] = stream(client, "empty")
    equal((chunk.text, chunk.candidates[0].finish_reason), (None, types.FinishReason.STOP))


def test_failures_are_errors(client):
    cases = [
        ("http 503", errors.ServerError, 503, "UNAVAILABLE"),
        ("http 500", errors.ServerError, 500, "INTERNAL"),
        ("http 429", errors.ClientError, 429, "RESOURCE_EXHAUSTED"),
        ("http 400", errors.ClientError, 400, "INVALID_ARGUMENT"),
    ]
    for prompt, error, code, status in cases:
        refused(error, partial(stream, client, prompt), code, status)
        refused(error, partial(client.models.generate_content, model=MODEL, contents=prompt), code, status)
    raised = refused(errors.ClientError, lambda: stream(client, "http 429"), 429, "RESOURCE_EXHAUSTED")
    delays = [detail["retryDelay"] for detail in raised.details["error"]["details"] if "retryDelay" in detail]
    equal(delays, ["1s"])


def test_failures_can_pass(client):
    prompt = "http 503 twice then say back again"
    for _ in range(2):
        refused(errors.ServerError, lambda: stream(client, prompt), 503, "UNAVAILABLE")
    equal("".join(chunk.text for chunk in stream(client, prompt)), "back again")


def test_the_client_retries(gemini):
    retrying = genai.Client(
        api_key="x",
        http_options=types.HttpOptions(
            base_url=gemini, retry_options=types.HttpRetryOptions(attempts=3, initial_delay=0.01, max_delay=0.02)
        ),
    )
    equal(retrying.models.generate_content(model=MODEL, contents="http 503 twice then say ok").text, "ok")


def test_an_error_comes_midway(client):
    texts = []

    def run():
        for chunk in client.models.generate_content_stream(
            model=MODEL, contents="say half an answer then http 503 midway"
        ):
            texts.append(chunk.text)

    refused(errors.ServerError, run, 503, "UNAVAILABLE")
    equal("".join(texts), "half an answer")


def test_a_connection_is_cut(client):
    for prompt, expected in (("say half an answer then cut", "half an answer"), ("cut before", "")):
        texts = []
        try:
            for chunk in client.models.generate_content_stream(model=MODEL, contents=prompt):
                texts.append(chunk.text)
        except Exception as error:  # the class belongs to the HTTP library
            true("incomplete" in str(error) or "peer closed" in str(error), repr(error))
        else:
            raise AssertionError("the stream ended as if nothing were wrong")
        equal("".join(texts), expected)


def test_answers_are_grounded(client):
    config = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
    chunks = stream(client, "search the web for Zürich", config)
    text = "".join(chunk.text for chunk in chunks).encode()
    grounding = chunks[-1].candidates[0].grounding_metadata
    equal(grounding.web_search_queries, ["Zürich"])
    for support in grounding.grounding_supports:
        segment = support.segment
        equal(text[segment.start_index or 0 : segment.end_index].decode(), segment.text)
        for index in support.grounding_chunk_indices:
            true(grounding.grounding_chunks[index].web.uri.startswith("https://"), "a chunk has no address")


def test_code_is_executed(client):
    config = types.GenerateContentConfig(tools=[types.Tool(code_execution=types.ToolCodeExecution())])
    parts = parts_of(stream(client, "compute (17 + 4) * 2", config))
    equal(parts[0].executable_code.code, "print((17 + 4) * 2)")
    equal(parts[1].code_execution_result.outcome, types.Outcome.OUTCOME_OK)
    equal(parts[1].code_execution_result.output, "42\n")
    equal("".join(part.text or "" for part in parts), "The result is 42.")


def test_a_chat_has_many_turns(client):
    chat = client.chats.create(
        model=STRICT_MODEL,
        config=types.GenerateContentConfig(
            tools=[get_weather], thinking_config=types.ThinkingConfig(include_thoughts=True)
        ),
    )
    true(chat.send_message("hello").text.startswith("Hello!"), "no greeting")
    equal(chat.send_message("what is the weather in Rome").text, "It is 4 °C and sunny in Rome.")
    true("cats" in chat.send_message("think about cats").text, "no thoughts about cats")
    streamed = "".join(chunk.text or "" for chunk in chat.send_message_stream("say goodbye"))
    equal(streamed, "goodbye")
    true(len(chat.get_history()) >= 8, f"{len(chat.get_history())} contents")


def test_tokens_are_counted(client):
    short = client.models.count_tokens(model=MODEL, contents="hello").total_tokens
    long = client.models.count_tokens(model=MODEL, contents="hello " * 100).total_tokens
    true(0 < short < long, f"{short}, {long}")


def test_models_are_listed(client):
    names = [model.name for model in client.models.list()]
    true(f"models/{MODEL}" in names and f"models/{STRICT_MODEL}" in names, f"{names}")
    equal(client.models.get(model=MODEL).name, f"models/{MODEL}")
    refused(
        errors.ClientError,
        lambda: client.models.generate_content(model="no-such-model", contents="hello"),
        404,
        "NOT_FOUND",
    )


def test_unknown_fields_are_refused(client):
    config = types.GenerateContentConfig(
        http_options=types.HttpOptions(extra_body={"generationConfig": {"colour": "red"}})
    )
    error = refused(
        errors.ClientError,
        lambda: client.models.generate_content(model=MODEL, contents="hello", config=config),
        400,
        "INVALID_ARGUMENT",
    )
    true("Unknown name \"colour\" at 'generation_config'" in error.message, error.message)


@pytest.mark.skipif(find_spec("google.adk") is None, reason="Google's agent kit does not take the newest client yet")
def test_an_adk_agent_uses_a_tool(gemini):
    os.environ["GOOGLE_API_KEY"] = "x"
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.models.google_llm import Gemini
    from google.adk.runners import InMemoryRunner

    async def run(model, mode):
        agent = LlmAgent(name="weather", model=Gemini(model=model, base_url=gemini), tools=[get_weather])
        runner = InMemoryRunner(agent=agent, app_name="check")
        session = await runner.session_service.create_session(app_name="check", user_id="user")
        kinds, texts = [], []
        async for event in runner.run_async(
            user_id="user",
            session_id=session.id,
            new_message=user("weather in Rome and Paris"),
            run_config=RunConfig(streaming_mode=mode),
        ):
            true(event.error_code is None, f"{event.error_code}: {event.error_message}")
            if event.partial:
                continue
            for part in event.content.parts:
                kind = "call" if part.function_call else "response" if part.function_response else "text"
                kinds.append(kind)
                texts.append(part.text or "")
        equal(kinds, ["call", "call", "response", "response", "text"])
        equal("".join(texts), "It is 4 °C and sunny in Rome. It is 5 °C and sunny in Paris.")

    for model in (MODEL, STRICT_MODEL):
        for mode in (StreamingMode.NONE, StreamingMode.SSE):
            asyncio.run(run(model, mode))


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def size_of(data):
    file = io.BytesIO(data)
    equal(file.read(8), b"\x89PNG\r\n\x1a\n")
    size, pixels = None, b""
    while kind_and_length := file.read(8):
        length, kind = struct.unpack(">I4s", kind_and_length)
        body, crc = file.read(length), file.read(4)
        equal(struct.unpack(">I", crc)[0], zlib.crc32(kind + body))
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
        if kind == b"IDAT":
            pixels += body
    equal(len(zlib.decompress(pixels)), size[1] * (1 + 3 * size[0]))
    return size
