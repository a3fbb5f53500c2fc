"""An agent that is spoken with, and that writes where it is asked to."""

from . import agent
