"""One trace, from a page's request through the bridge to a real ADK server and its tool, with an approval in between.

Both processes send their spans to the same collector: the bridge its own, and Google's server those of its framework and of
OpenTelemetry's instrumentation of FastAPI, which reads the `traceparent` that the bridge sends.
"""

import asyncio
import http.server
import json
import sys
import threading
import urllib.request
import uuid
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from checks import equal, true
from program import Program, programs  # noqa: F401, a fixture

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "adk_agents"
PARENT_SPAN = "00f067aa0ba902b7"
# Until all spans are there, which processes send now and then.
PATIENCE_SECONDS = 120


class Collector:
    """An OpenTelemetry collector, which keeps every span."""

    def __init__(self):
        self.spans = []
        spans = self.spans

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/traces":
                    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                        service = {it.key: it.value.string_value for it in of_resource.resource.attributes}[
                            "service.name"
                        ]
                        for scope in of_resource.scope_spans:
                            spans.extend(Span(service, span) for span in scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
        }


class Span:
    def __init__(self, service, span):
        self.service, self.name = service, span.name
        self.trace, self.id, self.parent = (it.hex() for it in (span.trace_id, span.span_id, span.parent_span_id))
        self.links = [link.span_id.hex() for link in span.links]
        self.attributes = {it.key: it.value.string_value for it in span.attributes}

    def __repr__(self):
        return f"{self.service}: {self.name} {self.id} < {self.parent} in {self.trace}"


@pytest.fixture(scope="module")
def collector():
    collector = Collector()
    yield collector
    collector.server.shutdown()


@pytest.fixture(scope="module")
async def adk_server(programs, collector):
    return await Program.start(
        [
            str(Path(sys.executable).parent / "opentelemetry-instrument"),
            sys.executable,
            "-m",
            "google.adk.cli",
            "api_server",
        ]
        + ["--port", "0", "--session_service_uri", "memory://", "--artifact_service_uri", "memory://", str(AGENTS)],
        r"Uvicorn running on (http://\S+)",
        programs,
        **collector.environment,
        OTEL_SERVICE_NAME="the-agents",
        PYTHONDONTWRITEBYTECODE="1",
    )


@pytest.fixture(scope="module")
async def bridge(request, adk_server, programs, collector, tmp_path_factory):
    directory = tmp_path_factory.mktemp("bridge")
    config = directory / "bridge.toml"
    config.write_text(f'[agent]\nkind = "adk"\nbase_url = "{adk_server.url}"\napp = "scripted"\n')
    return await Program.start(
        [request.config.getoption("--bridge"), "serve", "--config", str(config), "--listen", "127.0.0.1:0"]
        + ["--data-dir", str(directory / "data")],
        r"listening on (http://\S+)",
        programs,
        **collector.environment,
    )


async def post(bridge, body, trace):
    """A page's request, which belongs to a trace; returns the chunks of the answer."""
    headers = {"content-type": "application/json", "traceparent": f"00-{trace}-{PARENT_SPAN}-01"}
    request = urllib.request.Request(f"{bridge.url}/api/chat", json.dumps(body).encode(), headers)

    def send():
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    lines = (await asyncio.to_thread(send)).splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


async def shown(bridge, chat):
    def read():
        with urllib.request.urlopen(f"{bridge.url}/api/chats/{chat}", timeout=60) as answer:
            return json.load(answer)["messages"]

    return await asyncio.to_thread(read)


async def test_one_trace_leads_from_the_page_through_googles_server_to_the_tool(bridge, collector):
    trace, chat = uuid.uuid4().hex, uuid.uuid4().hex
    script = 'call pay {"amount": 5, "recipient": "Hanako"} then say paid'
    asked = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": script}]}
    chunks = await post(bridge, {"id": chat, "messages": [asked]}, trace)
    true(any(it["type"] == "tool-approval-request" for it in chunks), chunks)

    answer = (await shown(bridge, chat))[-1]
    (part,) = [part for part in answer["parts"] if part.get("approval")]
    part["state"] = "approval-responded"
    part["approval"]["approved"] = True
    chunks = await post(bridge, {"id": chat, "messages": [answer]}, trace)
    true(any(it["type"] == "tool-output-available" for it in chunks), chunks)

    def of_trace(service, name):
        return [it for it in list(collector.spans) if (it.service, it.trace, it.name) == (service, trace, name)]

    # The page's two requests, Google's two runs, and the tool, which ran once it was approved.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(of_trace("adk-bridge", "POST /api/chat")) < 2 or len(of_trace("the-agents", "POST /run_sse")) < 2:
            await asyncio.sleep(0.05)
        while not of_trace("the-agents", "execute_tool pay"):
            await asyncio.sleep(0.05)

    spans = {it.id: it for it in list(collector.spans) if it.trace == trace}
    equal({it.service for it in spans.values()}, {"adk-bridge", "the-agents"})
    requests = of_trace("adk-bridge", "POST /api/chat")
    equal([it.parent for it in requests], [PARENT_SPAN] * 2)

    def above(span):
        """A span, and those around it, up to the page's."""
        found = [span]
        while found[-1].parent in spans:
            found.append(spans[found[-1].parent])
        return found

    # From every run of Google's server the way leads to a request of the page, through the bridge.
    ways = [above(run) for run in of_trace("the-agents", "POST /run_sse")]
    for way in ways:
        equal(way[-1].parent, PARENT_SPAN)
        true(way[-1] in requests, way)
        true(any(it.service == "adk-bridge" and it.name == "invoke_agent scripted" for it in way), way)
    equal({way[-1].id for way in ways}, {it.id for it in requests})
    # What was approved ran in the second request, whose turn names the one that had asked.
    ran = above(of_trace("the-agents", "execute_tool pay")[-1])
    second = next(it for it in ran if it in requests)
    turn = next(it for it in ran if it.parent == second.id)
    asking = next(it for it in spans.values() if it.parent != second.id and it.parent in {it.id for it in requests})
    equal(turn.links, [asking.id])
