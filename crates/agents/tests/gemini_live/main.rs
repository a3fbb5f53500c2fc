//! The live client against the scripted Gemini, over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod endings;
mod generations;
mod talk;
mod tools;

use std::time::Duration;

use adk_bridge_agents::gemini::Settings;
use adk_bridge_agents::gemini_live::{GeminiConnection, GeminiLive};
use adk_bridge_agents::live::{
    Activity, Incoming, LiveConnection as _, LiveInput, LiveSetup, Modality, Read,
};
use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_demo::scripted_gemini::live::tones;
use adk_bridge_demo::scripted_gemini::{Options, serve};
use adk_bridge_protocol::event::{Content, Event, Part};
use base64::Engine;
use serde_json::{Value, json};

/// One model of each generation. The first completes its turn as soon as it has called, and is the only one that writes.
const MODEL: &str = "gemini-live-2.5-flash";
const EARLY_THIRD_MODEL: &str = "gemini-3.1-flash-live-preview";
const THIRD_MODEL: &str = "gemini-3.8-live";
const THINKING_MODEL: &str = "gemini-3.8-live-extended-thinking";
const MODELS: [&str; 4] = [MODEL, EARLY_THIRD_MODEL, THIRD_MODEL, THINKING_MODEL];

/// How a model's words come if text was requested.
fn words_of(model: &str) -> &'static str {
    match model {
        MODEL => "wrote",
        _ => "spoke",
    }
}

/// A scripted Gemini that listens until it is dropped.
struct Server {
    url: String,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start() -> Self {
        Self::with(Options::default()).await
    }

    async fn with(options: Options) -> Self {
        let options = Options {
            pace: Duration::ZERO,
            slow_pace: Duration::from_millis(30),
            ..options
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(serve(listener, options, std::future::pending()));
        Self { url, task }
    }

    fn live(&self, model: &str) -> GeminiLive {
        GeminiLive::new(settings(&self.url, model))
    }

    async fn open(&self, model: &str, setup: &LiveSetup<'_>) -> Talk {
        Talk::new(self.live(model).open(setup).await.unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn settings(url: &str, model: &str) -> Settings {
    Settings {
        base_url: url.into(),
        model: model.into(),
        api_key: "key".into(),
        instruction: Some("Be brief.".into()),
    }
}

fn setup(modality: Modality, tools: &[ToolSpec]) -> LiveSetup<'_> {
    LiveSetup {
        user: "ann".into(),
        contents: Vec::new(),
        answer: false,
        modality,
        activity: Activity::Detected,
        tools,
        handle: None,
        trace: TraceContext::default(),
    }
}

fn tools(names: &[&str]) -> Vec<ToolSpec> {
    let schema = json!({"type": "object", "properties": {}});
    let spec = |name: &&str| ToolSpec::server(*name, "A tool.", schema.clone());
    names.iter().map(spec).collect()
}

fn user(text: &str) -> Content<'_> {
    Content::new("user", vec![Part::text(text)])
}

/// A connection and what it has brought, one line each; pieces of the same kind are one line.
struct Talk {
    connection: GeminiConnection,
    log: Vec<(&'static str, String)>,
    audio: Vec<u8>,
    calls: Vec<(String, String)>,
    handles: Vec<Option<String>>,
}

impl Talk {
    fn new(connection: GeminiConnection) -> Self {
        Self {
            connection,
            log: Vec::new(),
            audio: Vec::new(),
            calls: Vec::new(),
            handles: Vec::new(),
        }
    }

    async fn send(&mut self, input: LiveInput<'_>) {
        self.connection.send(input).await.unwrap();
    }

    /// Speaks in pieces of 20 ms, then is silent for long enough.
    async fn say(&mut self, text: &str) {
        let mut samples = tones::speak(text, 16_000);
        samples.extend([0; 16 * 600]);
        let bytes: Vec<u8> = samples.iter().flat_map(|it| it.to_le_bytes()).collect();
        for piece in bytes.chunks(640) {
            self.send(LiveInput::Audio(piece)).await;
        }
    }

    /// Reads one message. Returns the last line.
    async fn read(&mut self) -> &str {
        match self.connection.read().await {
            Read::Closed { code, reason } => {
                let closed = self.log.iter().any(|(kind, _)| *kind == "closed");
                assert!(!closed, "read beyond the end: {:?}", self.log);
                self.note("closed", format!("{code} {reason}"));
            }
            read => self.take(read),
        }
        self.log.last().map_or("", |(kind, _)| kind)
    }

    fn take(&mut self, read: Read) {
        let mut brought = Vec::new();
        let mut sink = |incoming: Incoming<'_>| brought.push(line(incoming));
        match read {
            Read::Message(message) => self.connection.events(&message, &mut sink).unwrap(),
            Read::Quiet => self.connection.on_quiet(&mut sink),
            Read::Closed { .. } => unreachable!(),
        }
        for line in brought {
            match line {
                Line::Audio(bytes) => {
                    self.note("audio", String::new());
                    self.audio.extend(bytes);
                }
                Line::Call { id, name, args } => {
                    self.note("call", format!("{name}{args} "));
                    self.calls.push((id, name));
                }
                Line::Handle(handle) => self.handles.push(handle),
                Line::Other(kind, text) => self.note(kind, text),
                Line::Nothing => {}
            }
        }
    }

    fn note(&mut self, kind: &'static str, text: String) {
        match self.log.last_mut() {
            Some((last, joined)) if *last == kind && kind != "complete" => joined.push_str(&text),
            _ => self.log.push((kind, text)),
        }
    }

    /// Reads until a line of this kind, and tells what came by then.
    async fn until(&mut self, kind: &str) -> Vec<String> {
        let from = self.log.len();
        let limit = Duration::from_secs(20);
        let reading = async {
            while !self.log[from..].iter().any(|(known, _)| *known == kind) {
                self.read().await;
            }
        };
        let in_time = tokio::time::timeout(limit, reading).await.is_ok();
        assert!(in_time, "no {kind} in {:?}", &self.log[from..]);
        self.log[from..]
            .iter()
            .map(|(kind, text)| match text.is_empty() {
                true => (*kind).to_owned(),
                false => format!("{kind}: {}", text.trim_end()),
            })
            .collect()
    }

    /// The words that have been spoken or written since the last turn.
    fn words(&self, kind: &str) -> String {
        let said = self.log.iter().filter(|(known, _)| *known == kind);
        said.map(|(_, text)| text.as_str()).collect()
    }
}

enum Line {
    Audio(Vec<u8>),
    Call {
        id: String,
        name: String,
        args: Value,
    },
    Handle(Option<String>),
    Other(&'static str, String),
    Nothing,
}

fn line(incoming: Incoming<'_>) -> Line {
    match incoming {
        Incoming::Event(event) => event_line(event),
        Incoming::GoAway(left) => Line::Other("go away", format!("{left:?}")),
        Incoming::Resumable(handle) => Line::Handle(handle),
        Incoming::Cancelled(ids) => Line::Other("cancelled", ids.len().to_string()),
    }
}

fn event_line(event: &Event<'_>) -> Line {
    if let Some(heard) = &event.input_transcription {
        let text = heard.text.as_deref().unwrap().to_owned();
        return match heard.finished {
            Some(true) => Line::Other("heard all", text),
            _ => Line::Other("heard", text),
        };
    }
    if let Some(spoken) = &event.output_transcription {
        return Line::Other("spoke", spoken.text.as_deref().unwrap().to_owned());
    }
    if let Some(part) = event.parts().first() {
        if let Some(blob) = &part.inline_data {
            assert_eq!(blob.mime_type.as_deref(), Some("audio/pcm;rate=24000"));
            let data = blob.data.as_deref().unwrap();
            return Line::Audio(
                base64::engine::general_purpose::STANDARD
                    .decode(data)
                    .unwrap(),
            );
        }
        if let Some(call) = &part.function_call {
            let names: Vec<_> = event
                .parts()
                .iter()
                .map(|part| part.function_call.as_ref().unwrap())
                .map(|call| call.name.as_deref().unwrap())
                .collect();
            return Line::Call {
                id: call.id.as_deref().unwrap().to_owned(),
                name: names.join("+"),
                args: call.args.clone().unwrap().to_value(),
            };
        }
        assert_eq!(event.partial, Some(true));
        let kind = if part.thought == Some(true) {
            "thought"
        } else {
            "wrote"
        };
        return Line::Other(kind, part.text.as_deref().unwrap().to_owned());
    }
    match (event.interrupted, event.turn_complete) {
        (Some(true), _) => Line::Other("interrupted", String::new()),
        (_, Some(true)) => Line::Other(
            "complete",
            event
                .error_code
                .as_deref()
                .or(event.finish_reason.as_deref())
                .unwrap_or_default()
                .to_owned(),
        ),
        _ => Line::Nothing,
    }
}
