"""The scripted agent as a server with `--a2a` offers it to agents elsewhere; `agent.json` is its card."""

from scripted.agent import build

root_agent = build("far")
