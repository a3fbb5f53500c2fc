//! What an answer is accompanied by: usage, model version, finish reason, sources, state; shown as message metadata.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::chunk::{Chunk, Str};
use crate::event::{Event, Raw};
use crate::message::{Message, Part};

/// The metadata of one reply, gathered over its model calls.
#[derive(Debug, Default)]
pub struct Metadata {
    fields: Map<String, Value>,
    total: Usage,
    /// Usage is cumulative within a model call, so the last one counts.
    call: Usage,
    model_version: String,
    author: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Usage {
    prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    response_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    total_token_count: Option<u64>,
}

impl Metadata {
    /// Takes in what an event says about itself. Deltas are passed over quickly: the complete event repeats it.
    pub fn note(&mut self, event: &Event<'_>, partial: bool) {
        if event.is_from_user() || partial && event.finish_reason.is_none() {
            return;
        }
        replace(&mut self.model_version, event.model_version.as_deref());
        if !event.parts().is_empty() || event.result().is_some() {
            replace(&mut self.author, event.author.as_deref());
        }
        if let Some(usage) = read::<Usage>(event.usage_metadata.as_ref()) {
            self.call = usage;
        }
        if partial {
            return;
        }
        if let Some(reason) = event.finish_reason.as_deref() {
            self.set("agentFinishReason", json!(reason));
        }
        for (key, raw) in [
            ("groundingMetadata", &event.grounding_metadata),
            ("citationMetadata", &event.citation_metadata),
            ("customMetadata", &event.custom_metadata),
        ] {
            match read::<Value>(raw.as_ref()) {
                Some(Value::Object(fields)) if fields.is_empty() => {}
                Some(value) => self.set(key, value),
                None => {}
            }
        }
        if let Some(actions) = &event.actions
            && !actions.state_delta.is_empty()
        {
            let slot = self.fields.entry("stateDelta").or_insert_with(|| json!({}));
            if let Value::Object(state) = slot {
                state.extend(actions.state_delta.clone());
            }
        }
    }

    /// Keeps what an agent says to a question about a call, which has no place on the call itself.
    pub fn ask(&mut self, call_id: &str, question: Map<String, Value>) {
        if question.is_empty() {
            return;
        }
        let slot = self.fields.entry("questions").or_insert_with(|| json!({}));
        if let Value::Object(questions) = slot {
            questions.insert(call_id.to_owned(), Value::Object(question));
        }
    }

    /// Takes up what the message of a restarted reply shows, so that sums go on and nothing is lost.
    pub fn resume(shown: Option<&Value>) -> Self {
        let mut metadata = Self::default();
        let Some(Value::Object(fields)) = shown else {
            return metadata;
        };
        metadata.fields = fields.clone();
        if let Some(usage) = metadata.fields.shift_remove("usage") {
            metadata.total = Usage::shown(&usage);
        }
        metadata
    }

    pub fn set(&mut self, key: &str, value: Value) {
        self.fields.insert(key.to_owned(), value);
    }

    /// Adds the usage of a model call that has ended to the reply's.
    pub fn end_model_call(&mut self) {
        let call = std::mem::take(&mut self.call);
        self.total.add(&call);
    }

    /// Everything so far, or nothing where there is nothing to tell.
    pub fn value(&mut self) -> Option<Value> {
        self.end_model_call();
        let mut fields = self.fields.clone();
        for (key, text) in [
            ("modelVersion", &self.model_version),
            ("author", &self.author),
        ] {
            if !text.is_empty() {
                fields.insert(key.to_owned(), json!(text));
            }
        }
        if self.total != Usage::default() {
            fields.insert("usage".to_owned(), self.total.value());
        }
        (!fields.is_empty()).then_some(Value::Object(fields))
    }
}

impl Usage {
    fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.prompt_token_count, other.prompt_token_count),
            (
                &mut self.candidates_token_count,
                other.candidates_token_count,
            ),
            (&mut self.response_token_count, other.response_token_count),
            (&mut self.thoughts_token_count, other.thoughts_token_count),
            (
                &mut self.cached_content_token_count,
                other.cached_content_token_count,
            ),
            (
                &mut self.tool_use_prompt_token_count,
                other.tool_use_prompt_token_count,
            ),
            (&mut self.total_token_count, other.total_token_count),
        ];
        for (sum, count) in pairs {
            if let Some(count) = count {
                *sum = Some(sum.unwrap_or(0).saturating_add(count));
            }
        }
    }

    /// The opposite of [`Usage::value`].
    fn shown(value: &Value) -> Self {
        let count = |key: &str| value.get(key).and_then(Value::as_u64);
        let reasoning = count("reasoningTokens");
        Self {
            prompt_token_count: count("inputTokens"),
            candidates_token_count: count("outputTokens")
                .map(|output| output.saturating_sub(reasoning.unwrap_or(0))),
            thoughts_token_count: reasoning,
            cached_content_token_count: count("cachedInputTokens"),
            total_token_count: count("totalTokens"),
            ..Self::default()
        }
    }

    /// In the AI SDK's words.
    fn value(&self) -> Value {
        let sum =
            |counts: &[Option<u64>]| counts.iter().flatten().copied().reduce(u64::saturating_add);
        let spoken = self.candidates_token_count.or(self.response_token_count);
        let mut fields = Map::new();
        for (key, count) in [
            (
                "inputTokens",
                sum(&[self.prompt_token_count, self.tool_use_prompt_token_count]),
            ),
            ("outputTokens", sum(&[spoken, self.thoughts_token_count])),
            ("totalTokens", self.total_token_count),
            ("reasoningTokens", self.thoughts_token_count),
            ("cachedInputTokens", self.cached_content_token_count),
        ] {
            if let Some(count) = count {
                fields.insert(key.to_owned(), json!(count));
            }
        }
        Value::Object(fields)
    }
}

/// Something that an answer rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Tells sources apart: each is named once in a reply.
    pub key: String,
    title: Option<String>,
    url: Option<String>,
}

impl Source {
    pub fn chunk<'a>(&'a self, id: &'a str) -> Chunk<'a> {
        let source_id: Str<'a> = Cow::Borrowed(id);
        match &self.url {
            Some(url) => Chunk::SourceUrl {
                source_id,
                url: Cow::Borrowed(url),
                title: self.title.as_deref().map(Cow::Borrowed),
                provider_metadata: None,
            },
            None => Chunk::SourceDocument {
                source_id,
                media_type: Cow::Borrowed("text/plain"),
                title: Cow::Borrowed(self.title.as_deref().unwrap_or(&self.key)),
                filename: None,
                provider_metadata: None,
            },
        }
    }
}

/// The keys of the sources that a message shows.
pub fn shown_sources(message: &Message) -> Vec<String> {
    let key = |part: &Part| match part {
        Part::SourceUrl(source) => Some(source.url.clone()),
        Part::SourceDocument(source) => Some(source.title.clone()),
        _ => None,
    };
    message.parts.iter().filter_map(key).collect()
}

/// The sources that an event names, in grounding and in citations.
pub fn sources_of(event: &Event<'_>) -> Vec<Source> {
    let mut sources = Vec::new();
    if let Some(grounding) = read::<Value>(event.grounding_metadata.as_ref()) {
        for chunk in list(&grounding, &["groundingChunks", "grounding_chunks"]) {
            for kind in ["web", "retrievedContext", "maps", "image"] {
                sources.extend(chunk.get(kind).and_then(source));
            }
        }
    }
    if let Some(citations) = read::<Value>(event.citation_metadata.as_ref()) {
        for citation in list(&citations, &["citations", "citationSources"]) {
            sources.extend(source(citation));
        }
    }
    sources
}

fn source(value: &Value) -> Option<Source> {
    let text = |key: &str| {
        let text = value.get(key)?.as_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let uri = text("uri").or_else(|| text("sourceUri"));
    let title = text("title").or_else(|| text("documentName"));
    let is_link = uri
        .as_deref()
        .is_some_and(|uri| uri.starts_with("http://") || uri.starts_with("https://"));
    Some(Source {
        key: uri.clone().or_else(|| title.clone())?,
        title: title.or_else(|| uri.clone().filter(|_| !is_link)),
        url: uri.filter(|_| is_link),
    })
}

fn list<'v>(value: &'v Value, keys: &[&str]) -> impl Iterator<Item = &'v Value> {
    keys.iter()
        .find_map(|key| value.get(key)?.as_array())
        .into_iter()
        .flatten()
}

/// Metadata that cannot be read is left out: it must not cost the user the answer.
fn read<T: for<'de> Deserialize<'de>>(raw: Option<&Raw<'_>>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

fn replace(slot: &mut String, text: Option<&str>) {
    if let Some(text) = text.filter(|text| slot != text) {
        slot.clear();
        slot.push_str(text);
    }
}
