//! The messages that a live client sends.

use adk_bridge_protocol::audio::PcmFormat;
use adk_bridge_protocol::event::{Content, Part};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::outbox::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::generation::Generation;
use crate::live::{Activity, LiveSetup, Modality};

/// A call may only follow a user's turn; this one explains why an old call comes up again.
const EARLIER_CALL: &str = "Here is the result of a call that you made earlier.";

/// Said to a model that goes on speaking during its calls, when the user does so too.
const RESULT_COMES_LATER: &str =
    "There is no result yet, and the user has gone on speaking. If it comes, you will get it.";

/// `model`: as a URL names it.
pub(super) fn setup(
    model: &str,
    instruction: Option<&str>,
    generation: Generation,
    setup: &LiveSetup<'_>,
    modality: Modality,
) -> Vec<u8> {
    let mut fields = json!({
        "model": model,
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
    if let Some(instruction) = instruction {
        fields["systemInstruction"] = json!({"parts": [{"text": instruction}]});
    }
    if !setup.tools.is_empty() {
        let declarations: Vec<Value> = setup
            .tools
            .iter()
            .map(|tool| {
                let mut declaration = json!({
                    "name": tool.name,
                    "description": tool.description,
                    "parametersJsonSchema": tool.input_schema,
                });
                if let Some(behavior) = generation.tool_behavior() {
                    declaration["behavior"] = json!(behavior);
                }
                declaration
            })
            .collect();
        fields["tools"] = json!([{"functionDeclarations": declarations}]);
    }
    if let Some(level) = generation.thinking_level() {
        fields["generationConfig"]["thinkingConfig"] = json!({"thinkingLevel": level});
    }
    if has_history(generation, setup) {
        fields["historyConfig"] = json!({"initialHistoryInClientContent": true});
    }
    bytes(&json!({ "setup": fields }))
}

/// Whether the contents of a setup are announced as the history of the conversation.
pub(super) fn has_history(generation: Generation, setup: &LiveSetup<'_>) -> bool {
    generation.has_realtime_text() && !setup.contents.is_empty()
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
            // Anything but an object closes the connection.
            let response = match it.response.is_object() {
                true => it.response.clone(),
                false => Json::object([("result", it.response.clone())]),
            };
            Json::object([
                ("id", it.id.as_str().into()),
                ("name", it.name.as_str().into()),
                ("response", response),
            ])
        })
        .collect();
    let responses = Json::object([("functionResponses", Json::array(&responses))]);
    bytes(&Json::object([("toolResponse", responses)]))
}

/// Results for calls, by their ids and names, whose results come later if at all.
pub(super) fn no_results(calls: &[(String, String)]) -> Vec<u8> {
    let later = Json::object([("error", RESULT_COMES_LATER.into())]);
    let all: Vec<Response> = calls
        .iter()
        .map(|(id, name)| Response {
            id: id.clone(),
            name: name.clone(),
            response: later.clone(),
        })
        .collect();
    responses(&all)
}

/// Cannot fail: keys are strings.
fn bytes(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolSpec;
    use crate::trace_context::TraceContext;

    #[test]
    fn a_setup_says_what_its_generation_takes() {
        let tools = [ToolSpec::server("a", "A tool.", json!({"type": "object"}))];
        for (generation, behavior, thinking, history) in [
            (Generation::Second, Value::Null, Value::Null, Value::Null),
            (
                Generation::EarlyThird,
                Value::Null,
                Value::Null,
                json!(true),
            ),
            (
                Generation::Third,
                json!("BLOCKING"),
                Value::Null,
                json!(true),
            ),
            (
                Generation::BackgroundThinking,
                json!("NON_BLOCKING"),
                json!({"thinkingLevel": "HIGH"}),
                json!(true),
            ),
        ] {
            let begin = LiveSetup {
                user: "ann".into(),
                contents: vec![Content::new("user", vec![Part::text("hi")])],
                answer: true,
                modality: Modality::Audio,
                activity: Activity::Detected,
                tools: &tools,
                handle: None,
                trace: TraceContext::default(),
            };
            let sent = setup(
                "models/some-model",
                None,
                generation,
                &begin,
                Modality::Audio,
            );
            let sent: Value = serde_json::from_slice(&sent).unwrap_or_default();
            let sent = &sent["setup"];
            assert_eq!(sent["model"], "models/some-model");
            let tool = &sent["tools"][0]["functionDeclarations"][0];
            assert_eq!(tool["behavior"], behavior, "{generation:?}");
            assert_eq!(sent["generationConfig"]["thinkingConfig"], thinking);
            let announced = &sent["historyConfig"]["initialHistoryInClientContent"];
            assert_eq!(*announced, history, "{generation:?}");
        }
    }

    #[test]
    fn results_are_objects() {
        let result = |response: Json| {
            let sent = responses(&[Response {
                id: "1".into(),
                name: "a".into(),
                response,
            }]);
            let sent: Value = serde_json::from_slice(&sent).unwrap_or_default();
            sent["toolResponse"]["functionResponses"][0]["response"].clone()
        };
        assert_eq!(result(json!({"a": 1}).into()), json!({"a": 1}));
        assert_eq!(result(json!([1]).into()), json!({"result": [1]}));
    }
}
