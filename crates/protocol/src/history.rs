//! UI messages → agent contents: a conversation in the form that a model gets.
//!
//! ```text
//!   assistant message               contents
//!   ───────────────────────────     ─────────────────────────────────────────────
//!   step-start                      model  { thought, text, functionCall, … }
//!   reasoning, text, tool, tool     user   { functionResponse, functionResponse }
//!   step-start                      model  { text }
//!   text
//! ```
//!
//! Every call gets exactly one response, as models require: a call that was denied, expired or never answered gets an
//! error that says so. An output that is not an object becomes `{result: output}`, for the agent only.
//!
//! ```
//! use adk_bridge_protocol::history::contents;
//! use adk_bridge_protocol::message::parse_messages;
//!
//! let messages = serde_json::from_str(
//!     r#"[{"id":"1","role":"user","parts":[{"type":"text","text":"the weather?"}]},
//!         {"id":"2","role":"assistant","parts":[
//!           {"type":"step-start"},
//!           {"type":"tool-weather","toolCallId":"c1","state":"output-available","input":{},"output":"sunny"},
//!           {"type":"step-start"},
//!           {"type":"text","text":"It is sunny."}]}]"#,
//! )?;
//! let messages = parse_messages(messages)?;
//! let roles: Vec<_> = contents(&messages).into_iter().filter_map(|content| content.role).collect();
//! assert_eq!(roles, ["user", "model", "user", "model"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::borrow::Cow;

use serde_json::json;

use crate::credentials::CALL;
use crate::event::{
    Blob, Content, FileData, FunctionCall, FunctionResponse, Part as AgentPart, REQUEST_INPUT,
};
use crate::json_text::Json;
use crate::message::{FilePart, Message, Part, Role, ToolPart, ToolState};

/// The result of a call that a human denied, for the model.
pub const DENIED: &str = "the user denied this call; it was not run";
/// The result of an unanswered call, for the model.
pub const UNANSWERED: &str = "this call was not answered; it was not run";

/// Introduces an earlier call of the model whose result has arrived since.
const EARLIER_CALL: &str = "Here is the result of a call that you made earlier.";

/// The conversation in the form that an agent accepts. System messages are left out: the agent has its own instruction.
pub fn contents<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Vec<Content<'m>> {
    let mut contents = Vec::new();
    for message in messages {
        match message.role {
            Role::System => {}
            Role::User => push(&mut contents, "user", user_parts(message)),
            Role::Assistant => {
                let mut first = true;
                for step in message.parts.split(|part| matches!(part, Part::StepStart)) {
                    let (model, responses) = step_parts(step);
                    let follows_model = contents
                        .last()
                        .is_some_and(|last: &Content<'_>| last.role.as_deref() == Some("model"));
                    // A call may only follow a user's turn.
                    if first && follows_model && !responses.is_empty() {
                        push(&mut contents, "user", vec![AgentPart::text(EARLIER_CALL)]);
                    }
                    first &= model.is_empty();
                    push(&mut contents, "model", model);
                    push(&mut contents, "user", responses);
                }
            }
        }
    }
    contents
}

/// The parts of one user message.
pub fn user_parts(message: &Message) -> Vec<AgentPart<'_>> {
    message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) if !text.text.is_empty() => {
                Some(AgentPart::text(Cow::Borrowed(text.text.as_str())))
            }
            Part::File(file) => Some(file_part(file)),
            _ => None,
        })
        .collect()
}

/// An output as an object, the form that agents accept.
pub fn as_response(output: &Json) -> Json {
    match output.is_object() {
        true => output.clone(),
        false => Json::object([("result", output.clone())]),
    }
}

fn push<'a>(contents: &mut Vec<Content<'a>>, role: &'static str, parts: Vec<AgentPart<'a>>) {
    if !parts.is_empty() {
        contents.push(Content::new(role, parts));
    }
}

/// Whether a part is the question of a running tool, which is no call of the model.
fn is_tool_question(part: &ToolPart) -> bool {
    let input = part.input.as_ref();
    part.name == REQUEST_INPUT && input.is_some_and(|input| input.get(CALL).is_some())
}

/// What the model wrote in a step, and the results of its calls.
fn step_parts(step: &[Part]) -> (Vec<AgentPart<'_>>, Vec<AgentPart<'_>>) {
    let mut model = Vec::new();
    let mut responses: Vec<AgentPart<'_>> = Vec::new();
    for part in step {
        match part {
            Part::Text(text) if !text.text.is_empty() => {
                let mut said = AgentPart::text(Cow::Borrowed(text.text.as_str()));
                said.thought_signature = signature(text.provider_metadata.as_ref());
                model.push(said);
            }
            Part::Reasoning(reasoning) => {
                let mut thought = AgentPart::text(Cow::Borrowed(reasoning.text.as_str()));
                thought.thought = Some(true);
                thought.thought_signature = signature(reasoning.provider_metadata.as_ref());
                model.push(thought);
            }
            // The tool that asked tells the model what came of it.
            Part::Tool(tool) if is_tool_question(tool) => {}
            Part::Tool(tool) if tool.state != ToolState::InputStreaming => {
                model.push(call_part(tool));
                responses.push(response_part(tool));
            }
            Part::File(file) => match responses
                .last_mut()
                .and_then(|part| part.function_response.as_deref_mut())
            {
                // A file that follows a result belongs to it.
                Some(response) => response.parts.get_or_insert_default().push(file_part(file)),
                None => model.push(file_part(file)),
            },
            Part::Data(data) if data.kind == "data-executable-code" => model.push(AgentPart {
                executable_code: Some(data.data.clone()),
                ..AgentPart::default()
            }),
            Part::Data(data) if data.kind == "data-code-execution-result" => {
                model.push(AgentPart {
                    code_execution_result: Some(data.data.clone()),
                    ..AgentPart::default()
                });
            }
            _ => {}
        }
    }
    (model, responses)
}

fn call_part(tool: &ToolPart) -> AgentPart<'_> {
    AgentPart {
        function_call: Some(Box::new(FunctionCall {
            id: Some(Cow::Borrowed(tool.call_id.as_str())),
            name: Some(Cow::Borrowed(&tool.name)),
            args: Some(match &tool.input {
                Some(input) if input.is_object() => input.clone(),
                _ => Json::empty(),
            }),
            ..FunctionCall::default()
        })),
        thought_signature: signature(tool.call_provider_metadata.as_ref()),
        ..AgentPart::default()
    }
}

fn response_part(tool: &ToolPart) -> AgentPart<'_> {
    let response = match tool.state {
        ToolState::OutputAvailable => as_response(&tool.output.clone().unwrap_or_default()),
        ToolState::OutputError => error(tool.error_text.as_deref().unwrap_or(UNANSWERED)),
        ToolState::OutputDenied => denial(tool),
        ToolState::ApprovalResponded
            if tool
                .approval
                .as_ref()
                .and_then(|approval| approval.approved)
                == Some(false) =>
        {
            denial(tool)
        }
        _ => error(UNANSWERED),
    };
    AgentPart {
        function_response: Some(Box::new(FunctionResponse {
            id: Some(Cow::Borrowed(tool.call_id.as_str())),
            name: Some(Cow::Borrowed(&tool.name)),
            response: Some(response),
            parts: None,
        })),
        ..AgentPart::default()
    }
}

/// An error in place of a call's result, for the model.
pub(crate) fn error(text: &str) -> Json {
    Json::object([("error", text.into())])
}

fn denial(tool: &ToolPart) -> Json {
    let reason = tool
        .approval
        .as_ref()
        .and_then(|approval| approval.reason.as_deref())
        .filter(|reason| !reason.is_empty());
    match reason {
        Some(reason) => json!({"error": DENIED, "reason": reason}).into(),
        None => error(DENIED),
    }
}

fn file_part(file: &FilePart) -> AgentPart<'_> {
    let media_type = Some(Cow::Borrowed(file.media_type.as_str()));
    let inline = file
        .url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    match inline {
        Some((_, data)) => AgentPart {
            inline_data: Some(Box::new(Blob {
                mime_type: media_type,
                data: Some(Cow::Borrowed(data)),
                display_name: None,
            })),
            ..AgentPart::default()
        },
        None => AgentPart {
            file_data: Some(Box::new(FileData {
                mime_type: media_type,
                file_uri: Some(Cow::Borrowed(&file.url)),
                display_name: None,
            })),
            ..AgentPart::default()
        },
    }
}

fn signature(metadata: Option<&Json>) -> Option<Cow<'_, str>> {
    let signature = metadata?.get("google")?.get("thoughtSignature")?;
    Some(Cow::Owned(signature.as_str()?.into_owned()))
}
