//! Credentials that a remote agent asks for: the question, its answer, and what a refusal means for the calls that wait.
//!
//! ```text
//!                      granted (Answer::Granted) ──▶ output {granted: true}, the agent gets the credentials
//!     AwaitingClient ──┤
//!                      refused, too late ──────────▶ an error, which is also the result of the calls that wait for them
//! ```
//!
//! Secrets are never here: what was granted is added to the report by whoever sends it.

use serde_json::json;

use super::phase::Channel;
use super::{Context, Reply};
use crate::calls::{Call, CallState, CredentialRequest, GrantBy, Outcome, RunsOn, Settlement};
use crate::credentials::{CALL, EXPIRES, LINK, asked, asker_of};
use crate::event::{FunctionCall, REQUEST_CREDENTIAL};
use crate::id::CallId;
use crate::json_text::Json;
use crate::message::ToolState;
use crate::outbox::{AuditKind, Outbox};

const CANNOT_GRANT: &str = "the agent asks for credentials of a kind that a user cannot grant here; they must be set up on the ADK server";
const CANNOT_ASK: &str = "not granted: the ADK server cannot take credentials in a spoken conversation; \
                          ask for it in writing, with the spoken conversation closed";
pub(super) const NOT_GRANTED: &str = "denied: the user did not grant access";
pub(super) const NOT_GRANTED_IN_TIME: &str = "expired: access was not granted in time";
const WITHOUT_ACCESS: &str = "not run: the user did not grant the access that it needs";

impl Reply {
    /// Takes an agent's request for credentials: the user is asked.
    pub(super) fn take_credential_request(
        &mut self,
        request: &FunctionCall<'_>,
        channel: Channel,
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        let model_id = request.id.as_deref().filter(|id| !id.is_empty());
        if model_id.is_some_and(|id| self.calls.index_of_model_id(id).is_some()) {
            return;
        }
        let nothing = Json::empty();
        let args = request.args.as_ref().unwrap_or(&nothing);
        let id = context.ids.call(model_id);
        let expires = context.now + context.policy.limits().approval_timeout;
        let is_remote = self.is_remote(context);
        let question = CredentialRequest {
            call: &id,
            args,
            expires,
        };
        // Only a remote agent can be given them, under the id of its question.
        let may_ask = is_remote && channel == Channel::Run && model_id.is_some();
        let grant = match may_ask {
            true => context.ids.credential(&question),
            false => None,
        };
        let mut input = asked(args);
        if let Some(grant) = &grant {
            if let GrantBy::Link(link) = grant {
                input = input.with(LINK, &link.as_str().into());
            }
            input = input.with(EXPIRES, &json!(expires.as_millis()).into());
            if let Some(waiting) = asker_of(args).and_then(|id| self.calls.index_of_model_id(&id)) {
                input = input.with(CALL, &self.calls[waiting].id.as_str().into());
            }
        }
        let call = Call {
            id,
            model_id: model_id.map(str::to_owned),
            name: REQUEST_CREDENTIAL.to_owned(),
            input,
            step: self.steps,
            origin: self.translator.origin(),
            asked_by: None,
            runs_on: match grant {
                Some(_) => RunsOn::Client,
                None => RunsOn::Server,
            },
            idempotent: false,
            approval: None,
            state: match grant {
                Some(_) => CallState::AwaitingClient { expires },
                None => CallState::Received,
            },
            early: None,
            announced: false,
            reported: false,
        };
        self.durably(out, |reply, out| {
            let mut index = 0;
            reply.with_emitter(context, out, |translator, emitter| {
                index = translator.add_call(call, None, emitter);
            });
            let refusal = match channel {
                Channel::Run => CANNOT_GRANT,
                Channel::Live => CANNOT_ASK,
            };
            if is_remote && grant.is_none() {
                reply.settle_with(index, Outcome::error(refusal), out);
            }
        });
        if grant.is_some() {
            self.translator.mute_asker();
        }
    }

    /// Settles a question whose credentials the agent can be given.
    pub(super) fn grant(&mut self, index: usize, out: &mut Outbox) {
        let granted = Json::object([("granted", true.into())]);
        self.settle_with(index, Outcome::output(granted), out);
    }

    /// Settles a question that was not answered with credentials. The calls that wait for them do not run.
    pub(super) fn refuse_grant(
        &mut self,
        index: usize,
        how: Settlement,
        text: &str,
        out: &mut Outbox,
    ) {
        let row = self.audit(AuditKind::ToolFailed, &self.calls[index], Some(text));
        out.audit.push(row);
        self.settle_failed(index, how, text, out);
        // There is nothing to send for it.
        self.calls[index].reported = true;
        let refused = &self.calls[index];
        let waits = |call: &Call| {
            call.state == CallState::Running
                && call.runs_on == RunsOn::Remote
                && call.is_answered_with(refused)
                && self.asked_for(call).is_none_or(|by| by.id == refused.id)
        };
        let waiting: Vec<usize> = (0..self.calls.len())
            .filter(|&other| waits(&self.calls[other]))
            .collect();
        for other in waiting {
            self.settle_failed(other, Settlement::Error, WITHOUT_ACCESS, out);
            // The agent gets this as the result of its tool.
            self.calls[other].runs_on = RunsOn::Client;
            self.calls[other].reported = false;
        }
    }

    /// Shows of calls that wait for credentials that they do: stock predicates send the answers of a step only when every
    /// call in it has an output, and a preliminary one is none to them. The result takes its place.
    pub(super) fn show_pending(&mut self, out: &mut Outbox) {
        let shows_nothing = |call: &Call| {
            let part = self.tool_part(&call.id);
            part.is_some_and(|part| part.state == ToolState::InputAvailable)
        };
        let waits = |call: &Call| {
            call.is_underway_elsewhere()
                && shows_nothing(call)
                && self.calls.iter().any(|question| {
                    question.asks_for_credentials()
                        && question.waits_for_client()
                        && question.is_answered_with(call)
                })
        };
        let waiting = self.calls.iter().filter(|call| waits(call));
        let waiting: Vec<CallId> = waiting.map(|call| call.id.clone()).collect();
        if waiting.is_empty() {
            return;
        }
        self.durably(out, |reply, out| {
            for id in waiting {
                reply.show_one_pending(&id, out);
            }
        });
    }

    /// The question that names this call. If several calls need the same login, the agent asks for the first one only.
    fn asked_for(&self, call: &Call) -> Option<&Call> {
        self.calls.iter().rev().find(|question| {
            let named = question.input.get(CALL);
            let named = named.as_ref().and_then(Json::as_str);
            question.asks_for_credentials() && named.is_some_and(|id| call.id == *id)
        })
    }
}

/// Whether a client's output for a question says that the user refuses. Anything else says nothing: only credentials that
/// have come count as a yes.
pub(super) fn is_refusal(output: &Json) -> bool {
    output.get("granted").and_then(|granted| granted.as_bool()) == Some(false)
}
