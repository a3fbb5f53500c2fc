"""Two agents that ask at once, and one that speaks meanwhile."""

from . import agent
