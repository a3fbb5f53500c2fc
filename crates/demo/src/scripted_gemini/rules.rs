//! Google's rules for a conversation: its turns, its calls and their signatures.

use adk_bridge_protocol::event::{Content, FunctionCall, FunctionResponse, Part};
use adk_bridge_protocol::json_text::Json;

use super::error::ApiError;
use super::models::version;
use super::request::is_model;
use super::signature;

/// Checks contents that a model is to answer; a live one has no name here.
pub(super) fn check(contents: &[Content<'_>], model: &str) -> Result<(), ApiError> {
    if contents.is_empty() {
        return Err(ApiError::invalid(
            "* GenerateContentRequest.contents: contents is not specified\n",
        ));
    }
    for (index, content) in contents.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| contents.get(index));
        filled(content, index)?;
        placed(content, before)?;
        signed(content)?;
    }
    if contents.last().is_some_and(is_model) {
        return Err(ApiError::invalid(
            "Please ensure that multiturn requests end with a user role or a function response.",
        ));
    }
    let is_live = model.is_empty();
    if !is_live && version(model).is_none_or(|(major, _)| major >= 3) {
        signatures_kept(contents)?;
    }
    Ok(())
}

fn filled(content: &Content<'_>, index: usize) -> Result<(), ApiError> {
    match content.role.as_deref() {
        None | Some("user" | "model" | "function") => {}
        Some(_) => return Err(ApiError::invalid("Please use a valid role: user, model.")),
    }
    let place = format!("* GenerateContentRequest.contents[{index}].parts");
    if content.parts.is_empty() {
        return Err(ApiError::invalid(format!(
            "{place}: contents.parts must not be empty.\n"
        )));
    }
    for (part_index, part) in content.parts.iter().enumerate() {
        let kinds = kinds(part);
        if kinds == 0 {
            return Err(ApiError::invalid(format!(
                "{place}[{part_index}].data: required oneof field 'data' must have one initialized field\n"
            )));
        }
        if kinds > 1 {
            return Err(ApiError::invalid(format!(
                "Invalid value at 'contents[{index}].parts[{part_index}]' (oneof), oneof field 'data' is already set."
            )));
        }
        let call = part.function_call.as_ref().map(|call| call.name.as_deref());
        let response = part
            .function_response
            .as_ref()
            .map(|response| response.name.as_deref());
        let unnamed = call
            .or(response)
            .is_some_and(|name| name.is_none_or(str::is_empty));
        if unnamed {
            return Err(ApiError::invalid(format!(
                "{place}[{part_index}]: function name cannot be empty.\n"
            )));
        }
        if part
            .function_response
            .as_ref()
            .is_some_and(|response| response.response.is_none())
        {
            return Err(ApiError::invalid(format!(
                "{place}[{part_index}].function_response.response: must be set.\n"
            )));
        }
    }
    Ok(())
}

fn kinds(part: &Part<'_>) -> usize {
    [
        part.text.is_some(),
        part.inline_data.is_some(),
        part.file_data.is_some(),
        part.function_call.is_some(),
        part.function_response.is_some(),
        part.executable_code.is_some(),
        part.code_execution_result.is_some(),
    ]
    .into_iter()
    .filter(|is| *is)
    .count()
}

fn placed(content: &Content<'_>, before: Option<&Content<'_>>) -> Result<(), ApiError> {
    let asked = before
        .filter(|content| is_model(content))
        .map_or(0, |content| calls(content).count());
    let answered = responses(content).count();
    if is_model(content) && answered > 0 || !is_model(content) && calls(content).next().is_some() {
        return Err(ApiError::invalid(
            "Please ensure that function calls are made by the model role and answered by the user role.",
        ));
    }
    if calls(content).next().is_some() && before.is_none_or(is_model) {
        return Err(ApiError::invalid(
            "Please ensure that function call turn comes immediately after a user turn or after a function response \
             turn.",
        ));
    }
    if answered > 0 && asked == 0 {
        return Err(ApiError::invalid(
            "Please ensure that function response turn comes immediately after a function call turn.",
        ));
    }
    if answered != asked {
        return Err(ApiError::invalid(
            "Please ensure that the number of function response parts is equal to the number of function call parts \
             of the function call turn.",
        ));
    }
    match before.filter(|_| asked > 0) {
        Some(before) => matched(before, content),
        None => Ok(()),
    }
}

/// Checks that every call is answered under its own name, and under its own id if ids are used.
fn matched(asking: &Content<'_>, answering: &Content<'_>) -> Result<(), ApiError> {
    let names = |mut names: Vec<Option<String>>| {
        names.sort();
        names
    };
    let called = names(
        calls(asking)
            .map(|call| call.name.as_deref().map(str::to_owned))
            .collect(),
    );
    let answered = names(
        responses(answering)
            .map(|it| it.name.as_deref().map(str::to_owned))
            .collect(),
    );
    if called != answered {
        return Err(ApiError::invalid(
            "Please ensure that the function response names are those of the function call parts.",
        ));
    }
    let unknown = responses(answering).any(|response| {
        response.id.is_some()
            && calls(asking).any(|call| call.id.is_some())
            && !calls(asking).any(|call| call.id == response.id && call.name == response.name)
    });
    match unknown {
        true => Err(ApiError::invalid(
            "Please ensure that the function response ids are those of the function call parts.",
        )),
        false => Ok(()),
    }
}

/// Checks that a signature is the one that came with its part.
fn signed(content: &Content<'_>) -> Result<(), ApiError> {
    for part in &content.parts {
        let Some(signature) = part.thought_signature.as_deref() else {
            continue;
        };
        let fits = match &part.function_call {
            Some(call) => fits(signature, call),
            None => signature::fits_text(signature),
        };
        if !fits {
            return Err(ApiError::invalid("Corrupted thought signature."));
        }
    }
    Ok(())
}

fn fits(signature: &str, call: &FunctionCall<'_>) -> bool {
    let args = call.args.clone().unwrap_or_else(Json::empty);
    signature::fits_call(signature, call.name.as_deref().unwrap_or_default(), &args)
}

/// Gemini 3 requires the signature of the first call of every step since the user's last message.
fn signatures_kept(contents: &[Content<'_>]) -> Result<(), ApiError> {
    let wrote = |content: &Content<'_>| {
        !is_model(content)
            && content
                .parts
                .iter()
                .any(|part| part.function_response.is_none())
    };
    let turn = contents
        .iter()
        .rposition(wrote)
        .map_or(0, |index| index + 1);
    for (index, content) in contents.iter().enumerate().skip(turn) {
        let first = content
            .parts
            .iter()
            .find(|part| part.function_call.is_some());
        if let Some(part) = first
            && part.thought_signature.is_none()
        {
            let name = calls(content)
                .next()
                .and_then(|call| call.name.as_deref())
                .unwrap_or_default();
            return Err(ApiError::invalid(format!(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to \
                 work correctly, and missing thought_signature may lead to degraded model performance. Additional \
                 data, function call `default_api:{name}` , position {}. Please refer to \
                 https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
                index + 1
            )));
        }
    }
    Ok(())
}

fn calls<'c, 'a>(content: &'c Content<'a>) -> impl Iterator<Item = &'c FunctionCall<'a>> {
    content
        .parts
        .iter()
        .filter_map(|part| part.function_call.as_deref())
}

fn responses<'c, 'a>(content: &'c Content<'a>) -> impl Iterator<Item = &'c FunctionResponse<'a>> {
    content
        .parts
        .iter()
        .filter_map(|part| part.function_response.as_deref())
}
