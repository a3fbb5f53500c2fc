//! The span of a run of an agent: one model call, an answer of a live model, or the run of a remote agent with the tools that its
//! events show.

use std::collections::HashMap;
use std::time::SystemTime;

use adk_bridge_agents::agent::{
    AgentRequest, AgentRun, BoxFuture, EventSink, MemoryModel, NewInput, Starting,
};
use adk_bridge_agents::error::{AgentError, AgentErrorKind};
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_protocol::event::{Actions, Content, Event, FunctionCall, FunctionResponse};
use adk_bridge_protocol::id::ChatId;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::reply::RunEnd;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ChatTrace, Usage, agent_attributes, content};
use crate::agent_list::ServedAgent;
use crate::telemetry::{Span, SpanKind, attribute, in_trace};

/// How many calls of a remote agent are followed at the same time.
const MAX_CALLS: usize = 256;
/// The names of calls that ask the user something begin with this: nothing runs there.
const QUESTIONS: &str = "adk_request_";
/// How much of an answer is collected, if spans hold it.
const MAX_SAID_BYTES: usize = 8 * 1024;

/// The span of a run, and what its events have shown so far.
pub(in crate::chat) struct RunSpan {
    trace: ChatTrace,
    span: Span,
    /// Whether the agent runs its own tools, in any number of model calls.
    is_remote: bool,
    began: SystemTime,
    usage: Usage,
    model: Option<String>,
    finish_reason: Option<String>,
    /// The calls of a remote agent that have no result yet: their names, and when they were made.
    calls: HashMap<String, (String, SystemTime)>,
    /// Nothing if the span holds no content.
    said: Option<Said>,
    ending: Ending,
}

/// What the agent has said, if spans hold it.
#[derive(Default)]
struct Said {
    text: String,
    calls: Vec<Value>,
}

enum Ending {
    /// Dropped before its end: the turn was stopped, or went on without it.
    Cancelled,
    Done,
    Failed(&'static str),
}

/// A run whose events are looked at on their way.
struct TracedRun {
    run: Box<dyn AgentRun>,
    span: RunSpan,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ReportedUsage {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    response_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl RunSpan {
    /// Nothing if no spans are recorded.
    pub(super) fn begin(
        trace: &ChatTrace,
        served: &ServedAgent,
        request: &AgentRequest<'_>,
        parent: &TraceContext,
    ) -> Option<Self> {
        let chat = match request {
            AgentRequest::Conversation(request) => &request.chat.id,
            AgentRequest::Session(request) => &request.chat.id,
        };
        let model = served.info().model;
        let mut run = Self::of(trace, served, chat, model, parent)?;
        if trace.tracer.has_content() {
            run.span.set("gen_ai.input.messages", input_of(request));
            run.said = Some(Said::default());
        }
        Some(run)
    }

    /// The same for an answer of a live agent, whose connection stays open for many. What is spoken is in no span.
    pub(super) fn begin_live(
        trace: &ChatTrace,
        served: &ServedAgent,
        chat: &ChatId,
        parent: &TraceContext,
    ) -> Option<Self> {
        let live = served.agent().live().and_then(|live| live.model());
        let model = live.map(str::to_owned).or(served.info().model);
        Self::of(trace, served, chat, model, parent)
    }

    fn of(
        trace: &ChatTrace,
        served: &ServedAgent,
        chat: &ChatId,
        model: Option<String>,
        parent: &TraceContext,
    ) -> Option<Self> {
        let is_remote = served.agent().memory() == MemoryModel::Session;
        let span = trace.tracer.start(SpanKind::Client, parent, || {
            let mut attributes = agent_attributes(served, model.clone());
            let (operation, name) = match is_remote {
                true => ("invoke_agent", Some(served.info().name)),
                false => ("chat", model),
            };
            attributes.push(attribute("gen_ai.operation.name", operation));
            attributes.push(attribute(
                "gen_ai.conversation.id",
                super::hidden(chat.as_str()),
            ));
            attributes.push(attribute("gen_ai.request.stream", true));
            let name = name.map_or_else(|| operation.to_owned(), |it| format!("{operation} {it}"));
            (name, attributes)
        })?;
        Some(Self {
            trace: trace.clone(),
            span,
            is_remote,
            began: SystemTime::now(),
            usage: Usage::default(),
            model: None,
            finish_reason: None,
            calls: HashMap::new(),
            said: None,
            ending: Ending::Cancelled,
        })
    }

    pub(super) fn context(&self) -> &TraceContext {
        self.span.context()
    }

    /// Follows the run from its start to its end.
    pub(super) fn around(mut self, starting: Starting) -> Starting {
        Box::pin(async move {
            let context = self.context().clone();
            match in_trace(context, starting).await {
                Ok(run) => Ok(Box::new(TracedRun { run, span: self }) as Box<dyn AgentRun>),
                Err(error) => {
                    self.failed(&error);
                    Err(error)
                }
            }
        })
    }

    /// How an answer of a live agent has ended.
    pub(in crate::chat) fn ended(&mut self, how: &RunEnd) {
        self.ending = match how {
            RunEnd::Done => Ending::Done,
            RunEnd::Cut => Ending::Cancelled,
            RunEnd::Failed(_) => Ending::Failed("agent_error"),
        };
    }

    pub(in crate::chat) fn failed(&mut self, error: &AgentError) {
        self.ending = Ending::Failed(match error.kind() {
            AgentErrorKind::Unreachable => "unreachable",
            AgentErrorKind::Unauthorized => "unauthorized",
            AgentErrorKind::Quota { .. } => "quota",
            AgentErrorKind::Rejected => "rejected",
            // More kinds may come.
            _ => "broken",
        });
    }

    pub(in crate::chat) fn event(&mut self, event: &Event<'_>) {
        if let Some(version) = event.model_version.as_deref().and_then(content::as_id) {
            self.model = Some(version);
        }
        if let Some(reason) = event.finish_reason.as_deref().and_then(content::as_word) {
            self.finish_reason = Some(reason);
        }
        if event.error_code.is_some() || event.error.is_some() {
            self.ending = Ending::Failed("agent_error");
        }
        let is_partial = event.is_partial();
        if let Some(usage) = &event.usage_metadata
            && (!is_partial || !self.is_remote)
            && let Ok(reported) = serde_json::from_str::<ReportedUsage>(usage.get())
        {
            // A model repeats what it has counted so far; each event of a remote agent is another model call.
            if !self.is_remote {
                self.usage = Usage::default();
            }
            self.usage.add(reported.into());
        }
        if let Some(said) = &mut self.said
            && (!is_partial || !self.is_remote)
        {
            said.add(event);
        }
        if self.is_remote && !is_partial {
            self.follow_tools(event, self.said.is_some());
        }
    }

    /// The tools of a remote agent run over there, and its events show when.
    fn follow_tools(&mut self, event: &Event<'_>, shows_content: bool) {
        for part in event.parts() {
            if let Some(call) = &part.function_call {
                self.called(call);
            }
            if let Some(response) = &part.function_response {
                self.answered(response, event.actions.as_deref(), shows_content);
            }
        }
    }

    fn called(&mut self, call: &FunctionCall<'_>) {
        let (Some(id), Some(name)) = (call.id.as_deref(), call.name.as_deref()) else {
            return;
        };
        if name.starts_with(QUESTIONS) || self.calls.len() >= MAX_CALLS {
            return;
        }
        if let (Some(id), Some(name)) = (content::as_id(id), content::as_id(name)) {
            self.calls.insert(id, (name, SystemTime::now()));
        }
    }

    fn answered(
        &mut self,
        response: &FunctionResponse<'_>,
        actions: Option<&Actions>,
        shows_content: bool,
    ) {
        let id = response.id.as_deref();
        let name = response.name.as_deref().and_then(content::as_id);
        let (Some(id), Some(name)) = (id, name) else {
            return;
        };
        let asks = |asked: Option<&Json>| asked.is_some_and(|asked| asked.get(id).is_some());
        let waits = actions.is_some_and(|actions| {
            asks(actions.requested_tool_confirmations.as_ref())
                || asks(actions.requested_auth_configs.as_ref())
        });
        // A placeholder: the tool runs when the question has been answered.
        if name.starts_with(QUESTIONS) || waits {
            self.calls.remove(id);
            return;
        }
        // What was approved runs in a later run than it was called in.
        let known = self.calls.remove(id);
        let (name, began) = known.unwrap_or((name, self.began));
        let (tracer, parent) = (&self.trace.tracer, self.span.context());
        let ran = tracer.start_at(Some(began), SpanKind::Internal, parent, || {
            let mut attributes = vec![
                attribute("gen_ai.operation.name", "execute_tool"),
                attribute("gen_ai.tool.name", name.clone()),
                attribute("gen_ai.tool.type", "function"),
                // The agent may send a span of its own.
                attribute("adk_bridge.observed", true),
            ];
            attributes.extend(content::as_id(id).map(|id| attribute("gen_ai.tool.call.id", id)));
            (format!("execute_tool {name}"), attributes)
        });
        if let (Some(mut ran), Some(result)) = (ran, &response.response) {
            if shows_content {
                ran.set("gen_ai.tool.call.result", content::json(result));
            }
            if result.get("error").is_some_and(|error| !error.is_null()) {
                ran.fail("tool_error");
            }
        }
    }
}

impl Said {
    fn add(&mut self, event: &Event<'_>) {
        for part in event.parts() {
            match &part.text {
                Some(text) if part.thought != Some(true) && self.text.len() < MAX_SAID_BYTES => {
                    self.text.push_str(text);
                }
                Some(_) => {}
                None if part.function_call.is_some() && self.calls.len() < MAX_CALLS => {
                    self.calls.extend(content::part(part));
                }
                None => {}
            }
        }
    }
}

impl Drop for RunSpan {
    fn drop(&mut self) {
        self.trace.count(self.usage);
        self.usage.show(&mut self.span);
        if let Some(model) = self.model.take() {
            self.span.set("gen_ai.response.model", model);
        }
        if let Some(reason) = self.finish_reason.take() {
            self.span
                .set_list("gen_ai.response.finish_reasons", vec![reason]);
        }
        if let Some(said) = &self.said {
            let said = content::answer(&said.text, &said.calls);
            self.span.set("gen_ai.output.messages", said);
        }
        match self.ending {
            Ending::Done => {}
            Ending::Cancelled => self.span.set("adk_bridge.cancelled", true),
            Ending::Failed(kind) => self.span.fail(kind),
        }
    }
}

impl AgentRun for TracedRun {
    fn read(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, AgentError>> {
        Box::pin(async {
            let read = self.run.read().await;
            read.inspect_err(|error| self.span.failed(error))
        })
    }

    fn events(&mut self, piece: &[u8], sink: EventSink<'_>) -> Result<(), AgentError> {
        let Self { run, span } = self;
        let fed = run.events(piece, &mut |event| {
            span.event(event);
            sink(event);
        });
        fed.inspect_err(|error| span.failed(error))
    }

    fn finish(&mut self, sink: EventSink<'_>) -> Result<(), AgentError> {
        let Self { run, span } = self;
        let fed = run.finish(&mut |event| {
            span.event(event);
            sink(event);
        });
        match &fed {
            Ok(()) if matches!(span.ending, Ending::Cancelled) => span.ending = Ending::Done,
            Ok(()) => {}
            Err(error) => span.failed(error),
        }
        fed
    }

    fn take_said(&mut self) -> Vec<String> {
        self.run.take_said()
    }
}

impl From<ReportedUsage> for Usage {
    fn from(reported: ReportedUsage) -> Self {
        let sum = |first: Option<u64>, second: Option<u64>| {
            let counts = [first, second].into_iter().flatten();
            counts.reduce(u64::saturating_add)
        };
        let said = reported
            .candidates_token_count
            .or(reported.response_token_count);
        Self {
            input: sum(
                reported.prompt_token_count,
                reported.tool_use_prompt_token_count,
            ),
            cached: reported.cached_content_token_count,
            output: sum(said, reported.thoughts_token_count),
        }
    }
}

/// What the agent is sent.
fn input_of(request: &AgentRequest<'_>) -> String {
    match request {
        AgentRequest::Conversation(request) => content::messages(request.contents.iter()),
        AgentRequest::Session(request) => match &request.input {
            NewInput::Message(message) => {
                let read: Option<Content<'_>> = serde_json::from_str(message.text()).ok();
                content::messages(read.iter())
            }
            NewInput::Responses(responses) => {
                // What a user grants is a response, too.
                let shown = responses.iter().map(|it| {
                    let (id, name) = (content::as_id(&it.id), content::as_id(&it.name));
                    json!({"type": "tool_call_response", "id": id, "name": name})
                });
                json!([{"role": "tool", "parts": shown.collect::<Vec<_>>()}]).to_string()
            }
        },
    }
}
