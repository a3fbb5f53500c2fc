"""An agent whose tools are known only after a login."""

from . import agent
