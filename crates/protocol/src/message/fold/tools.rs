//! The tool calls of a message that is being folded: where they are, and how a chunk changes them.

use std::ops::Range;
use std::sync::Arc;

use super::{Fold, FoldError};
use crate::chunk::InputEncoding;
use crate::json_text::Json;
use crate::message::{Part, ToolPart, ToolState, partial_json};
use crate::sdk::Sdk;

/// The streamed input of a call.
#[derive(Debug, Clone)]
pub(super) struct StreamedInput {
    pub(super) text: String,
    pub(super) encoding: Option<InputEncoding>,
    pub(super) name: String,
    pub(super) dynamic: bool,
    pub(super) title: Option<String>,
    pub(super) tool_metadata: Option<Json>,
    /// The part that does not have this text yet.
    pub(super) unsettled: Option<usize>,
}

impl StreamedInput {
    /// The input of a call in a message that is being continued.
    pub(super) fn of(tool: &ToolPart) -> Self {
        Self {
            text: tool
                .raw_input
                .as_ref()
                .and_then(Json::as_str)
                .unwrap_or_default()
                .into_owned(),
            encoding: tool.input_encoding,
            name: tool.name.clone(),
            dynamic: tool.dynamic,
            title: tool.title.clone(),
            tool_metadata: tool.tool_metadata.clone(),
            unsettled: None,
        }
    }

    /// Whether its part does not have the text so far.
    pub(super) fn lags(&self) -> bool {
        self.unsettled.is_some()
    }

    fn value(&self, sdk: Sdk) -> Option<Json> {
        match self.encoding {
            Some(InputEncoding::Text) => Some(Json::from(self.text.as_str())),
            Some(InputEncoding::Json) | None => partial_json::parse(&self.text, sdk),
        }
    }
}

/// What a chunk says about a call. Most fields replace those of the part, even if absent; the title, tool metadata and
/// `providerExecuted` stay until a chunk sets them again.
#[derive(Default)]
pub(super) struct Update {
    pub(super) name: String,
    pub(super) state: ToolState,
    pub(super) input: Option<Json>,
    pub(super) raw_input: Option<Json>,
    pub(super) input_encoding: Option<InputEncoding>,
    pub(super) output: Option<Json>,
    pub(super) error_text: Option<String>,
    pub(super) preliminary: Option<bool>,
    pub(super) provider_executed: Option<bool>,
    pub(super) provider_metadata: Option<Json>,
    pub(super) tool_metadata: Option<Json>,
    pub(super) title: Option<String>,
}

impl Update {
    /// An update that keeps the call's name and input, taken out of the part to be put back.
    pub(super) fn moving_on(tool: &mut ToolPart, state: ToolState) -> Self {
        Self {
            name: std::mem::take(&mut tool.name),
            input: tool.input.take(),
            state,
            ..Self::default()
        }
    }

    pub(super) fn onto(self, tool: &mut ToolPart) {
        let of_result = matches!(
            self.state,
            ToolState::OutputAvailable | ToolState::OutputError
        );
        tool.name = self.name;
        tool.state = self.state;
        tool.input = self.input;
        tool.raw_input = self.raw_input;
        tool.input_encoding = self.input_encoding;
        tool.output = self.output;
        tool.error_text = self.error_text;
        tool.preliminary = self.preliminary;
        tool.provider_executed = self.provider_executed.or(tool.provider_executed);
        if self.title.is_some() {
            tool.title = self.title;
        }
        if self.tool_metadata.is_some() {
            tool.tool_metadata = self.tool_metadata;
        }
        if self.provider_metadata.is_some() {
            let metadata = if of_result {
                &mut tool.result_provider_metadata
            } else {
                &mut tool.call_provider_metadata
            };
            *metadata = self.provider_metadata;
        }
    }
}

impl Fold {
    /// The parts after the last step boundary.
    pub(super) fn current_step(&self) -> Range<usize> {
        let parts = &self.message.parts;
        let boundary = parts
            .iter()
            .rposition(|part| matches!(part, Part::StepStart));
        boundary.map_or(0, |at| at + 1)..parts.len()
    }

    /// Finds a call of the current step, of one kind or of both.
    pub(super) fn find_in_step(&self, call_id: &str, dynamic: Option<bool>) -> Option<usize> {
        self.current_step().find(|at| {
            self.tool(*at).is_some_and(|tool| {
                tool.call_id == call_id && dynamic.is_none_or(|kind| kind == tool.dynamic)
            })
        })
    }

    pub(super) fn tool(&self, at: usize) -> Option<&ToolPart> {
        match self.message.parts.get(at) {
            Some(Part::Tool(tool)) => Some(tool),
            _ => None,
        }
    }

    fn tool_mut(&mut self, at: usize) -> Option<&mut ToolPart> {
        match self.edited().parts.get_mut(at) {
            Some(Part::Tool(tool)) => Some(tool),
            _ => None,
        }
    }

    /// Returns a call of the current step, else the newest one with that id.
    pub(super) fn call(&mut self, call_id: &str) -> Result<&mut ToolPart, FoldError> {
        let is_it = |part: &Part| matches!(part, Part::Tool(tool) if tool.call_id == call_id);
        self.find_in_step(call_id, None)
            .or_else(|| self.message.parts.iter().rposition(is_it))
            .and_then(|at| self.tool_mut(at))
            .ok_or_else(|| FoldError::UnknownCall(call_id.to_owned()))
    }

    /// Returns a call with the input that has arrived so far.
    pub(super) fn settled_call(&mut self, call_id: &str) -> Result<&mut ToolPart, FoldError> {
        self.settle_call(call_id);
        self.call(call_id)
    }

    pub(super) fn call_by_approval(
        &mut self,
        approval_id: &str,
    ) -> Result<&mut ToolPart, FoldError> {
        let mut tools = self
            .edited()
            .parts
            .iter_mut()
            .filter_map(|part| match part {
                Part::Tool(tool) => Some(tool.as_mut()),
                _ => None,
            });
        tools
            .find(|tool| {
                tool.approval.as_ref().is_some_and(|approval| {
                    approval.id.as_ref().is_some_and(|id| id == approval_id)
                })
            })
            .ok_or_else(|| FoldError::UnknownApproval(approval_id.to_owned()))
    }

    /// Updates the call of this kind in the current step, or adds it.
    pub(super) fn place(&mut self, call_id: &str, dynamic: bool, update: Update) {
        let found = self.find_in_step(call_id, Some(dynamic));
        if let Some(streamed) = self.inputs.get_mut(call_id)
            && streamed.unsettled == found
        {
            // The streamed input is replaced before it was read.
            streamed.unsettled = None;
        }
        match found.and_then(|at| self.tool_mut(at)) {
            Some(tool) => update.onto(tool),
            None => {
                let mut tool = ToolPart {
                    call_id: call_id.into(),
                    dynamic,
                    ..ToolPart::default()
                };
                update.onto(&mut tool);
                self.push(Part::Tool(Box::new(tool)));
            }
        }
    }

    pub(super) fn input_delta(&mut self, call_id: &str, delta: &str) -> Result<(), FoldError> {
        let Some(streamed) = self.inputs.get(call_id) else {
            return Err(FoldError::NotOpen {
                chunk: "tool-input-delta",
                first: "tool-input-start",
                id: call_id.to_owned(),
            });
        };
        let found = self.find_in_step(call_id, Some(streamed.dynamic));
        if streamed.unsettled != found {
            // The text so far belongs to a part of an earlier step.
            self.settle_call(call_id);
        }
        let Some(streamed) = self.inputs.get_mut(call_id) else {
            return Ok(());
        };
        let parts = &mut Arc::make_mut(&mut self.message).parts;
        streamed.text.push_str(delta);
        match found.and_then(|at| parts.get_mut(at)) {
            Some(Part::Tool(tool)) => {
                streamed.unsettled = found;
                tool.name.clone_from(&streamed.name);
                tool.state = ToolState::InputStreaming;
                tool.input_encoding = streamed.encoding;
                tool.output = None;
                tool.error_text = None;
                tool.preliminary = None;
                if streamed.title.is_some() {
                    tool.title.clone_from(&streamed.title);
                }
                if streamed.tool_metadata.is_some() && tool.tool_metadata != streamed.tool_metadata
                {
                    tool.tool_metadata.clone_from(&streamed.tool_metadata);
                }
            }
            _ => parts.push(Part::Tool(Box::new(ToolPart {
                call_id: call_id.into(),
                name: streamed.name.clone(),
                dynamic: streamed.dynamic,
                state: ToolState::InputStreaming,
                input: streamed.value(self.sdk),
                // The client omits it when a delta creates a dynamic part.
                raw_input: (!streamed.dynamic).then(|| Json::from(streamed.text.as_str())),
                input_encoding: streamed.encoding,
                title: streamed.title.clone(),
                tool_metadata: streamed.tool_metadata.clone(),
                ..ToolPart::default()
            }))),
        }
        Ok(())
    }

    /// Gives every call the input that has arrived for it.
    pub(super) fn settle(&mut self) {
        let lagging = self.inputs.values_mut().filter(|streamed| streamed.lags());
        for streamed in lagging {
            settle(
                streamed,
                &mut Arc::make_mut(&mut self.message).parts,
                self.sdk,
            );
        }
    }

    pub(super) fn settle_call(&mut self, call_id: &str) {
        if let Some(streamed) = self
            .inputs
            .get_mut(call_id)
            .filter(|streamed| streamed.lags())
        {
            settle(
                streamed,
                &mut Arc::make_mut(&mut self.message).parts,
                self.sdk,
            );
        }
    }
}

fn settle(streamed: &mut StreamedInput, parts: &mut [Part], sdk: Sdk) {
    if let Some(at) = streamed.unsettled.take()
        && let Some(Part::Tool(tool)) = parts.get_mut(at)
    {
        tool.input = streamed.value(sdk);
        tool.raw_input = Some(Json::from(streamed.text.as_str()));
    }
}
