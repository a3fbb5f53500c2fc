//! Spans over OTLP: whether they are recorded, as the `OTEL_…` variables say, and how they begin.
//!
//! Without these variables there is no exporter, no thread and no span.

use std::borrow::Cow;
use std::env;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use adk_bridge_agents::trace_context::TraceContext;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Array, Context, InstrumentationScope, Key, KeyValue, StringValue, Value};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use url::Url;
use uuid::Uuid;

pub use opentelemetry::trace::SpanKind;

use super::collector::Collector;
use crate::metrics::SpanExports;

/// How long the last spans may take to be sent when the server stops.
const LAST_SPANS: Duration = Duration::from_secs(3);
/// How long one request to the collector may take, unless a variable says otherwise: as the specification has it.
const EXPORT_TIME: Duration = Duration::from_secs(10);
/// The name of the service, unless a variable says otherwise.
const SERVICE: &str = "adk-bridge";

const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const PROTOCOLS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
const TIMEOUTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];
const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];
/// What others read, and this program does not.
const CERTIFICATES: [&str; 6] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
];
const PROPAGATORS: &str = "OTEL_PROPAGATORS";
/// The propagator that there is; `baggage` next to it, as by default, carries nothing here.
const PROPAGATOR: &str = "tracecontext";
const SPOKEN_PROTOCOL: &str = "http/protobuf";

/// Begins spans, if any are recorded. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Recording>>);

struct Recording {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    /// Whether spans hold what was said.
    content: bool,
}

/// One span; it ends when it is dropped.
pub struct Span {
    span: opentelemetry_sdk::trace::Span,
    context: TraceContext,
}

/// A name and a value of a span.
pub type Attribute = KeyValue;

pub fn attribute(name: &'static str, value: impl Into<Value>) -> Attribute {
    KeyValue::new(name, value)
}

/// Why spans cannot be recorded as the environment asks; the message names the variable.
#[derive(Debug, thiserror::Error)]
pub enum TracerError {
    #[error(
        "{variable}: spans are sent as {SPOKEN_PROTOCOL}, and {found:?} is not spoken; write {SPOKEN_PROTOCOL}, and the port \
         that a collector has for it (commonly 4318)"
    )]
    Protocol {
        variable: &'static str,
        found: String,
    },
    #[error("{EXPORTER}: spans are sent to \"otlp\" or \"none\", not {0:?}")]
    Exporter(String),
    #[error("{0}: this is not the address of a collector; write http://HOST:4318")]
    Endpoint(&'static str),
    #[error("{variable}: {problem}")]
    Value {
        variable: &'static str,
        problem: &'static str,
    },
    #[error("the exporter of spans cannot be made: {0}")]
    Refused(String),
}

impl Tracer {
    /// What the environment asks for. `content`: whether spans hold what was said. Call it within the runtime that sends them.
    pub fn from_environment(
        content: bool,
        instance: Option<&str>,
        exports: Arc<SpanExports>,
    ) -> Result<Self, TracerError> {
        let endpoint = first_of(&ENDPOINTS);
        let exporter = variable(EXPORTER);
        let is_disabled = variable(DISABLED).is_some_and(|it| it.eq_ignore_ascii_case("true"));
        match exporter.as_deref() {
            _ if is_disabled => return Ok(Self::default()),
            None if endpoint.is_none() => return Ok(Self::default()),
            Some("none") => return Ok(Self::default()),
            None | Some("otlp") => {}
            Some(other) => return Err(TracerError::Exporter(other.to_owned())),
        }
        check_protocol()?;
        check_sampler();
        check_ignored();
        let is_local = match &endpoint {
            Some((variable, url)) => is_local(url).ok_or(TracerError::Endpoint(variable))?,
            // The specification's own default is this machine.
            None => true,
        };
        let collector = Collector::new(time_limit()?, is_local, exports)
            .map_err(|error| TracerError::Refused(error.to_string()))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .build()
            // It may quote an address, which may hold a password.
            .map_err(|error| {
                TracerError::Refused(crate::secrets::hide(&error.to_string()).into())
            })?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(instance))
            .with_batch_exporter(exporter)
            .build();
        let scope = InstrumentationScope::builder(SERVICE).with_version(env!("CARGO_PKG_VERSION"));
        let tracer = provider.tracer_with_scope(scope.build());
        tracing::info!(content, "spans are sent to an OpenTelemetry collector");
        Ok(Self(Some(Arc::new(Recording {
            provider,
            tracer,
            content,
        }))))
    }

    /// Whether spans are recorded at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether spans hold what was said.
    pub fn has_content(&self) -> bool {
        self.0.as_ref().is_some_and(|recording| recording.content)
    }

    /// Begins a span; nothing if none are recorded.
    pub fn start(
        &self,
        kind: SpanKind,
        parent: &TraceContext,
        describe: impl FnOnce() -> (String, Vec<Attribute>),
    ) -> Option<Span> {
        self.start_at(None, kind, parent, describe)
    }

    /// The same, for something that began earlier.
    pub fn start_at(
        &self,
        began: Option<SystemTime>,
        kind: SpanKind,
        parent: &TraceContext,
        describe: impl FnOnce() -> (String, Vec<Attribute>),
    ) -> Option<Span> {
        let recording = self.0.as_ref()?;
        let (name, attributes) = describe();
        let mut builder = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_attributes(attributes);
        if let Some(began) = began {
            builder = builder.with_start_time(began);
        }
        let around = match span_context(parent) {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let span = recording.tracer.build_with_context(builder, &around);
        // What is not recorded here does not stand between those who do.
        let context = match span.is_recording() || parent.is_none() {
            true => context_of(span.span_context(), parent),
            false => parent.clone(),
        };
        Some(Span { span, context })
    }

    /// Sends the last spans, for a short time.
    pub async fn shut_down(&self) {
        let Some(recording) = self.0.clone() else {
            return;
        };
        let last = tokio::task::spawn_blocking(move || {
            recording.provider.shutdown_with_timeout(LAST_SPANS)
        });
        if !matches!(last.await, Ok(Ok(()))) {
            tracing::warn!("the last spans could not be sent to the collector");
        }
    }
}

impl Span {
    /// What belongs to this span: what requests to other programs carry.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.span.set_attribute(attribute(name, value));
    }

    pub fn set_list(&mut self, name: &'static str, values: Vec<String>) {
        let values = values.into_iter().map(StringValue::from).collect();
        self.set(name, Value::Array(Array::String(values)));
    }

    pub fn event(&mut self, name: &'static str, at: SystemTime, attributes: Vec<Attribute>) {
        self.span.add_event_with_timestamp(name, at, attributes);
    }

    /// Names another trace that this span follows from.
    pub fn link(&mut self, to: &TraceContext) {
        if let Some(to) = span_context(to) {
            self.span.add_link(to, Vec::new());
        }
    }

    /// Notes that it failed. `kind` is a word of this program, never of an agent or a user.
    pub fn fail(&mut self, kind: impl Into<Cow<'static, str>>) {
        let kind = kind.into();
        self.set("error.type", kind.clone());
        self.span.set_status(Status::error(kind));
    }
}

/// The secrets that the environment holds for the collector.
pub(crate) fn secrets_of_environment() -> Vec<String> {
    let headers = HEADERS.iter().filter_map(|name| variable(name));
    let values = headers.flat_map(|headers| {
        let pairs = headers.split(',').filter_map(|pair| pair.split_once('='));
        let values = pairs.map(|(_, value)| {
            let value = percent_encoding::percent_decode_str(value.trim());
            value.decode_utf8_lossy().into_owned()
        });
        values.collect::<Vec<_>>()
    });
    let mut secrets: Vec<String> = Vec::new();
    for value in values {
        // `Bearer` and its like are no secret, and what follows may be quoted alone.
        secrets.extend(value.split_once(' ').map(|(_, token)| token.to_owned()));
        secrets.push(value);
    }
    let urls = ENDPOINTS
        .iter()
        .filter_map(|name| Url::parse(&variable(name)?).ok());
    secrets.extend(urls.filter_map(|url| url.password().map(str::to_owned)));
    secrets
}

/// An empty variable counts as one that is not set.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn first_of(names: &[&'static str; 2]) -> Option<(&'static str, String)> {
    let mut found = names
        .iter()
        .filter_map(|name| Some((*name, variable(name)?)));
    found.next()
}

fn check_protocol() -> Result<(), TracerError> {
    match first_of(&PROTOCOLS) {
        Some((variable, found)) if found.trim() != SPOKEN_PROTOCOL => {
            Err(TracerError::Protocol { variable, found })
        }
        _ => Ok(()),
    }
}

/// Says what the library would only do: a sampler that it does not know is as if none were named.
fn check_sampler() {
    let Some(sampler) = variable(SAMPLER) else {
        return;
    };
    if !SAMPLERS.contains(&sampler.as_str()) {
        tracing::warn!(
            "{SAMPLER} is none of {}: every trace is recorded that its caller records, or that begins here",
            SAMPLERS.join(", ")
        );
    }
    let ratio = variable(SAMPLER_ARGUMENT).and_then(|ratio| ratio.parse::<f64>().ok());
    let is_ratio = ratio.is_some_and(|ratio| (0.0..=1.0).contains(&ratio));
    if sampler.ends_with("traceidratio") && !is_ratio {
        tracing::warn!("{SAMPLER_ARGUMENT} is not a number from 0 to 1");
    }
}

/// Says which variables count for nothing here, so that an operator does not rely on them.
fn check_ignored() {
    for name in CERTIFICATES.iter().filter(|name| variable(name).is_some()) {
        tracing::warn!(
            "{name} is ignored: the certificate of the collector is checked against the bridge's own list of authorities, and \
             the bridge shows none of its own"
        );
    }
    let is_other = |it: &str| !matches!(it.trim(), PROPAGATOR | "baggage" | "");
    if let Some(propagators) = variable(PROPAGATORS)
        && (propagators.split(',').any(is_other) || !propagators.contains(PROPAGATOR))
    {
        tracing::warn!(
            "{PROPAGATORS} is ignored: traces are passed on as traceparent and tracestate, and in no other form"
        );
    }
}

fn time_limit() -> Result<Duration, TracerError> {
    match first_of(&TIMEOUTS) {
        None => Ok(EXPORT_TIME),
        Some((variable, millis)) => match millis.trim().parse() {
            Ok(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
            _ => Err(TracerError::Value {
                variable,
                problem: "write a number of milliseconds that is greater than 0",
            }),
        },
    }
}

/// Whether a collector is on this machine; `None` if this is not the address of one.
fn is_local(url: &str) -> Option<bool> {
    let url = Url::parse(url.trim()).ok()?;
    let url = Some(url).filter(|url| matches!(url.scheme(), "http" | "https"))?;
    Some(match url.host()? {
        url::Host::Domain(name) => name == "localhost",
        url::Host::Ipv4(ip) => ip.is_loopback(),
        url::Host::Ipv6(ip) => ip.is_loopback(),
    })
}

/// What all spans have in common. `instance` names this process among others.
fn resource(instance: Option<&str>) -> Resource {
    let name = Key::from_static_str("service.name");
    let instance_name = Key::from_static_str("service.instance.id");
    let given = Resource::builder().build();
    let is_named = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|it| it.contains("service.name="));
    let mut resource = Resource::builder();
    if !is_named {
        resource = resource.with_attribute(KeyValue::new(name, SERVICE));
    }
    if given.get_ref(&instance_name).is_none() {
        let instance = instance.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned);
        resource = resource.with_attribute(KeyValue::new(instance_name, instance));
    }
    if given
        .get_ref(&Key::from_static_str("service.version"))
        .is_none()
    {
        let version = env!("CARGO_PKG_VERSION");
        resource = resource.with_attribute(KeyValue::new("service.version", version));
    }
    resource.build()
}

/// A context as the library has it, without what other programs want to be passed on: spans do not hold that.
fn span_context(context: &TraceContext) -> Option<SpanContext> {
    Some(SpanContext::new(
        TraceId::from_bytes(context.trace_id()?),
        SpanId::from_bytes(context.span_id()?),
        TraceFlags::new(context.flags()),
        true,
        TraceState::default(),
    ))
}

fn context_of(span: &SpanContext, parent: &TraceContext) -> TraceContext {
    TraceContext::new(
        span.trace_id().to_bytes(),
        span.span_id().to_bytes(),
        span.trace_flags().to_u8(),
        parent,
    )
}

impl fmt::Debug for Tracer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.is_on() { "on" } else { "off" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_collector_is_a_url() {
        for (url, local) in [
            ("http://127.0.0.1:4318", Some(true)),
            ("http://localhost:4318/path", Some(true)),
            ("https://[::1]:4318", Some(true)),
            ("https://otlp.example.com", Some(false)),
            ("otlp.example.com:4318", None),
            ("grpc://otlp.example.com", None),
            ("nowhere", None),
        ] {
            assert_eq!(is_local(url), local, "{url}");
        }
    }

    #[test]
    fn without_an_exporter_there_is_no_span() {
        let tracer = Tracer::default();
        let described = || unreachable!("nothing is described");
        assert!(!tracer.is_on() && !tracer.has_content());
        assert!(
            tracer
                .start(SpanKind::Internal, &TraceContext::default(), described)
                .is_none()
        );
    }
}
