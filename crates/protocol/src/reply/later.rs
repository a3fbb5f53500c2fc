//! Results that come after the reply that made the call: a long-running tool of a remote agent returned something at once,
//! such as a ticket, and finishes later.
//!
//! ```text
//!   reply 1:  call ─▶ Settled(Interim) ─▶ … ─▶ Ended
//!                          │ the result comes
//!                          ▼
//!   reply 2:         the call again, settled ─▶ Asking ─▶ …
//! ```
//!
//! The first reply has ended and stays as it is. The second one begins with the result instead of a message of the user: it
//! shows the call with its result, which the agent gets under the id that it gave to the call.

use super::phase::{Run, Turn};
use super::{Audience, Context, Reply};
use crate::calls::{Call, CallState, Outcome, RunsOn, Settlement};
use crate::id::CallId;
use crate::json_text::Json;
use crate::message::{Message, Part, ToolPart};
use crate::outbox::{Ask, Effect, Outbox};

/// Names the call of the earlier reply, in the metadata of the call that shows its result.
const RESULT_OF: &str = "resultOf";

/// The result of a call of an earlier reply.
#[derive(Debug, Clone, PartialEq)]
pub struct LaterResult {
    call: Call,
    outcome: Outcome,
}

impl LaterResult {
    /// The result of this call, unless nothing more can come of the call.
    pub fn of(call: &Call, outcome: Outcome) -> Option<Self> {
        let call = call.clone();
        call.may_finish_later().then_some(Self { call, outcome })
    }
}

impl Call {
    /// Whether the agent's tool has returned something, and may finish later.
    pub fn may_finish_later(&self) -> bool {
        self.settled() == Some(Settlement::Interim) && self.model_id.is_some()
    }
}

/// The calls whose later results a message shows.
pub fn later_results(message: &Message) -> impl Iterator<Item = CallId> {
    let tools = message.parts.iter().filter_map(Part::as_tool);
    tools.filter_map(result_of)
}

fn result_of(part: &ToolPart) -> Option<CallId> {
    let metadata = part.call_provider_metadata.as_ref()?;
    let id = metadata.get("adk")?.get(RESULT_OF)?;
    Some(id.as_str()?.as_ref().into())
}

impl Reply {
    /// Begins with the result of a call of an earlier reply. It is stored before anybody learns of it.
    pub(super) fn begin_with_result(
        &mut self,
        result: &LaterResult,
        mode: Audience,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        self.turn = Some(Turn::new(mode));
        self.steps += 1;
        self.start_run(Run::Answer);
        let LaterResult { call, outcome } = result;
        let shown = Call {
            id: context.ids.call(call.model_id.as_deref()),
            step: self.steps,
            runs_on: RunsOn::Client,
            approval: None,
            state: CallState::Received,
            early: None,
            announced: false,
            // The run that begins with it tells the agent.
            reported: true,
            ..call.clone()
        };
        let earlier = Json::object([(RESULT_OF, call.id.as_str().into())]);
        let metadata = Json::object([("adk", earlier)]);
        self.durably(out, |reply, out| {
            let mut index = 0;
            reply.with_emitter(context, out, |translator, emitter| {
                index = translator.add_call(shown, Some(metadata), emitter);
            });
            reply.settle_with(index, outcome.clone(), out);
            let response = reply.response(index);
            out.want(Effect::Ask(Ask::Responses(vec![response])));
        });
    }
}
