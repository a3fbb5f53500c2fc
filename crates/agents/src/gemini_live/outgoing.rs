//! The messages that a live client sends.

use adk_bridge_protocol::audio::PcmFormat;
use adk_bridge_protocol::event::{Content, Part};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::outbox::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::is_third_family;
use crate::gemini::Settings;
use crate::live::{Activity, LiveSetup, Modality};

/// A call may only follow a user's turn; this one explains why an old call comes up again.
const EARLIER_CALL: &str = "Here is the result of a call that you made earlier.";

pub(super) fn setup(settings: &Settings, setup: &LiveSetup<'_>, modality: Modality) -> Vec<u8> {
    let mut fields = json!({
        "model": format!("models/{}", settings.model.trim_start_matches("models/")),
        "generationConfig": {"responseModalities": [match modality {
            Modality::Audio => "AUDIO",
            Modality::Text => "TEXT",
        }]},
        "realtimeInputConfig": {
            "automaticActivityDetection": {"disabled": setup.activity == Activity::Explicit},
        },
        "sessionResumption": match setup.handle {
            Some(handle) => json!({"handle": handle}),
            None => json!({}),
        },
        "contextWindowCompression": {"slidingWindow": {}},
        "inputAudioTranscription": {},
    });
    if modality == Modality::Audio {
        fields["outputAudioTranscription"] = json!({});
    }
    if let Some(instruction) = &settings.instruction {
        fields["systemInstruction"] = json!({"parts": [{"text": instruction}]});
    }
    if !setup.tools.is_empty() {
        let declarations: Vec<Value> = setup
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name,
                    "description": tool.description,
                    "parametersJsonSchema": tool.input_schema,
                })
            })
            .collect();
        fields["tools"] = json!([{"functionDeclarations": declarations}]);
    }
    // This model needs a setting for thinking; every other live model refuses it.
    if settings.model.contains("-extended-thinking") {
        fields["generationConfig"]["thinkingConfig"] = json!({"thinkingLevel": "HIGH"});
    }
    if has_history(settings, setup) {
        fields["historyConfig"] = json!({"initialHistoryInClientContent": true});
    }
    bytes(&json!({ "setup": fields }))
}

/// Whether the contents of a setup are announced as the history of the conversation.
pub(super) fn has_history(settings: &Settings, setup: &LiveSetup<'_>) -> bool {
    is_third_family(&settings.model) && !setup.contents.is_empty()
}

pub(super) fn audio(pcm: &[u8]) -> Vec<u8> {
    // Written by hand, since this message is sent fifty times a second.
    let mut message = format!(
        r#"{{"realtimeInput":{{"audio":{{"mimeType":"{}","data":""#,
        PcmFormat::MICROPHONE
    );
    STANDARD.encode_string(pcm, &mut message);
    message.push_str(r#""}}}"#);
    message.into_bytes()
}

pub(super) fn video(media_type: &str, data: &[u8]) -> Vec<u8> {
    bytes(
        &json!({"realtimeInput": {"video": {"mimeType": media_type, "data": STANDARD.encode(data)}}}),
    )
}

pub(super) fn text(text: &str, is_realtime: bool) -> Vec<u8> {
    match is_realtime {
        true => bytes(&json!({"realtimeInput": {"text": text}})),
        false => contents(&[Content::new("user", vec![Part::text(text)])], true),
    }
}

pub(super) fn contents(turns: &[Content<'_>], answer: bool) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Message<'m> {
        client_content: ClientContent<'m>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ClientContent<'m> {
        turns: &'m [Content<'m>],
        turn_complete: bool,
    }
    bytes(&Message {
        client_content: ClientContent {
            turns,
            turn_complete: answer,
        },
    })
}

/// Turns that begin with a call get a user's turn before them if the model spoke last.
pub(super) fn placed_contents(
    turns: &[Content<'_>],
    answer: bool,
    model_spoke_last: bool,
) -> Vec<u8> {
    let calls = |content: &Content<'_>| content.parts.iter().any(|it| it.function_call.is_some());
    if !(model_spoke_last && turns.first().is_some_and(calls)) {
        return contents(turns, answer);
    }
    let mut placed = vec![Content::new("user", vec![Part::text(EARLIER_CALL)])];
    placed.extend_from_slice(turns);
    contents(&placed, answer)
}

pub(super) fn activity(which: &str) -> Vec<u8> {
    bytes(&json!({"realtimeInput": {which: {}}}))
}

pub(super) fn audio_stream_end() -> Vec<u8> {
    bytes(&json!({"realtimeInput": {"audioStreamEnd": true}}))
}

pub(super) fn responses(responses: &[Response]) -> Vec<u8> {
    let responses: Vec<Json> = responses
        .iter()
        .map(|it| {
            Json::object([
                ("id", it.id.as_str().into()),
                ("name", it.name.as_str().into()),
                ("response", it.response.clone()),
            ])
        })
        .collect();
    let responses = Json::object([("functionResponses", Json::array(&responses))]);
    bytes(&Json::object([("toolResponse", responses)]))
}

/// Cannot fail: keys are strings.
fn bytes(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}
