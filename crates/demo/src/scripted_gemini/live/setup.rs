//! The setup of a live connection: its first message, which applies to all others.

use serde_json::Value;

use super::super::error::ApiError;
use super::super::models;
use super::generation::Generation;

/// Google's codes for closing a connection: the message was invalid, or what it asks for is not available.
pub(super) const INVALID: u16 = 1007;
pub(super) const NOT_FOUND: u16 = 1008;
pub(super) const INTERNAL: u16 = 1011;

/// Why a connection is closed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: String,
}

/// The interface that a connection belongs to: both have the same messages, and other names of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Developers,
    Vertex,
}

impl Interface {
    /// The model that a setup names.
    fn model(self, named: &str) -> Option<&str> {
        match self {
            Self::Developers => named.strip_prefix("models/"),
            Self::Vertex => {
                let (project, rest) = named.strip_prefix("projects/")?.split_once("/locations/")?;
                let (location, model) = rest.split_once("/publishers/google/models/")?;
                let is_name = |name: &str| !name.is_empty() && !name.contains('/');
                (is_name(project) && is_name(location)).then_some(model)
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Setup {
    pub(super) generation: Generation,
    /// Whether answers are spoken; otherwise they are text.
    pub(super) speaks: bool,
    pub(super) tools: Value,
    pub(super) generation_config: Value,
    pub(super) detects_activity: bool,
    pub(super) silence_ms: Option<usize>,
    /// Whether the user's speech interrupts the model.
    pub(super) interrupts: bool,
    pub(super) input_transcription: bool,
    pub(super) output_transcription: bool,
    /// Whether the client wants handles.
    pub(super) resumption: bool,
    pub(super) handle: Option<String>,
    /// Whether contents are history, to be known but not answered, until a turn is complete. The second generation
    /// answers them anyway.
    pub(super) begins_with_history: bool,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::new(INVALID, error.message())
    }
}

impl Setup {
    /// Reads a checked setup.
    pub(super) fn read(
        interface: Interface,
        version: &str,
        setup: &Value,
    ) -> Result<Self, Refusal> {
        let named = setup["model"].as_str().unwrap_or_default();
        let model = interface.model(named).unwrap_or_default().to_owned();
        if !models::is_known(&model) {
            let shown = named.strip_prefix("models/").unwrap_or(named);
            let missing = ApiError::no_model(version, shown, "bidiGenerateContent");
            return Err(Refusal::new(NOT_FOUND, missing.message()));
        }
        let modalities = setup["generationConfig"]["responseModalities"].as_array();
        let speaks = match modalities.map(Vec::as_slice) {
            None | Some([]) => true,
            Some([one]) if one == "AUDIO" => true,
            Some([one]) if one == "TEXT" => false,
            Some(_) => {
                return Err(Refusal::new(
                    INVALID,
                    "Request contains an invalid argument: one response modality, AUDIO or TEXT, can be set.",
                ));
            }
        };
        if !speaks && model.contains("native-audio") {
            return Err(Refusal::new(
                INVALID,
                "Cannot extract voices from a non-audio request.",
            ));
        }
        let generation = Generation::of(&model);
        generation.check(setup)?;
        let realtime = &setup["realtimeInputConfig"];
        let detection = &realtime["automaticActivityDetection"];
        Ok(Self {
            speaks,
            tools: setup["tools"].clone(),
            generation_config: setup["generationConfig"].clone(),
            detects_activity: detection["disabled"] != true,
            silence_ms: detection["silenceDurationMs"]
                .as_u64()
                .and_then(|ms| usize::try_from(ms).ok()),
            interrupts: realtime["activityHandling"] != "NO_INTERRUPTION",
            input_transcription: setup["inputAudioTranscription"].is_object(),
            output_transcription: setup["outputAudioTranscription"].is_object(),
            resumption: setup["sessionResumption"].is_object(),
            handle: setup["sessionResumption"]["handle"]
                .as_str()
                .map(str::to_owned),
            begins_with_history: generation != Generation::Second
                && setup["historyConfig"]["initialHistoryInClientContent"] == true,
            generation,
        })
    }

    /// Whether a complete turn is reported as soon as a call has been made.
    pub(super) fn completes_at_call(&self) -> bool {
        self.generation == Generation::Second
    }
}
