"""Agents that work at once, under one that is no model.

announce A | B      the root says A, then B, as two events of its own
anything else       two agents speak at once, while a third one plays it as a script
"""

from google.adk.agents import BaseAgent, LlmAgent, ParallelAgent
from google.adk.events import Event
from google.adk.models.base_llm import BaseLlm
from google.genai import types
from scripted.agent import ScriptedModel, get_weather, say


class Speaker(BaseLlm):
    """Says the same words to everything."""

    model: str = "speaker"
    words: str

    async def generate_content_async(self, llm_request, stream=False):
        async for response in say(self.words, stream):
            yield response


class Crew(BaseAgent):
    """Speaks for itself, or lets its agents work at once."""

    async def _run_async_impl(self, ctx):
        word, _, rest = ctx.user_content.parts[0].text.partition(" ")
        if word == "announce":
            for words in rest.split(" | "):
                content = types.Content(role="model", parts=[types.Part(text=words)])
                yield Event(invocation_id=ctx.invocation_id, author=self.name, content=content)
            return
        async for event in self.sub_agents[0].run_async(ctx):
            yield event


def speaker(name, words):
    return LlmAgent(name=name, model=Speaker(words=words))


together = ParallelAgent(
    name="together",
    sub_agents=[
        speaker("english", "one two three four five six"),
        LlmAgent(name="player", model=ScriptedModel(), tools=[get_weather]),
        speaker("german", "eins zwei drei vier"),
    ],
)
root_agent = Crew(name="crew", sub_agents=[together])
