"""An MCP server made with the official Python package: over standard input and output, or over HTTP at a port."""

import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

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


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["http", port]:
            server.run("streamable-http", port=int(port))
        case _:
            server.run("stdio")
