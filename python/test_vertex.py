"""Google's own client works against the scripted Gemini as against Vertex AI, and so does the bridge."""

import json
import re
import subprocess
import urllib.request

import pytest
from google import genai
from google.auth.credentials import AnonymousCredentials
from google.genai import errors, types
from websockets.sync.client import connect

from checks import equal, true

MODEL = "gemini-3.8-flash"


class Token(AnonymousCredentials):
    """A token that does not end."""

    def __init__(self, token):
        super().__init__()
        self.token = token

    @property
    def valid(self):
        return bool(self.token)

    def refresh(self, request):
        pass


def client_with(gemini, token):
    return genai.Client(
        vertexai=True,
        project="my-project",
        location="us-central1",
        credentials=Token(token),
        http_options={"base_url": gemini},
    )


@pytest.fixture(scope="module")
def client(gemini):
    return client_with(gemini, "a-token")


def test_text_streams(client):
    chunks = list(client.models.generate_content_stream(model=MODEL, contents="say one two three"))
    equal("".join(chunk.text or "" for chunk in chunks), "one two three")
    true(len(chunks) >= 3, f"{len(chunks)} chunks")


def test_a_function_is_called(client):
    schema = {"type": "object", "properties": {"location": {"type": "string"}}}
    declared = types.FunctionDeclaration(name="get_weather", description="Weather.", parameters_json_schema=schema)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    answer = client.models.generate_content(model=MODEL, contents='call get_weather {"location": "Ulm"}', config=config)
    call = answer.function_calls[0]
    equal((call.name, call.args), ("get_weather", {"location": "Ulm"}))


def test_a_request_without_a_token_is_refused(gemini):
    url = f"{gemini}/v1/projects/p/locations/l/publishers/google/models/{MODEL}:generateContent"
    request = urllib.request.Request(url, b"{}", {"content-type": "application/json", "x-goog-api-key": "x"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    equal(refused.value.code, 401)


def test_an_unknown_model_is_refused(client):
    with pytest.raises(errors.ClientError) as refused:
        client.models.generate_content(model="gemini-2.5-flash", contents="say hello")
    equal(refused.value.code, 404)


def test_the_bridge_talks_to_vertex(request, gemini, tmp_path):
    (tmp_path / "token").write_text("a-token")
    (tmp_path / "bridge.toml").write_text(
        f'[agent]\nkind = "gemini"\nbase_url = "{gemini}"\nmodel = "{MODEL}"\n'
        'vertex = { project = "my-project", location = "us-central1" }\n'
        f'token = {{ kind = "file", path = "{tmp_path}/token" }}\ntools = ["get_weather"]\n'
    )
    command = [request.config.getoption("--bridge"), "serve", "--config", str(tmp_path / "bridge.toml")]
    command += ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bridge:
        try:
            for line in bridge.stdout:
                if found := re.search(r"listening on (http://\S+)", line):
                    break
            equal(say(found[1], "say one two"), "one two")
            said = say(found[1], 'call get_weather {"location": "Tokyo"}')
            true("sunny" in said, said)
            with urllib.request.urlopen(f"{found[1]}/api/agents") as answer:
                equal(json.load(answer)[0]["modalities"], ["text", "audio"])
            spoken = speak(found[1], "say one two three")
            true("audio" in spoken and "one two three" in spoken, spoken)
            (tmp_path / "token").unlink()
            true("agent.token" in say(found[1], "say no more"), "there is no token")
        finally:
            bridge.kill()


def speak(bridge, text):
    """What the bridge answers to a message that is to be answered aloud, as its frames: audio is shortened."""
    frames = []
    with connect(f"{bridge.replace('http', 'ws', 1)}/live?chat=spoken") as socket:
        socket.send(json.dumps({"type": "modality", "modality": "audio"}))
        message = {"role": "user", "parts": [{"type": "text", "text": text}]}
        socket.send(json.dumps({"type": "message", "messages": [message]}))
        while not frames or not frames[-1].startswith("data: [DONE]"):
            frame = socket.recv(timeout=60)
            frames.append(frame[:200] if isinstance(frame, str) else "audio")
    chunks = [json.loads(frame[6:]) for frame in frames if frame.startswith("data: {") and frame.endswith("}\n\n")]
    deltas = "".join(chunk.get("delta", "") for chunk in chunks if chunk["type"] == "text-delta")
    return f"{deltas}\n{frames}"


def say(bridge, text):
    """What the bridge answers: text, outputs of tools, or an error."""
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    body = json.dumps({"id": text.split(" ")[1], "messages": [message]}).encode()
    request = urllib.request.Request(f"{bridge}/api/chat", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = answer.read().decode().split("\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    said = [chunk.get("delta", "") for chunk in chunks if chunk["type"] == "text-delta"]
    said += [json.dumps(chunk["output"]) for chunk in chunks if chunk["type"] == "tool-output-available"]
    return "".join(said + [chunk["errorText"] for chunk in chunks if chunk["type"] == "error"])
