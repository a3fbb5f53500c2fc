"""An agent whose model is of the third generation: it only speaks, and goes on speaking during its calls."""

from spoken.agent import build

root_agent = build("third", "gemini-3.8-live")
