"""One agent after another, in a resumable app."""

from . import agent
