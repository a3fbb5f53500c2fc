//! One chunk of each type, with all of its fields.

use std::borrow::Cow;

use adk_bridge_protocol::chunk::{Chunk, DataChunk, FinishReason, InputEncoding};
use adk_bridge_protocol::json_text::Json;

pub(crate) fn every_chunk() -> Vec<Chunk<'static>> {
    let text = || Cow::Borrowed("");
    let json = Json::empty;
    let chunks = vec![
        Chunk::Start {
            message_id: Some(text()),
            message_metadata: Some(json()),
        },
        Chunk::Finish {
            finish_reason: Some(FinishReason::Stop),
            message_metadata: Some(json()),
        },
        Chunk::Abort {
            reason: Some(text()),
        },
        Chunk::Error { error_text: text() },
        Chunk::MessageMetadata {
            message_metadata: json(),
        },
        Chunk::StartStep,
        Chunk::FinishStep,
        Chunk::TextStart {
            id: text(),
            provider_metadata: Some(json()),
        },
        Chunk::TextDelta {
            id: text(),
            delta: text(),
            provider_metadata: Some(json()),
        },
        Chunk::TextEnd {
            id: text(),
            provider_metadata: Some(json()),
            citations: Some(json()),
        },
        Chunk::ReasoningStart {
            id: text(),
            provider_metadata: Some(json()),
        },
        Chunk::ReasoningDelta {
            id: text(),
            delta: text(),
            provider_metadata: Some(json()),
        },
        Chunk::ReasoningEnd {
            id: text(),
            provider_metadata: Some(json()),
        },
        Chunk::ToolInputStart {
            tool_call_id: text(),
            tool_name: text(),
            input_encoding: Some(InputEncoding::Json),
            provider_executed: Some(true),
            provider_metadata: Some(json()),
            tool_metadata: Some(json()),
            dynamic: Some(true),
            title: Some(text()),
        },
        Chunk::ToolInputDelta {
            tool_call_id: text(),
            input_text_delta: text(),
        },
        Chunk::ToolInputAvailable {
            tool_call_id: text(),
            tool_name: text(),
            input: json(),
            provider_executed: Some(true),
            provider_metadata: Some(json()),
            tool_metadata: Some(json()),
            dynamic: Some(true),
            title: Some(text()),
        },
        Chunk::ToolInputError {
            tool_call_id: text(),
            tool_name: text(),
            input: json(),
            error_text: text(),
            provider_executed: Some(true),
            provider_metadata: Some(json()),
            tool_metadata: Some(json()),
            dynamic: Some(true),
            title: Some(text()),
        },
        Chunk::ToolApprovalRequest {
            approval_id: text(),
            tool_call_id: text(),
            approval_descriptor: Some(json()),
            input_schema_input: Some(json()),
            signature: Some(text()),
            reason: Some(text()),
            is_automatic: Some(true),
        },
        Chunk::ToolApprovalResponse {
            approval_id: text(),
            approved: true,
            reason: Some(text()),
            provider_executed: Some(true),
            provider_metadata: Some(json()),
        },
        Chunk::ToolOutputAvailable {
            tool_call_id: text(),
            output: json(),
            provider_executed: Some(true),
            provider_metadata: Some(json()),
            tool_metadata: Some(json()),
            dynamic: Some(true),
            preliminary: Some(true),
        },
        Chunk::ToolOutputError {
            tool_call_id: text(),
            error_text: text(),
            provider_executed: Some(true),
            provider_metadata: Some(json()),
            tool_metadata: Some(json()),
            dynamic: Some(true),
        },
        Chunk::ToolOutputDenied {
            tool_call_id: text(),
        },
        Chunk::SourceUrl {
            source_id: text(),
            url: text(),
            title: Some(text()),
            provider_metadata: Some(json()),
        },
        Chunk::SourceDocument {
            source_id: text(),
            media_type: text(),
            title: text(),
            filename: Some(text()),
            provider_metadata: Some(json()),
        },
        Chunk::File {
            url: text(),
            media_type: text(),
            provider_metadata: Some(json()),
        },
        Chunk::Custom {
            kind: text(),
            provider_metadata: Some(json()),
        },
        Chunk::ReasoningFile {
            url: text(),
            media_type: text(),
            provider_metadata: Some(json()),
        },
        Chunk::ResetStep,
        Chunk::SteeringMessage {
            id: text(),
            parts: json(),
        },
        Chunk::Data(DataChunk {
            kind: Cow::Borrowed("data-NAME"),
            id: Some(text()),
            data: json(),
            transient: Some(true),
        }),
    ];
    for chunk in &chunks {
        // A new type does not compile here until it stands in the list above.
        match chunk {
            Chunk::Start { .. }
            | Chunk::Finish { .. }
            | Chunk::Abort { .. }
            | Chunk::Error { .. }
            | Chunk::MessageMetadata { .. }
            | Chunk::StartStep { .. }
            | Chunk::FinishStep { .. }
            | Chunk::TextStart { .. }
            | Chunk::TextDelta { .. }
            | Chunk::TextEnd { .. }
            | Chunk::ReasoningStart { .. }
            | Chunk::ReasoningDelta { .. }
            | Chunk::ReasoningEnd { .. }
            | Chunk::ToolInputStart { .. }
            | Chunk::ToolInputDelta { .. }
            | Chunk::ToolInputAvailable { .. }
            | Chunk::ToolInputError { .. }
            | Chunk::ToolApprovalRequest { .. }
            | Chunk::ToolApprovalResponse { .. }
            | Chunk::ToolOutputAvailable { .. }
            | Chunk::ToolOutputError { .. }
            | Chunk::ToolOutputDenied { .. }
            | Chunk::SourceUrl { .. }
            | Chunk::SourceDocument { .. }
            | Chunk::File { .. }
            | Chunk::Custom { .. }
            | Chunk::ReasoningFile { .. }
            | Chunk::ResetStep { .. }
            | Chunk::SteeringMessage { .. }
            | Chunk::Data(_) => {}
        }
    }
    chunks
}
