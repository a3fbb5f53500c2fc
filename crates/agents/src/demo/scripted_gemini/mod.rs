//! A scripted Gemini: the demo and the tests talk to it as to Google.
