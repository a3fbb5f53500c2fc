"""An agent whose model speaks and cannot write."""

from spoken.agent import build

root_agent = build("speaker", "gemini-2.5-flash-native-audio")
