//! The models that the scripted Gemini claims to be.

use serde_json::{Value, json};

struct Model {
    name: &'static str,
    title: &'static str,
    live: bool,
}

const MODELS: &[Model] = &[
    model("gemini-2.5-flash", "Gemini 2.5 Flash"),
    model("gemini-2.5-pro", "Gemini 2.5 Pro"),
    model("gemini-2.5-flash-image", "Gemini 2.5 Flash Image"),
    model("gemini-3-flash-preview", "Gemini 3 Flash Preview"),
    model("gemini-3-pro-preview", "Gemini 3 Pro Preview"),
    Model {
        live: true,
        ..model(
            "gemini-2.5-flash-native-audio-preview-12-2025",
            "Gemini 2.5 Flash Native Audio",
        )
    },
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

/// New models come faster than this list grows: every name of the family answers.
pub(super) fn is_known(name: &str) -> bool {
    name.starts_with("gemini-")
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
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
