"""The scripted agent in an app that pauses properly for long-running tools."""

from google.adk.apps import App, ResumabilityConfig
from scripted.agent import build

app = App(
    name="resumable",
    root_agent=build("resumable"),
    resumability_config=ResumabilityConfig(is_resumable=True),
)
