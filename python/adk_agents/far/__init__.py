"""The scripted agent, for agents of other servers."""

from . import agent
