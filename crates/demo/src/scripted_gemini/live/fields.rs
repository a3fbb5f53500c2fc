//! The fields that the messages of a live client may have.

use adk_bridge_protocol::json_text::Json;

use super::super::error::ApiError;
use super::super::fields::Shape::{self, Any, Bool, List, Message, Number, Struct, Text};
use super::super::fields::{BLOB, CONTENT, GENERATION_CONFIG, TOOL, check};

/// Checks a message, and converts the names of its fields to camel case.
pub(super) fn client_message(message: &Json) -> Result<Json, ApiError> {
    check(message.raw(), &CLIENT_MESSAGE)
}

static CLIENT_MESSAGE: Shape = Message(&[
    ("setup", SETUP),
    (
        "client_content",
        Message(&[("turns", List(&CONTENT)), ("turn_complete", Bool)]),
    ),
    (
        "realtime_input",
        Message(&[
            ("media_chunks", List(&BLOB)),
            ("audio", BLOB),
            ("video", BLOB),
            ("text", Text),
            ("activity_start", Message(&[])),
            ("activity_end", Message(&[])),
            ("audio_stream_end", Bool),
        ]),
    ),
    (
        "tool_response",
        Message(&[(
            "function_responses",
            List(&Message(&[
                ("id", Text),
                ("name", Text),
                ("response", Struct),
                ("will_continue", Bool),
                ("scheduling", Text),
                ("parts", List(&Any)),
            ])),
        )]),
    ),
    (
        "context_update",
        Message(&[
            ("system_instruction", CONTENT),
            ("tools", Message(&[("tools", List(&TOOL))])),
        ]),
    ),
]);

const SETUP: Shape = Message(&[
    ("model", Text),
    ("generation_config", GENERATION_CONFIG),
    ("system_instruction", CONTENT),
    ("tools", List(&TOOL)),
    (
        "realtime_input_config",
        Message(&[
            (
                "automatic_activity_detection",
                Message(&[
                    ("disabled", Bool),
                    ("start_of_speech_sensitivity", Text),
                    ("end_of_speech_sensitivity", Text),
                    ("prefix_padding_ms", Number),
                    ("silence_duration_ms", Number),
                ]),
            ),
            ("activity_handling", Text),
            ("turn_coverage", Text),
        ]),
    ),
    (
        "session_resumption",
        Message(&[("handle", Text), ("transparent", Bool)]),
    ),
    (
        "context_window_compression",
        Message(&[
            ("trigger_tokens", Number),
            ("sliding_window", Message(&[("target_tokens", Number)])),
        ]),
    ),
    ("input_audio_transcription", Struct),
    ("output_audio_transcription", Struct),
    (
        "proactivity",
        Message(&[("proactive_audio", Bool), ("proactive_video", Bool)]),
    ),
    ("avatar_config", Any),
    ("labels", Struct),
    (
        "history_config",
        Message(&[("initial_history_in_client_content", Bool)]),
    ),
    ("safety_settings", List(&Any)),
]);
