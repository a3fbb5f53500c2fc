//! An OpenTelemetry collector: it speaks OTLP over HTTP, and decodes what it is sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use adk_bridge_agents::trace_context::hex;
use adk_bridge_testkit::process::PATIENCE;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    Takes,
    Refuses,
    /// It never answers.
    Hangs,
}

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    seen: watch::Receiver<Seen>,
}

/// What it was sent so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) spans: Vec<SeenSpan>,
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) requests: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct SeenSpan {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    /// 1: internal, 2: server, 3: client.
    pub(crate) kind: i32,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) events: Vec<(String, BTreeMap<String, String>)>,
    /// The spans that it follows from.
    pub(crate) links: Vec<String>,
    pub(crate) failed: bool,
    pub(crate) whole: String,
}

impl Collector {
    pub(crate) fn start(habit: Habit) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = watch::channel(Seen::default());
        let app = Router::new()
            .route("/v1/traces", post(take))
            .with_state((Arc::new(sender), habit));
        // On a thread of its own: it answers while a test waits for a bridge to start.
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                axum::serve(listener, app).await.unwrap();
            });
        });
        Self { address, seen }
    }

    /// Lets a bridge send its spans here, at once.
    pub(crate) fn configure(&self, command: &mut Command) {
        command
            .env(
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                format!("http://{}", self.address),
            )
            .env("OTEL_BSP_SCHEDULE_DELAY", "20");
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until it was sent enough.
    pub(crate) async fn until(&self, is_enough: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout(PATIENCE, seen.wait_for(is_enough));
        match waited.await {
            Ok(seen) => seen.unwrap().clone(),
            Err(_) => panic!("not enough: {:#?}", self.seen()),
        }
    }
}

type Taking = (Arc<watch::Sender<Seen>>, Habit);

async fn take(State((seen, habit)): State<Taking>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let sent = ExportTraceServiceRequest::decode(body).unwrap();
    seen.send_modify(|seen| {
        seen.requests += 1;
        seen.headers = headers;
        for of_resource in sent.resource_spans {
            seen.resource = read(&of_resource.resource.unwrap_or_default().attributes);
            let spans = of_resource.scope_spans.into_iter().flat_map(|it| it.spans);
            seen.spans.extend(spans.map(SeenSpan::of));
        }
    });
    match habit {
        Habit::Takes => StatusCode::OK,
        Habit::Refuses => StatusCode::SERVICE_UNAVAILABLE,
        Habit::Hangs => std::future::pending().await,
    }
}

impl Seen {
    pub(crate) fn of(&self, trace: &str) -> Vec<&SeenSpan> {
        self.spans
            .iter()
            .filter(|span| span.trace == trace)
            .collect()
    }

    pub(crate) fn named(&self, name: &str) -> Vec<&SeenSpan> {
        self.spans.iter().filter(|span| span.name == name).collect()
    }

    /// Everything, as one text.
    pub(crate) fn text(&self) -> String {
        let spans: String = self.spans.iter().map(|span| span.whole.as_str()).collect();
        format!("{spans}{:?}", self.resource)
    }
}

impl SeenSpan {
    fn of(span: Span) -> Self {
        Self {
            whole: format!("{span:?}"),
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            kind: span.kind,
            attributes: read(&span.attributes),
            events: (span.events.iter())
                .map(|event| (event.name.clone(), read(&event.attributes)))
                .collect(),
            links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
            failed: span.status.is_some_and(|status| status.code == 2),
            name: span.name,
        }
    }

    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    pub(crate) fn events(&self) -> Vec<&str> {
        self.events.iter().map(|(name, _)| name.as_str()).collect()
    }
}

fn read(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let read = |given: &KeyValue| (given.key.clone(), text(given.value.clone()));
    attributes.iter().map(read).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        Some(Value::ArrayValue(all)) => {
            let all = all.values.into_iter().map(|value| text(Some(value)));
            all.collect::<Vec<_>>().join(",")
        }
        other => format!("{other:?}"),
    }
}
