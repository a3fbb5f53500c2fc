"""Agents that work at once, under one that is no model."""

from . import agent
