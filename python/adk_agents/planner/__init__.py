"""An agent that plans before it answers."""

from . import agent
