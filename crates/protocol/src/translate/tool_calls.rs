//! Tool calls as chunks: arguments while they grow, complete calls, and requests for confirmation.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{Fact, Original, Translator, signed};
use crate::args::ArgsWriter;
use crate::calls::{Call, CallState, Calls, RunsOn};
use crate::chunk::Chunk;
use crate::event::{FunctionCall, REQUEST_CONFIRMATION};
use crate::outbox::Page;

/// A call whose arguments are still being written.
#[derive(Debug)]
pub(super) struct StreamingCall {
    index: usize,
    args: ArgsWriter,
}

impl Translator {
    /// Shows a call and takes it into the book.
    pub(crate) fn add_call(&mut self, call: Call, page: &mut Page<'_>) -> usize {
        self.close_text(page);
        self.enter_step(page);
        let index = page.calls.push(call);
        input_start(index, page);
        input_available(index, None, page);
        index
    }

    /// Takes in a complete call. Returns its index, or nothing where it is known already.
    pub(super) fn call(
        &mut self,
        call: &FunctionCall<'_>,
        signature: Option<&str>,
        page: &mut Page<'_>,
    ) -> Option<usize> {
        self.bytes += call.args.as_ref().map_or(0, |args| args.to_string().len());
        let streamed = self
            .streaming_call(call.id.as_deref(), page.calls)
            .or_else(|| {
                // The complete call may carry another id than its streamed arguments did.
                self.streaming.iter().position(|stream| {
                    Some(page.calls[stream.index].name.as_str()) == call.name.as_deref()
                })
            });
        if let Some(slot) = streamed {
            let index = self.streaming.remove(slot).index;
            let known = &mut page.calls[index];
            known.state = CallState::Received;
            known.input = input_of(call);
            if let Some(id) = call.id.as_deref() {
                known.model_id = Some(id.to_owned());
            }
            self.close_text(page);
            input_available(index, signature, page);
            return Some(index);
        }
        let known = call
            .id
            .as_deref()
            .is_some_and(|id| page.calls.index_of_model_id(id).is_some());
        if known || call.name.as_deref().is_none_or(str::is_empty) {
            return None; // A call without a name can be neither shown nor answered.
        }
        self.close_text(page);
        self.enter_step(page);
        let call = new_call(call, page, CallState::Received);
        let index = page.calls.push(call);
        input_start(index, page);
        input_available(index, signature, page);
        Some(index)
    }

    /// Shows arguments while the model still writes them.
    pub(super) fn streamed_call(&mut self, call: &FunctionCall<'_>, page: &mut Page<'_>) {
        if call.name.as_deref() == Some(REQUEST_CONFIRMATION) || self.muted {
            return;
        }
        let grows = call.will_continue == Some(true) || call.partial_args.is_some();
        let slot = match self.streaming_call(call.id.as_deref(), page.calls) {
            Some(slot) => slot,
            None if grows && call.name.as_deref().is_some_and(|name| !name.is_empty()) => {
                self.begin_streamed_call(call, page)
            }
            None => return,
        };
        let stream = &mut self.streaming[slot];
        self.scratch.clear();
        for arg in call.partial_args.iter().flatten() {
            stream.args.push(arg, &mut self.scratch);
        }
        if call.will_continue != Some(true) {
            stream.args.finish(&mut self.scratch);
        }
        if !self.scratch.is_empty() {
            self.bytes += self.scratch.len();
            let delta = Chunk::ToolInputDelta {
                tool_call_id: Cow::Borrowed(&page.calls[stream.index].id),
                input_text_delta: Cow::Borrowed(&self.scratch),
            };
            page.draft.emit(&delta, page.out);
        }
    }

    fn begin_streamed_call(&mut self, call: &FunctionCall<'_>, page: &mut Page<'_>) -> usize {
        self.close_text(page);
        self.enter_step(page);
        let call = new_call(call, page, CallState::Streaming);
        let index = page.calls.push(call);
        input_start(index, page);
        self.streaming.push(StreamingCall {
            index,
            args: ArgsWriter::default(),
        });
        self.streaming.len() - 1
    }

    fn streaming_call(&self, id: Option<&str>, calls: &Calls) -> Option<usize> {
        match id {
            Some(id) => self
                .streaming
                .iter()
                .position(|stream| calls[stream.index].model_id.as_deref() == Some(id)),
            None => self.streaming.len().checked_sub(1),
        }
    }
}

/// A request for confirmation, if the call is a complete one.
pub(super) fn confirmation<'e>(call: &'e FunctionCall<'_>) -> Option<Fact<'e>> {
    let args = call.args.as_ref()?;
    let original = args.get("originalFunctionCall")?;
    let string = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
    Some(Fact::Confirmation {
        remote_id: call.id.as_deref()?,
        original: Original {
            id: string(original, "id"),
            name: string(original, "name").unwrap_or_default(),
            args: original.get("args").cloned().unwrap_or_else(|| json!({})),
        },
        hint: args
            .get("toolConfirmation")
            .and_then(|confirmation| string(confirmation, "hint"))
            .unwrap_or_default(),
        payload: args
            .get("toolConfirmation")
            .and_then(|confirmation| confirmation.get("payload"))
            .filter(|payload| !payload.is_null()),
    })
}

fn input_start(index: usize, page: &mut Page<'_>) {
    let call = &page.calls[index];
    let chunk = Chunk::ToolInputStart {
        tool_call_id: Cow::Borrowed(&call.id),
        tool_name: Cow::Borrowed(&call.name),
        input_encoding: None,
        provider_executed: None,
        provider_metadata: None,
        tool_metadata: None,
        dynamic: None,
        title: None,
    };
    page.draft.emit(&chunk, page.out);
}

fn input_available(index: usize, signature: Option<&str>, page: &mut Page<'_>) {
    let call = &page.calls[index];
    let chunk = Chunk::ToolInputAvailable {
        tool_call_id: Cow::Borrowed(&call.id),
        tool_name: Cow::Borrowed(&call.name),
        input: Cow::Borrowed(&call.input),
        provider_executed: None,
        provider_metadata: signature.map(|signature| Cow::Owned(signed(signature))),
        tool_metadata: None,
        dynamic: None,
        title: None,
    };
    page.draft.emit(&chunk, page.out);
}

fn new_call(call: &FunctionCall<'_>, page: &mut Page<'_>, state: CallState) -> Call {
    let model_id = call.id.as_deref().filter(|id| !id.is_empty());
    Call {
        id: page.ids.call(model_id),
        model_id: model_id.map(str::to_owned),
        name: call.name.as_deref().unwrap_or_default().to_owned(),
        input: input_of(call),
        step: page.step,
        runs_on: RunsOn::Server,
        idempotent: false,
        approval: None,
        state,
        early: None,
        announced: false,
        reported: false,
    }
}

fn input_of(call: &FunctionCall<'_>) -> Value {
    match &call.args {
        Some(args) if !args.is_null() => args.clone(),
        _ => Value::Object(Map::new()),
    }
}
