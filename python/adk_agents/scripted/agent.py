"""The scripted agent: real tools, and a model that does what the user's last text says.

    call NAME {json} && call NAME {json} then call NAME {json}     parallel calls, then more after their results
    say WORDS                                                 the words, streamed one by one
    think THOUGHT | WORDS                                     a thought, and the words
    history                                                   what the model was given, in short
    fail now | fail late                                      the model raises, at once or after some words
    error CODE | stop REASON                                  the model's own ways to end
    pause SECONDS                                             words, silence, words

After the last step of a script the model tells the results that it was given.
"""

import asyncio
import json
import re

from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.genai import types

try:
    from google.adk.tools._request_input_tool import request_input
except ImportError:  # google-adk 1 does not have it.
    request_input = None

CALL = re.compile(r"(\w+)\s*(\{.*\})?\s*$", re.DOTALL)
# A picture of one pixel.
PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)


class ScriptedModel(BaseLlm):
    """Does what the last text of the user says."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request, stream=False):
        contents = llm_request.contents
        at, script = last_script(contents)
        steps = script.split(" then ")
        answers = [content for content in contents[at + 1 :] if content.role == "model" and calls_of(content)]
        step = steps[len(answers)] if len(answers) < len(steps) else None
        if step is not None and step.startswith("call "):
            yield call_all(step[len("call ") :])
            return
        if step is None:
            async for response in say(results_of(contents[at + 1 :]), stream):
                yield response
            return
        word, _, rest = step.partition(" ")
        if word == "think":
            thought, _, words = rest.partition(" | ")
            yield LlmResponse(content=types.Content(role="model", parts=[thinking(thought)]), partial=True)
            yield final(types.Content(role="model", parts=[thinking(thought), types.Part(text=words)]))
            return
        if word == "fail":
            if rest == "late":
                yield partial("almost ")
            raise RuntimeError("the scripted model fails")
        if word == "error":
            yield LlmResponse(error_code=rest, error_message="the scripted model refuses")
            return
        if word == "stop":
            yield LlmResponse(content=text("cut"), finish_reason=rest, partial=False)
            return
        if word == "pause":
            yield partial("before ")
            await asyncio.sleep(float(rest))
            yield partial("after")
            yield final("before after")
            return
        if word == "history":
            rest = history_of(contents)
        async for response in say(rest if word in ("say", "history") else f"You said: {step}", stream):
            yield response


def last_script(contents):
    for at in range(len(contents) - 1, -1, -1):
        said = [part.text for part in contents[at].parts or [] if part.text]
        if contents[at].role == "user" and said:
            return at, said[-1]
    return -1, "say nothing"


def calls_of(content):
    return [part.function_call for part in content.parts or [] if part.function_call]


def call_all(script):
    parts = []
    for one in script.split(" && "):
        name, args = CALL.match(one.strip().removeprefix("call ")).groups()
        parts.append(types.Part.from_function_call(name=name, args=json.loads(args or "{}")))
    return final(types.Content(role="model", parts=parts))


async def say(words, stream):
    if stream:
        for word in words.split(" "):
            yield partial(word + " ")
        words += " "
    yield final(words)


def text(words):
    return types.Content(role="model", parts=[types.Part(text=words)])


def thinking(words):
    return types.Part(text=words, thought=True)


def partial(words):
    return LlmResponse(content=text(words), partial=True)


def final(said):
    content = text(said) if isinstance(said, str) else said
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=7, candidates_token_count=3, total_token_count=10
    )
    return LlmResponse(content=content, partial=False, finish_reason="STOP", usage_metadata=usage)


def results_of(contents):
    results = [part.function_response for content in contents for part in content.parts or [] if part.function_response]
    lines = [f"{result.name}={json.dumps(result.response, sort_keys=True)}" for result in results]
    return "Results: " + "; ".join(lines)


def history_of(contents):
    lines = []
    for content in contents[:-1]:
        for part in content.parts or []:
            if part.text:
                lines.append(f"{content.role}:{part.text.strip()}")
            elif part.function_call:
                lines.append(f"{content.role}:call {part.function_call.name}")
            elif part.function_response:
                lines.append(
                    f"{content.role}:{part.function_response.name}={json.dumps(part.function_response.response)}"
                )
            elif part.inline_data:
                lines.append(f"{content.role}:{part.inline_data.mime_type}")
    return " | ".join(lines) or "nothing"


def get_weather(city: str) -> dict:
    """The weather of a city."""
    return {"city": city, "weather": "sunny"}


def pay(amount: int, recipient: str = "nobody") -> dict:
    """Pays somebody; a human confirms first."""
    return {"paid": amount, "recipient": recipient}


def search(query: str) -> dict:
    """Searches; a human confirms first."""
    return {"found": query}


def pick_color(question: str = "") -> None:
    """Lets the user pick a color; the front end answers."""


def order(what: str) -> dict:
    """Orders something; its outcome comes later."""
    return {"status": "pending", "what": what}


def explode(reason: str = "boom") -> dict:
    """Raises."""
    raise ValueError(f"the tool exploded: {reason}")


def stubborn(tool_context: ToolContext) -> dict:
    """Asks for confirmation and does not care about the answer."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="May I?")
        return {"error": "This tool call requires confirmation, please approve or reject."}
    return {"done": "whatever was said"}


def take_days(days: int, tool_context: ToolContext) -> dict:
    """Asks a human how many of the days to grant."""
    confirmation = tool_context.tool_confirmation
    if confirmation is None:
        tool_context.request_confirmation(hint="How many days?", payload={"granted": 1})
        return {"status": "asked"}
    granted = confirmation.payload["granted"]
    return {"granted": granted} if confirmation.confirmed else {"error": "This tool call is rejected."}


def set_mood(mood: str, tool_context: ToolContext) -> dict:
    """Writes the session's state."""
    tool_context.state["mood"] = mood
    return {"ok": True}


def get_mood(tool_context: ToolContext) -> dict:
    """Reads the session's state."""
    return {"mood": tool_context.state.get("mood")}


async def save_note(note: str, tool_context: ToolContext) -> dict:
    """Saves a picture and a text as artifacts."""
    await tool_context.save_artifact("notes/picture one.png", types.Part.from_bytes(data=PIXEL, mime_type="image/png"))
    version = await tool_context.save_artifact(
        "note.txt", types.Part.from_bytes(data=note.encode(), mime_type="text/plain")
    )
    return {"version": version}


def log_in(tool_context: ToolContext) -> dict:
    """Needs credentials of the user."""
    from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows

    flow = OAuthFlowAuthorizationCode(
        authorizationUrl="https://example.com/a", tokenUrl="https://example.com/t", scopes={}
    )
    credential = AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="id", client_secret="not-for-the-browser")
    )
    config = AuthConfig(auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=flow)), raw_auth_credential=credential)
    tool_context.request_credential(config)
    return {"pending": True}


async def wait(seconds: float) -> dict:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return {"waited": seconds}


def build(name):
    helper = LlmAgent(name="helper", model=ScriptedModel(), description="Helps.", tools=[get_weather])
    sub_agents = [helper]
    # google-adk 1 has no agents that are called like this.
    if "mode" in LlmAgent.model_fields:
        clerk = LlmAgent(
            name="clerk",
            mode="single_turn",
            model=ScriptedModel(),
            description="Is called like a tool, and plays the request as a script.",
            tools=[FunctionTool(pay, require_confirmation=True), LongRunningFunctionTool(pick_color)],
        )
        sub_agents.append(clerk)
    return LlmAgent(
        name=name,
        model=ScriptedModel(),
        description="Plays by the script that the user writes.",
        instruction="Play by the script.",
        sub_agents=sub_agents,
        tools=[
            get_weather,
            FunctionTool(pay, require_confirmation=True),
            FunctionTool(search, require_confirmation=True),
            LongRunningFunctionTool(pick_color),
            LongRunningFunctionTool(order),
            explode,
            stubborn,
            take_days,
            set_mood,
            get_mood,
            save_note,
            log_in,
            wait,
            *([request_input] if request_input else []),
        ],
    )


root_agent = build("scripted")
