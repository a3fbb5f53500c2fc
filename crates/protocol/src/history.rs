//! UI messages → agent contents: what a model is told of a conversation.
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
//! Every call gets exactly one response, as models insist: one that was denied, expired or never answered gets an error
//! that says so. An output that is no object becomes `{result: output}` for the agent only.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::event::{Blob, Content, FileData, FunctionCall, FunctionResponse, Part as AgentPart};
use crate::message::{FilePart, Message, Part, Role, ToolPart, ToolState};

/// What a model is told about a call that a human refused.
pub const DENIED: &str = "the user denied this call; it was not run";
/// What a model is told about a call that nobody answered.
pub const UNANSWERED: &str = "this call was not answered; it was not run";

/// What a model is told before a call that it made earlier and whose result has come since.
const EARLIER_CALL: &str = "Here is what came of a call that you made earlier.";

/// The conversation as an agent takes it. System messages are left out: they are the agent's instruction.
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
                    // A call may stand only after a user's turn.
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

/// An output in the form that agents take: an object.
pub fn as_response(output: &Value) -> Value {
    match output {
        Value::Object(_) => output.clone(),
        other => json!({"result": other}),
    }
}

fn push<'a>(contents: &mut Vec<Content<'a>>, role: &'static str, parts: Vec<AgentPart<'a>>) {
    if !parts.is_empty() {
        contents.push(Content::new(role, parts));
    }
}

/// What the model said in a step, and what its calls came to.
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
                executable_code: Some(Box::new(data.data.clone())),
                ..AgentPart::default()
            }),
            Part::Data(data) if data.kind == "data-code-execution-result" => {
                model.push(AgentPart {
                    code_execution_result: Some(Box::new(data.data.clone())),
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
            id: Some(Cow::Borrowed(&tool.call_id)),
            name: Some(Cow::Borrowed(&tool.name)),
            args: Some(match &tool.input {
                Some(input @ Value::Object(_)) => input.clone(),
                _ => json!({}),
            }),
            ..FunctionCall::default()
        })),
        thought_signature: signature(tool.call_provider_metadata.as_ref()),
        ..AgentPart::default()
    }
}

fn response_part(tool: &ToolPart) -> AgentPart<'_> {
    let response = match tool.state {
        ToolState::OutputAvailable => as_response(tool.output.as_ref().unwrap_or(&Value::Null)),
        ToolState::OutputError => json!({
            "error": tool.error_text.as_deref().unwrap_or(UNANSWERED),
        }),
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
        _ => json!({"error": UNANSWERED}),
    };
    AgentPart {
        function_response: Some(Box::new(FunctionResponse {
            id: Some(Cow::Borrowed(&tool.call_id)),
            name: Some(Cow::Borrowed(&tool.name)),
            response: Some(response),
            parts: None,
        })),
        ..AgentPart::default()
    }
}

fn denial(tool: &ToolPart) -> Value {
    let reason = tool
        .approval
        .as_ref()
        .and_then(|approval| approval.reason.as_deref())
        .filter(|reason| !reason.is_empty());
    match reason {
        Some(reason) => json!({"error": DENIED, "reason": reason}),
        None => json!({"error": DENIED}),
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

fn signature(metadata: Option<&Value>) -> Option<Cow<'_, str>> {
    metadata?
        .pointer("/google/thoughtSignature")?
        .as_str()
        .map(Cow::Borrowed)
}
