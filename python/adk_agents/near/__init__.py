"""An agent that is the one of another server."""

from . import agent
