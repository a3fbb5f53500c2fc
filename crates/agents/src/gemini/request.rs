//! The body of a `generateContent` request.

use std::borrow::Cow;

use adk_bridge_protocol::event::{Content, Part};
use serde::Serialize;
use serde_json::Value;

use crate::agent::ConversationRequest;
use crate::error::AgentError;
use crate::gemini::model_name::version;
use crate::gemini::{Settings, Storing};
use crate::tool::ToolSpec;

/// Room for the texts of an ordinary request.
const TEXT_BYTES: usize = 1024;

/// What Google takes for the signature of a call that has none.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'b> {
    contents: &'b [Content<'b>],
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'b>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'b>>,
    generation_config: GenerationConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'b> {
    function_declarations: Vec<Declaration<'b>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'b> {
    name: &'b str,
    description: &'b str,
    parameters_json_schema: &'b Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    thinking_config: ThinkingConfig,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    include_thoughts: bool,
}

pub(super) fn body(
    mut request: ConversationRequest<'_>,
    settings: &Settings,
    storing: Storing,
) -> Result<Vec<u8>, AgentError> {
    if wants_signatures(&settings.model) {
        sign(&mut request.contents);
    }
    let body = Body {
        contents: &request.contents,
        system_instruction: settings.instruction.as_deref().map(|text| Content {
            role: None,
            parts: vec![Part::text(text)].into(),
        }),
        tools: declarations(request.tools),
        generation_config: GenerationConfig {
            thinking_config: ThinkingConfig {
                include_thoughts: true,
            },
        },
        store: match storing {
            Storing::Never => Some(false),
            Storing::Always => Some(true),
            Storing::ByProject => None,
        },
    };
    // A buffer that grows would take up to twice the bytes of large files.
    let mut written = Vec::with_capacity(file_bytes(&request.contents) + TEXT_BYTES);
    serde_json::to_writer(&mut written, &body).map_err(|error| {
        AgentError::broken(
            "the conversation cannot be sent to the model",
            error.to_string(),
        )
    })?;
    Ok(written)
}

/// The bytes of all inline data.
fn file_bytes(contents: &[Content<'_>]) -> usize {
    let parts = contents.iter().flat_map(|content| content.parts.iter());
    let blobs = parts.filter_map(|part| part.inline_data.as_deref());
    blobs
        .filter_map(|blob| Some(blob.data.as_ref()?.len()))
        .sum()
}

/// Since its third generation, Gemini refuses a step whose first call is not signed.
fn wants_signatures(model: &str) -> bool {
    version(model).is_none_or(|(major, _)| major >= 3)
}

/// Live models sign no calls, nor do older ones; their conversations go on with this model all the same.
fn sign(contents: &mut [Content<'_>]) {
    for content in contents {
        let first = content
            .parts
            .iter_mut()
            .find(|part| part.function_call.is_some());
        if let Some(call) = first {
            call.thought_signature
                .get_or_insert(Cow::Borrowed(NO_SIGNATURE));
        }
    }
}

fn declarations(tools: &[ToolSpec]) -> Vec<Tools<'_>> {
    if tools.is_empty() {
        return Vec::new();
    }
    let function_declarations = tools
        .iter()
        .map(|tool| Declaration {
            name: &tool.name,
            description: &tool.description,
            parameters_json_schema: &tool.input_schema,
        })
        .collect();
    vec![Tools {
        function_declarations,
    }]
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::event::FunctionCall;
    use serde_json::json;

    use super::*;
    use crate::agent::ChatKey;
    use crate::trace_context::TraceContext;

    fn call(signature: Option<&'static str>) -> Part<'static> {
        Part {
            function_call: Some(Box::new(FunctionCall::default())),
            thought_signature: signature.map(Cow::Borrowed),
            ..Part::default()
        }
    }

    /// A request with these steps, as it is sent to a model.
    fn sent(model: &str, steps: Vec<Vec<Part<'_>>>, storing: Storing) -> Value {
        let request = ConversationRequest {
            chat: ChatKey {
                user: "alice".into(),
                id: "chat".into(),
            },
            contents: steps
                .into_iter()
                .map(|parts| Content::new("model", parts))
                .collect(),
            tools: &[],
            trace: TraceContext::default(),
        };
        let settings = Settings {
            base_url: "http://127.0.0.1:1".into(),
            model: model.into(),
            api_key: "key".into(),
            instruction: None,
        };
        serde_json::from_slice(&body(request, &settings, storing).unwrap()).unwrap()
    }

    /// The signatures of each content, as they are sent to a model.
    fn signatures(model: &str, steps: Vec<Vec<Part<'_>>>) -> Value {
        let body = sent(model, steps, Storing::Never);
        let signature = |part: &Value| part["thoughtSignature"].clone();
        let contents = body["contents"].as_array().unwrap().iter();
        contents
            .map(|content| {
                let parts = content["parts"].as_array().unwrap().iter();
                parts.map(signature).collect::<Value>()
            })
            .collect()
    }

    #[test]
    fn requests_say_whether_they_may_be_stored() {
        for (storing, expected) in [
            (Storing::default(), json!(false)),
            (Storing::Always, json!(true)),
            (Storing::ByProject, Value::Null),
        ] {
            let body = sent("gemini-3.8-flash", vec![vec![Part::text("hi")]], storing);
            assert_eq!(body["store"], expected, "{storing:?}");
            let is_sent = body.as_object().unwrap().contains_key("store");
            assert_eq!(is_sent, storing != Storing::ByProject);
        }
    }

    #[test]
    fn the_first_call_of_a_step_is_signed() {
        let steps = || {
            vec![
                vec![Part::text("hi")],
                vec![call(Some("c2ln")), call(None)],
                vec![Part::text("well"), call(None), call(None)],
            ]
        };
        assert_eq!(
            signatures("gemini-3.8-flash", steps()),
            json!([[null], ["c2ln", null], [null, NO_SIGNATURE, null]])
        );
        assert_eq!(
            signatures("gemini-2.5-flash", steps()),
            json!([[null], ["c2ln", null], [null, null, null]])
        );
    }
}
