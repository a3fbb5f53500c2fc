//! What a live model takes and how it behaves: it differs from one generation to the next.
//!
//! | | 2.x | 3.0 to 3.7 | 3.8 and newer | extended thinking |
//! |---|---|---|---|---|
//! | written words | a turn, or realtime input | realtime input | realtime input | realtime input |
//! | turns of the conversation | at any time | only as the history of a new connection | at any time | at any time |
//! | the history of a new connection | is answered when complete | is not answered | is not answered | is not answered |
//! | writes instead of speaking | some models | never | never | never |
//! | calls | it waits for results | it waits for results | it waits if asked to | it always goes on speaking |
//! | a complete turn | after the words, and after calls | after the words | after the words | may be followed by more |
//! | a setting for thinking | none is sent | none is sent | is refused | is required |

use crate::gemini::model_name::version;

/// A generation of live models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Gemini 2.
    Second,
    /// Gemini 3.0 to 3.7.
    EarlyThird,
    /// Gemini 3.8 and newer.
    Third,
    /// Those of the third generation that think in the background while they speak.
    BackgroundThinking,
}

impl Generation {
    /// All of them, the oldest first.
    pub const ALL: &[Self] = &[
        Self::Second,
        Self::EarlyThird,
        Self::Third,
        Self::BackgroundThinking,
    ];

    /// The generation of a model, by its name. Names that say nothing, such as aliases, are taken for the newest.
    pub fn of(model: &str) -> Self {
        Self::named(model).unwrap_or(Self::Third)
    }

    /// The generation that a name says.
    pub fn named(model: &str) -> Option<Self> {
        if model.to_ascii_lowercase().contains("extended-thinking") {
            return Some(Self::BackgroundThinking);
        }
        Some(match version(model)? {
            (..=2, _) => Self::Second,
            (3, ..8) => Self::EarlyThird,
            _ => Self::Third,
        })
    }

    /// Whether written words are realtime input, and the contents of a new connection are announced as history.
    pub(super) fn has_realtime_text(self) -> bool {
        self != Self::Second
    }

    /// Whether turns of the conversation are accepted after the first of a connection.
    pub(super) fn takes_turns(self) -> bool {
        self != Self::EarlyThird
    }

    /// Whether there are models that write; the others only speak.
    pub(super) fn may_write(self) -> bool {
        self == Self::Second
    }

    /// How tools are declared. The bridge has results to wait for, so a model that can wait is asked to.
    pub(super) fn tool_behavior(self) -> Option<&'static str> {
        match self {
            Self::Second | Self::EarlyThird => None,
            Self::Third => Some("BLOCKING"),
            Self::BackgroundThinking => Some("NON_BLOCKING"),
        }
    }

    /// Whether the model goes on speaking while its calls are open.
    pub(super) fn speaks_during_calls(self) -> bool {
        self == Self::BackgroundThinking
    }

    /// How much to think: required by this generation, refused by the others.
    pub(super) fn thinking_level(self) -> Option<&'static str> {
        (self == Self::BackgroundThinking).then_some("HIGH")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_generation() {
        for (model, expected) in [
            ("gemini-live-2.5-flash", Some(Generation::Second)),
            ("gemini-2.0-flash-live-001", Some(Generation::Second)),
            (
                "gemini-2.5-flash-native-audio-preview-12-2025",
                Some(Generation::Second),
            ),
            (
                "models/gemini-3.1-flash-live-preview",
                Some(Generation::EarlyThird),
            ),
            ("gemini-3-live", Some(Generation::EarlyThird)),
            ("gemini-3.7-live", Some(Generation::EarlyThird)),
            ("gemini-3.8-live", Some(Generation::Third)),
            ("gemini-3.10-live", Some(Generation::Third)),
            ("gemini-4-live", Some(Generation::Third)),
            (
                "gemini-3.8-live-extended-thinking",
                Some(Generation::BackgroundThinking),
            ),
            (
                "gemini-5.1-live-Extended-Thinking-preview",
                Some(Generation::BackgroundThinking),
            ),
            ("gemini-live-latest", None),
            ("voice", None),
        ] {
            assert_eq!(Generation::named(model), expected, "{model}");
            assert_eq!(Generation::of(model), expected.unwrap_or(Generation::Third));
        }
    }
}
