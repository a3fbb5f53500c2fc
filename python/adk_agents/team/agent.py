"""Two agents that play the same script at once, and one that speaks meanwhile."""

from crew.agent import speaker
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from scripted.agent import ScriptedModel, get_weather, pay, pick_color


def player(name):
    tools = [FunctionTool(pay, require_confirmation=True), LongRunningFunctionTool(pick_color), get_weather]
    return LlmAgent(name=name, model=ScriptedModel(), tools=tools)


def build(name):
    words = " ".join(f"word{n}" for n in range(12))
    return ParallelAgent(name=name, sub_agents=[player("left"), player("right"), speaker("narrator", words)])


root_agent = build("team")
