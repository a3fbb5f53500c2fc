"""Two agents that ask at once, in an app that pauses for long-running tools."""

from . import agent
