//! The models that the scripted Gemini offers.

use serde_json::{Value, json};

struct Model {
    name: &'static str,
    title: &'static str,
    live: bool,
}

const MODELS: &[Model] = &[
    model("gemini-3.8-flash", "Gemini 3.8 Flash"),
    model("gemini-3.5-flash-lite", "Gemini 3.5 Flash-Lite"),
    model("gemini-flash-latest", "Gemini Flash Latest"),
    model("gemini-2.5-pro", "Gemini 2.5 Pro"),
    live_model("gemini-3.8-live", "Gemini 3.8 Live"),
    live_model(
        "gemini-3.8-live-extended-thinking",
        "Gemini 3.8 Live Extended Thinking",
    ),
    live_model("gemini-3.1-flash-live-preview", "Gemini 3.1 Flash Live"),
    live_model("gemini-live-2.5-flash", "Gemini Live 2.5 Flash"),
];

/// Models that Google has shut down: they are answered like unknown names.
const RETIRED: &[&str] = &[
    "gemini-2.5-flash",
    "gemini-2.5-flash-native-audio-preview-09-2025",
    "gemini-2.5-flash-native-audio-preview-12-2025",
];

pub(super) fn list() -> Value {
    let models: Vec<_> = MODELS.iter().map(Model::about).collect();
    json!({ "models": models })
}

pub(super) fn about(name: &str) -> Option<Value> {
    MODELS
        .iter()
        .find(|model| model.name == name)
        .map(Model::about)
}

/// New models appear faster than this list grows: every name of the family that is not retired is accepted.
pub(super) fn is_known(name: &str) -> bool {
    name.starts_with("gemini-")
        && !RETIRED.contains(&name)
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

/// The version in a name; names of aliases have none.
pub(super) fn version(name: &str) -> Option<(u32, u32)> {
    let numbers = name.split('-').find(|word| {
        let major = word.split('.').next().unwrap_or_default();
        major.len() == 1 && major.bytes().all(|byte| byte.is_ascii_digit())
    })?;
    let (major, minor) = numbers.split_once('.').unwrap_or((numbers, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Model {
    fn about(&self) -> Value {
        let methods: &[&str] = match self.live {
            true => &["countTokens", "bidiGenerateContent"],
            false => &["generateContent", "countTokens"],
        };
        json!({
            "name": format!("models/{}", self.name),
            "version": "001",
            "displayName": self.title,
            "description": "A scripted stand-in for demos and tests.",
            "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": methods,
            "temperature": 1,
            "topP": 0.95,
            "topK": 64,
            "maxTemperature": 2,
            "thinking": true,
        })
    }
}

const fn model(name: &'static str, title: &'static str) -> Model {
    Model {
        name,
        title,
        live: false,
    }
}

const fn live_model(name: &'static str, title: &'static str) -> Model {
    Model {
        live: true,
        ..model(name, title)
    }
}
