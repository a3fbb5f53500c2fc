"""A workflow whose answer comes from a function, not from a model; it asks the user for a number first."""

from google.adk.events.request_input import RequestInput
from google.adk.workflow import START, Workflow


def ask(node_input):
    """Asks how many."""
    return RequestInput(message="How many?", response_schema={"type": "integer"})


def count(node_input):
    """Takes what the user entered."""
    return node_input


def answer(node_input):
    """What the workflow comes to."""
    return {"counted": node_input}


root_agent = Workflow(name="flow", edges=[(START, ask, count, answer)])
