"""The agent `far` of the server at FAR_URL, over A2A."""

import json
import os
from pathlib import Path

from a2a.client.card_resolver import parse_agent_card
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent

card = json.loads((Path(__file__).parents[1] / "far" / "agent.json").read_text())
# The card of a server that chose its port does not know its address.
card["supportedInterfaces"][0]["url"] = f"{os.environ['FAR_URL']}/a2a/far"

root_agent = RemoteA2aAgent(name="near", agent_card=parse_agent_card(card))
