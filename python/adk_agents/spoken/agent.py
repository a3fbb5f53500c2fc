"""An agent that is spoken with, and that writes where it is asked to."""

from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from scripted.agent import get_weather, pay, pick_color, save_note, wait


def build(name, model):
    return LlmAgent(
        name=name,
        model=model,
        description="Is spoken with.",
        instruction="Play by the script.",
        tools=[
            get_weather,
            FunctionTool(pay, require_confirmation=True),
            LongRunningFunctionTool(pick_color),
            save_note,
            wait,
        ],
    )


root_agent = build("spoken", "gemini-live-2.5-flash")
