"""An MCP server made with the official Python package: over standard input and output, or over HTTP at a port.

With `alone` it does not take introductions, as servers that know only the protocol from 2026-07-28 on.
Tools that leave no result write what happens to them into the file MCP_CALLS.
"""

import json
import os
import sys
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("python")
READS = ToolAnnotations(read_only_hint=True)
# One red dot.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f00050001ff56c72f0d0000000049454e44ae426082"
)
written = []


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool(annotations=READS)
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(annotations=READS)
def weather(city: str) -> Weather:
    """The weather of a city."""
    return Weather(city=city, degrees=21.5)


@server.tool()
def write(text: str) -> int:
    """Writes something down; returns how much was written so far."""
    written.append(text)
    return len(written)


@server.tool(annotations=READS)
def draw() -> Image:
    """Draws a dot."""
    return Image(data=PNG, format="png")


@server.tool(annotations=READS)
def fail() -> str:
    """Fails."""
    raise ValueError("this never works")


@server.tool(annotations=READS)
async def count(context: Context) -> str:
    """Reports progress."""
    for step in range(5):
        await context.report_progress(step, 5)
    return "counted"


def note(line):
    with open(os.environ["MCP_CALLS"], "a") as calls:
        calls.write(line + "\n")


@server.tool(annotations=READS)
def crash() -> str:
    """Ends the whole server."""
    note("crash")
    os._exit(7)


@server.tool(annotations=READS)
async def hang() -> str:
    """Never ends, unless it is cancelled."""
    note("hang")
    try:
        await anyio.sleep_forever()
    finally:
        note("hang is cancelled")


class Booking(BaseModel):
    guests: int = Field(ge=1, le=9)
    vegan: bool = False


@server.tool(annotations=READS)
async def book(day: str, context: Context) -> str:
    """Books a table, and asks for how many."""
    answer = await context.elicit(f"How many come on {day}?", Booking)
    return f"{day}: {answer.action} {answer.data.guests if answer.action == 'accept' else ''}".strip()


def ask_guests(day: str) -> Elicit[Booking]:
    return Elicit(f"How many come on {day}?", Booking)


@server.tool(annotations=READS)
async def reserve(day: str, booking: Annotated[Booking, Resolve(ask_guests)]) -> str:
    """Books a table; asks while it runs, or ends with the question, as the protocol has it."""
    return f"{day}: {booking.guests}"


def alone(app):
    """The same server, without introductions."""

    async def serve(scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            return await app(scope, receive, send)
        body = b""
        while True:
            piece = await receive()
            body += piece.get("body", b"")
            if not piece.get("more_body"):
                break
        request = json.loads(body)
        if request.get("method") != "initialize":
            read = iter([{"type": "http.request", "body": body}])

            async def replay():
                return next(read, None) or await receive()

            return await app(scope, replay, send)
        refusal = {
            "jsonrpc": "2.0",
            "id": request["id"],
            "error": {"code": -32601, "message": "there is no initialize"},
        }
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(refusal).encode()})

    return serve


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["http", port]:
            server.run("streamable-http", port=int(port))
        case ["alone", port]:
            uvicorn.run(alone(server.streamable_http_app()), port=int(port))
        case _:
            server.run("stdio")
