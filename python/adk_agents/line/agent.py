"""One agent after another, in an app that pauses for long-running tools: the second one speaks when the first is done."""

from crew.agent import speaker
from google.adk.agents import SequentialAgent
from google.adk.apps import App, ResumabilityConfig
from team.agent import player

app = App(
    name="line",
    root_agent=SequentialAgent(name="line", sub_agents=[player("first"), speaker("last", "That was all.")]),
    resumability_config=ResumabilityConfig(is_resumable=True),
)
