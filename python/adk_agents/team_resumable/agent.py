"""Two agents that ask at once, and one that speaks meanwhile, in an app that pauses for long-running tools."""

from google.adk.apps import App, ResumabilityConfig
from team.agent import build

app = App(
    name="team_resumable",
    root_agent=build("team_resumable"),
    resumability_config=ResumabilityConfig(is_resumable=True),
)
