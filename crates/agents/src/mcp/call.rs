//! One tool of an MCP server, and its calls.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::calls::Outcome;
use rmcp::ServiceError;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient};
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use super::questions::{self, Running};
use super::{Connection, Phase, Shared, result};
use crate::agent::BoxFuture;
use crate::error::shortened;
use crate::tool::{ServerTool, ToolCall, ToolSpec};
use crate::trace_context::{TRACEPARENT, TRACESTATE};

/// The field of `_meta` that holds the id of the call, which is the same whenever a call is the same.
const IDEMPOTENCY_KEY: &str = "idempotencyKey";
/// How often a server may end a call with questions.
const MAX_ROUNDS: u32 = 32;
/// How long a call rests that a server has ended without a question, to be taken up later; each time a little longer.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// How long a server may take to be sent that a call is cancelled.
const CANCEL_TIME: Duration = Duration::from_secs(5);

/// A tool of an MCP server.
pub(super) struct McpTool {
    spec: ToolSpec,
    /// Its name on the server; empty if it only says that the server is not available.
    remote: String,
    shared: Arc<Shared>,
}

impl McpTool {
    pub(super) fn new(spec: ToolSpec, remote: String, shared: Arc<Shared>) -> Self {
        Self {
            spec,
            remote,
            shared,
        }
    }

    async fn call(&self, call: ToolCall) -> Result<Outcome, String> {
        let connection = match self.shared.phase() {
            Phase::Ready(connection) if !self.remote.is_empty() => connection,
            // It has come since the model was asked.
            Phase::Ready(_) => return Err("its tools can be used now; call one of them".to_owned()),
            _ => return Err(self.shared.problem().unwrap_or_default()),
        };
        let arguments: Map<String, Value> = (call.input.read())
            .map_err(|_| "the arguments of the call are not an object".to_owned())?;
        let mut params = CallToolRequestParams::new(self.remote.clone()).with_arguments(arguments);
        let running = connection.calls.add(&call);
        for round in 0..MAX_ROUNDS {
            let answer = self
                .send(&connection, &running, &call, params.clone())
                .await?;
            let ServerResult::InputRequiredResult(wanted) = answer else {
                return result::outcome(answer);
            };
            // Newer servers end a call with their questions, and take it up with the answers.
            let (state, questions) = (wanted.request_state, wanted.input_requests);
            let answers = questions::answers(self.shared.name(), &call, questions).await?;
            if answers.is_empty() {
                sleep(ROUND_PAUSE * (round + 1)).await;
            }
            params.input_responses = Some(answers).filter(|answers| !answers.is_empty());
            params.request_state = state;
        }
        Err("the tool asked again and again, and was given up".to_owned())
    }

    /// Sends a call, or its next round, and waits for the answer.
    async fn send(
        &self,
        connection: &Connection,
        running: &Running,
        call: &ToolCall,
        params: CallToolRequestParams,
    ) -> Result<ServerResult, String> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut meta = RequestMetaObject::new();
        let key = Value::from(call.call_id.as_str());
        meta.insert(IDEMPOTENCY_KEY.to_owned(), key);
        // The names that the protocol reserves for it, on every transport.
        if let Some(parent) = call.trace.traceparent() {
            meta.insert(TRACEPARENT.to_string(), parent.into());
        }
        if let Some(state) = call.trace.tracestate() {
            meta.insert(TRACESTATE.to_string(), state.into());
        }
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let name = self.shared.name();
        let peer = &connection.peer;
        let sent = peer.send_request_with_option(request, options).await;
        let handle =
            sent.map_err(|_| format!("the MCP server {name:?} has ended; the tool was not run"))?;
        running.sent(&handle);
        let mut waiting = Waiting::new(peer, &handle.id);
        let answer = handle.await_response().await;
        waiting.is_over = true;
        answer.map_err(|error| match error {
            ServiceError::McpError(error) => {
                format!("the tool failed: {}", shortened(&error.message))
            }
            error => {
                if let ServiceError::TransportSend(_) = error {
                    connection.broken.notify_one();
                }
                format!(
                    "the connection to the MCP server {name:?} failed while the tool ran; what came of it is unknown"
                )
            }
        })
    }
}

impl ServerTool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCall) -> BoxFuture<'_, Outcome> {
        Box::pin(async move { self.call(call).await.unwrap_or_else(Outcome::error) })
    }
}

/// A call that the server works on. If this is dropped before it is over, the server is informed.
struct Waiting {
    peer: Peer<RoleClient>,
    id: RequestId,
    is_over: bool,
}

impl Waiting {
    fn new(peer: &Peer<RoleClient>, id: &RequestId) -> Self {
        Self {
            peer: peer.clone(),
            id: id.clone(),
            is_over: false,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let params = CancelledNotificationParam::new(Some(self.id.clone()), None);
        let notification = CancelledNotification::new(params);
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let notification = ClientNotification::CancelledNotification(notification);
            let _ = timeout(CANCEL_TIME, peer.send_notification(notification)).await;
        });
    }
}
