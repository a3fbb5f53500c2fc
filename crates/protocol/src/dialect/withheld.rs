//! What dialects that withhold text and outcomes until the last answer have in common.

use std::borrow::Cow;

use super::Images;
use crate::approval::{Approval, ApprovalState};
use crate::calls::{Calls, RunsOn};
use crate::json_text::Json;
use crate::message::{DataPart, Extra, FilePart, Message, Part, ToolPart, ToolState};

/// The type of an image part in these dialects.
pub(super) const IMAGE: &str = "data-image";

/// The parts that are shown only when the reply has ended.
pub(super) fn withheld<'m>(
    message: &'m Message,
    image: impl Fn(&FilePart) -> Option<Part> + 'm,
) -> impl Iterator<Item = Part> + 'm {
    message.parts.iter().filter_map(move |part| match part {
        Part::Tool(_) | Part::StepStart => None,
        Part::File(file) => Some(image(file).unwrap_or_else(|| part.clone())),
        other => Some(other.clone()),
    })
}

/// The message with its images in the form of these dialects.
pub(super) fn with_images<'m>(
    message: Cow<'m, Message>,
    image: impl Fn(&FilePart) -> Option<Part>,
) -> Cow<'m, Message> {
    let is_file = |part: &Part| matches!(part, Part::File(_));
    if !message.parts.iter().any(is_file) {
        return message;
    }
    let mut message = message.into_owned();
    for part in &mut message.parts {
        if let Part::File(file) = part
            && let Some(shown) = image(file)
        {
            *part = shown;
        }
    }
    Cow::Owned(message)
}

/// Whether a step waits for client tools without any question: its client sends once it has every output of the step.
pub(super) fn is_left_to_client(step: &[Part], calls: &Calls) -> bool {
    let mut tools = step.iter().filter_map(Part::as_tool);
    let runs_in_client = |tool: &ToolPart| {
        calls
            .by_id(&tool.call_id)
            .is_some_and(|call| call.runs_on == RunsOn::Client)
    };
    tools.clone().all(|tool| tool.approval.is_none()) && tools.any(runs_in_client)
}

/// Takes the outcome of a call away, which then is in this state.
pub(super) fn hide_outcome(call: &mut ToolPart, state: ToolState) {
    if matches!(
        call.state,
        ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied
    ) {
        call.state = state;
        call.output = None;
        call.error_text = None;
    }
}

/// Whether a question can no longer be answered although nobody has.
pub(super) fn is_over(approval: &Approval) -> bool {
    matches!(
        approval.state,
        ApprovalState::Expired | ApprovalState::Superseded
    )
}

/// The output of a question that a human has answered like this.
pub(super) fn confirmed_as(confirmed: bool) -> Json {
    Json::object([("confirmed", confirmed.into())])
}

/// An image as a data part whose content has these names. An image that is stored elsewhere is named by its URL.
pub(super) fn image_part(
    file: &FilePart,
    images: Option<&dyn Images>,
    names: &[&str],
) -> Option<Part> {
    let FilePart {
        media_type, url, ..
    } = file;
    if !media_type.starts_with("image/") {
        return None;
    }
    let inline = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    let content = match inline {
        Some((_, content)) => Some(Cow::Borrowed(content)),
        None => images.and_then(|images| images.base64(url)).map(Cow::Owned),
    };
    let media_type = ("mediaType", media_type.as_str().into());
    let data = match content {
        Some(content) => {
            let content: Json = content.as_ref().into();
            let named = names.iter().map(|name| (*name, content.clone()));
            Json::object([media_type].into_iter().chain(named))
        }
        None => Json::object([media_type, ("url", url.as_str().into())]),
    };
    Some(Part::Data(DataPart {
        kind: IMAGE.to_owned(),
        id: None,
        data,
        extra: Extra::default(),
    }))
}

/// The file of an image part of these dialects, if it is one.
pub fn file_of_image(part: &DataPart) -> Option<FilePart> {
    let text = |name: &str| part.data.get(name)?.as_str().map(Cow::into_owned);
    let media_type = text("mediaType").filter(|it| it.starts_with("image/"))?;
    if part.kind != IMAGE {
        return None;
    }
    let url = match text("data").or_else(|| text("content")) {
        Some(content) => format!("data:{media_type};base64,{content}"),
        None => text("url")?,
    };
    Some(FilePart {
        media_type,
        url,
        ..FilePart::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_part_is_the_file_that_it_was_made_from() {
        for (url, names) in [
            ("data:image/png;base64,AAEC", ["data", "content"].as_slice()),
            ("data:image/png;base64,AAEC", &["content"]),
            ("https://example.org/a.png", &["data"]),
        ] {
            let file = FilePart {
                media_type: "image/png".to_owned(),
                url: url.to_owned(),
                ..FilePart::default()
            };
            let Some(Part::Data(part)) = image_part(&file, None, names) else {
                panic!("{url} is an image");
            };
            assert_eq!(file_of_image(&part), Some(file));
        }
        for (kind, data) in [
            (
                "data-chart",
                json!({"mediaType": "image/png", "data": "AAEC"}),
            ),
            (
                "data-image",
                json!({"mediaType": "text/html", "data": "AAEC"}),
            ),
            ("data-image", json!({"mediaType": "image/png", "data": 1})),
            ("data-image", json!("AAEC")),
        ] {
            let part = DataPart {
                kind: kind.to_owned(),
                id: None,
                data: data.into(),
                extra: Extra::default(),
            };
            assert_eq!(file_of_image(&part), None, "{part:?}");
        }
    }
}
