"""An agent of a real ADK server whose model plays by the script that the user writes."""

from . import agent
