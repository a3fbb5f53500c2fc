//! Tool calls as chunks: arguments while they grow, complete calls, and requests for confirmation.

use std::borrow::Cow;

use super::{Fact, Original, Translator, signed};
use crate::args::ArgsWriter;
use crate::calls::{Call, CallState, Calls, Origin, RunsOn};
use crate::chunk::Chunk;
use crate::credentials::shown_request;
use crate::event::{FunctionCall, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL};
use crate::json_text::Json;
use crate::outbox::Emitter;

/// A call whose arguments are still being written.
#[derive(Debug)]
pub(super) struct StreamingCall {
    index: usize,
    args: ArgsWriter,
}

impl Translator {
    /// Shows a call and adds it to the reply's calls.
    pub(crate) fn add_call(
        &mut self,
        call: Call,
        metadata: Option<Json>,
        emitter: &mut Emitter<'_>,
    ) -> usize {
        self.close_text(emitter);
        self.enter_step(emitter);
        let index = emitter.calls.push(call);
        input_start(index, emitter);
        input_available(index, metadata, emitter);
        index
    }

    /// Shows a complete call. Returns its index, or `None` if the call is known already.
    pub(super) fn call(
        &mut self,
        call: &FunctionCall<'_>,
        signature: Option<&str>,
        emitter: &mut Emitter<'_>,
    ) -> Option<usize> {
        self.bytes += call.args.as_ref().map_or(0, |args| args.text().len());
        let streamed = self
            .streaming_call(call.id.as_deref(), emitter.calls)
            .or_else(|| {
                // The id of a complete call may differ from that of its streamed arguments.
                self.streaming.iter().position(|stream| {
                    Some(emitter.calls[stream.index].name.as_str()) == call.name.as_deref()
                })
            });
        if let Some(slot) = streamed {
            let index = self.streaming.remove(slot).index;
            let known = &mut emitter.calls[index];
            known.state = CallState::Received;
            known.input = input_of(call);
            if let Some(id) = call.id.as_deref() {
                known.model_id = Some(id.to_owned());
            }
            self.close_text(emitter);
            input_available(index, signature.map(signed), emitter);
            return Some(index);
        }
        let known = call
            .id
            .as_deref()
            .is_some_and(|id| emitter.calls.index_of_model_id(id).is_some());
        if known || call.name.as_deref().is_none_or(str::is_empty) {
            return None; // A call without a name can be neither shown nor answered.
        }
        self.close_text(emitter);
        self.enter_step(emitter);
        let call = new_call(call, self.origin(), emitter, CallState::Received);
        let index = emitter.calls.push(call);
        input_start(index, emitter);
        input_available(index, signature.map(signed), emitter);
        Some(index)
    }

    /// Shows arguments while the model is still writing them.
    pub(super) fn streamed_call(&mut self, call: &FunctionCall<'_>, emitter: &mut Emitter<'_>) {
        let name = call.name.as_deref();
        // Questions are shown when they are complete, and of those for credentials only a part.
        if matches!(name, Some(REQUEST_CONFIRMATION | REQUEST_CREDENTIAL)) || self.is_muted() {
            return;
        }
        let grows = call.will_continue == Some(true) || call.partial_args.is_some();
        let slot = match self.streaming_call(call.id.as_deref(), emitter.calls) {
            Some(slot) => slot,
            None if grows && call.name.as_deref().is_some_and(|name| !name.is_empty()) => {
                self.begin_streamed_call(call, emitter)
            }
            None => return,
        };
        let stream = &mut self.streaming[slot];
        self.scratch.clear();
        for arg in call.partial_args.iter().flatten() {
            stream.args.push(arg, &mut self.scratch);
        }
        self.scratch
            .push_str(call.args_text.as_deref().unwrap_or_default());
        if call.will_continue != Some(true) {
            stream.args.finish(&mut self.scratch);
        }
        if !self.scratch.is_empty() {
            self.bytes += self.scratch.len();
            let delta = Chunk::ToolInputDelta {
                tool_call_id: Cow::Borrowed(emitter.calls[stream.index].id.as_str()),
                input_text_delta: Cow::Borrowed(&self.scratch),
            };
            emitter.draft.emit(&delta, emitter.out);
        }
    }

    fn begin_streamed_call(&mut self, call: &FunctionCall<'_>, emitter: &mut Emitter<'_>) -> usize {
        self.close_text(emitter);
        self.enter_step(emitter);
        let call = new_call(call, self.origin(), emitter, CallState::Streaming);
        let index = emitter.calls.push(call);
        input_start(index, emitter);
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
    let asked = args.get("toolConfirmation");
    let string = |value: &Json, key: &str| Some(value.get(key)?.as_str()?.into_owned());
    let name = string(&original, "name").unwrap_or_default();
    Some(Fact::Confirmation {
        remote_id: call.id.as_deref()?,
        original: Original {
            id: string(&original, "id"),
            args: (original.get("args").filter(|args| !args.is_null()))
                .map(|args| shown_input(&name, &args)),
            name,
        },
        hint: asked
            .as_ref()
            .and_then(|asked| string(asked, "hint"))
            .unwrap_or_default(),
        payload: asked
            .and_then(|asked| asked.get("payload"))
            .filter(|payload| !payload.is_null()),
    })
}

fn input_start(index: usize, emitter: &mut Emitter<'_>) {
    let call = &emitter.calls[index];
    let chunk = Chunk::ToolInputStart {
        tool_call_id: Cow::Borrowed(call.id.as_str()),
        tool_name: Cow::Borrowed(&call.name),
        input_encoding: None,
        provider_executed: None,
        provider_metadata: None,
        tool_metadata: None,
        dynamic: None,
        title: None,
    };
    emitter.draft.emit(&chunk, emitter.out);
}

fn input_available(index: usize, metadata: Option<Json>, emitter: &mut Emitter<'_>) {
    let call = &emitter.calls[index];
    let chunk = Chunk::ToolInputAvailable {
        tool_call_id: Cow::Borrowed(call.id.as_str()),
        tool_name: Cow::Borrowed(&call.name),
        input: call.input.clone(),
        provider_executed: None,
        provider_metadata: metadata,
        tool_metadata: None,
        dynamic: None,
        title: None,
    };
    emitter.draft.emit(&chunk, emitter.out);
}

fn new_call(
    call: &FunctionCall<'_>,
    origin: Option<Origin>,
    emitter: &mut Emitter<'_>,
    state: CallState,
) -> Call {
    let model_id = call.id.as_deref().filter(|id| !id.is_empty());
    Call {
        id: emitter.ids.call(model_id),
        model_id: model_id.map(str::to_owned),
        name: call.name.as_deref().unwrap_or_default().to_owned(),
        input: input_of(call),
        step: emitter.step,
        origin,
        asked_by: None,
        runs_on: RunsOn::Server,
        idempotent: false,
        approval: None,
        state,
        early: None,
        announced: false,
        reported: false,
    }
}

fn input_of(call: &FunctionCall<'_>) -> Json {
    let name = call.name.as_deref().unwrap_or_default();
    match &call.args {
        Some(args) if !args.is_null() => shown_input(name, args),
        _ => Json::empty(),
    }
}

/// The arguments of a call as they are shown and stored. Those of a request for credentials end here: they may contain
/// secrets.
fn shown_input(name: &str, args: &Json) -> Json {
    match name {
        REQUEST_CREDENTIAL => shown_request(args),
        _ => args.clone(),
    }
}
