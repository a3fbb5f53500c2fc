"""The scripted agent in an app that pauses properly for long-running tools."""

from . import agent
