"""Google's own ADK server in front of a stand-in for Gemini, which `cargo xtask bench server` measures: `bench_server.py URL`."""

import os
import socket
import sys

import uvicorn
from google.adk.agents import LlmAgent
from google.adk.cli.fast_api import get_fast_api_app
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader

APP = "bench"


class OneAgent(BaseAgentLoader):
    """Has one app."""

    def __init__(self):
        self.agent = LlmAgent(name=APP, model="gemini-3.8-flash")

    def load_agent(self, agent_name):
        return self.agent

    def list_agents(self):
        return [APP]


os.environ |= {"GOOGLE_GEMINI_BASE_URL": sys.argv[1], "GOOGLE_API_KEY": "bench", "GOOGLE_GENAI_USE_VERTEXAI": "0"}
app = get_fast_api_app(
    agents_dir=".",
    agent_loader=OneAgent(),
    session_service_uri="memory://",
    artifact_service_uri="memory://",
    auto_create_session=True,
    web=False,
)
listener = socket.create_server(("127.0.0.1", 0))
print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
