"""A workflow whose answer comes from a function, not from a model."""

from . import agent
