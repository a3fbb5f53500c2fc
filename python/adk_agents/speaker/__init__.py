"""An agent whose model speaks and cannot write."""

from . import agent
