"""The scripted model behind a planner of ADK's, which marks what is plan and what is answer by tags in the text."""

from google.adk.agents import LlmAgent
from google.adk.planners import PlanReActPlanner
from scripted.agent import ScriptedModel, get_weather

root_agent = LlmAgent(name="planner", model=ScriptedModel(), planner=PlanReActPlanner(), tools=[get_weather])
