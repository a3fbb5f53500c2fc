"""An agent whose instruction needs the state of its session."""

from . import agent
