//! Metadata of an answer: usage, model version, finish reason, sources, state.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::chunk::{Chunk, Str};
use crate::credentials::withhold_in_state;
use crate::event::{Event, Raw};
use crate::id::CallId;
use crate::json_text::Json;
use crate::message::{Message, Part};

/// Metadata of an agent's own, and how much of it is shown: it is a note on the message, and sent with every request.
const CUSTOM: &str = "customMetadata";
const MAX_CUSTOM_BYTES: usize = 16 * 1024;

/// The metadata of one reply, gathered over its model calls.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    fields: Fields,
    total: Usage,
    /// Usage is cumulative within a model call, so the last one counts.
    call: Usage,
    /// The usage of the last delta, as it came: all that is known of a call that is stopped before its end.
    partial: String,
    model_version: String,
    author: String,
}

/// Fields in the order in which they were first set.
#[derive(Debug, Clone, Default)]
struct Fields(Vec<(String, Json)>);

impl Fields {
    fn of(object: &Json) -> Self {
        let kept = |(name, raw): (Cow<'_, str>, &RawValue)| {
            // It is a part of what was read before.
            (name.into_owned(), Json::read_raw(raw).unwrap_or_default())
        };
        Self(object.fields().into_iter().map(kept).collect())
    }

    fn get(&self, name: &str) -> Option<&Json> {
        let mut fields = self.0.iter();
        fields.find_map(|(other, value)| (other == name).then_some(value))
    }

    fn set(&mut self, name: &str, value: Json) {
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn with(self, more: Self) -> Self {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut merged = Self::default();
        for (name, value) in self.0.into_iter().chain(more.0) {
            match places.entry(name) {
                Entry::Occupied(place) => merged.0[*place.get()].1 = value,
                Entry::Vacant(place) => {
                    merged.0.push((place.key().clone(), value));
                    place.insert(merged.0.len() - 1);
                }
            }
        }
        merged
    }

    fn object(&self) -> Json {
        let fields = self.0.iter();
        Json::object(fields.map(|(name, value)| (name.as_str(), value.clone())))
    }
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
    /// Collects the metadata of an event. Deltas are mostly skipped, because the complete event repeats theirs.
    pub(crate) fn note(&mut self, event: &Event<'_>, partial: bool) {
        if event.is_from_user() {
            return;
        }
        if partial && event.finish_reason.is_none() {
            if let Some(usage) = &event.usage_metadata {
                self.partial.clear();
                self.partial.push_str(usage.get());
            }
            return;
        }
        replace(&mut self.model_version, event.model_version.as_deref());
        if !event.parts().is_empty() || event.result().is_some() {
            replace(&mut self.author, event.author.as_deref());
        }
        if let Some(usage) = read::<Usage>(event.usage_metadata.as_ref()) {
            self.call = usage;
            self.partial.clear();
        }
        if partial {
            return;
        }
        if let Some(reason) = event.finish_reason.as_deref() {
            self.set("agentFinishReason", reason.into());
        }
        for (key, raw) in [
            ("groundingMetadata", &event.grounding_metadata),
            ("citationMetadata", &event.citation_metadata),
            (CUSTOM, &event.custom_metadata),
        ] {
            let value = read::<Json>(raw.as_ref()).map(|value| match key {
                CUSTOM => custom(&value),
                _ => value,
            });
            if let Some(value) = value
                && value.text() != "{}"
            {
                self.set(key, value);
            }
        }
        if let Some(actions) = &event.actions
            && let Some(delta) = &actions.state_delta
        {
            let shown = withhold_in_state(delta);
            self.merge("stateDelta", shown.as_ref().unwrap_or(delta));
        }
    }

    /// Keeps an agent's question about a call, which has no place on the call itself.
    pub(crate) fn ask(&mut self, call_id: &CallId, question: &Json) {
        if question.text() != "{}" {
            self.merge(
                "questions",
                &Json::object([(call_id.as_str(), question.clone())]),
            );
        }
    }

    /// Sets the fields of a field.
    fn merge(&mut self, key: &str, more: &Json) {
        let known = self.fields.get(key).cloned().unwrap_or_else(Json::empty);
        if known.is_object() {
            let (known, more) = (Fields::of(&known), Fields::of(more));
            self.fields.set(key, known.with(more).object());
        }
    }

    /// Continues from the metadata of a restarted reply's message, so that sums stay right and nothing is lost.
    pub(crate) fn resume(shown: Option<&Json>) -> Self {
        let mut metadata = Self::default();
        let Some(shown) = shown else {
            return metadata;
        };
        metadata.fields = Fields::of(shown);
        metadata.fields.0.retain(|(name, _)| name != "usage");
        if let Some(usage) = shown.get("usage") {
            metadata.total = Usage::shown(&usage.to_value());
        }
        metadata
    }

    /// Sets a key.
    pub(crate) fn set(&mut self, key: &str, value: Json) {
        self.fields.set(key, value);
    }

    /// Adds the usage of a model call that has ended to the reply's.
    pub(crate) fn end_model_call(&mut self) {
        let mut call = std::mem::take(&mut self.call);
        if call == Usage::default() {
            call = serde_json::from_str(&self.partial).unwrap_or_default();
        }
        self.partial.clear();
        self.total.add(&call);
    }

    /// All metadata so far, if there is any.
    pub(crate) fn value(&mut self) -> Option<Json> {
        self.end_model_call();
        let mut fields = self.fields.clone();
        for (key, text) in [
            ("modelVersion", &self.model_version),
            ("author", &self.author),
        ] {
            if !text.is_empty() {
                fields.set(key, text.as_str().into());
            }
        }
        if self.total != Usage::default() {
            fields.set("usage", self.total.value().into());
        }
        (!fields.0.is_empty()).then(|| fields.object())
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

    /// In the form of the AI SDK.
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

/// A source that an answer is based on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Source {
    /// Identifies the source: each is named once in a reply.
    pub(crate) key: String,
    title: Option<String>,
    url: Option<String>,
}

impl Source {
    /// The source as a chunk with this id.
    pub(crate) fn chunk<'a>(&'a self, id: &'a str) -> Chunk<'a> {
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
pub(crate) fn shown_sources(message: &Message) -> Vec<String> {
    let key = |part: &Part| match part {
        Part::SourceUrl(source) => Some(source.url.clone()),
        Part::SourceDocument(source) => Some(source.title.clone()),
        _ => None,
    };
    message.parts.iter().filter_map(key).collect()
}

/// The sources that an event names, in grounding and in citations.
pub(crate) fn sources_of(event: &Event<'_>) -> Vec<Source> {
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

/// Metadata of an agent's own, without what repeats the conversation: ADK adds whole requests and responses to the answers
/// of an agent behind A2A.
fn custom(value: &Json) -> Json {
    let value = withhold_in_state(value).unwrap_or_else(|| value.clone());
    let is_payload = |name: &str| matches!(name, "a2a:request" | "a2a:response");
    let mut room = MAX_CUSTOM_BYTES;
    let mut fields = Fields::of(&value).0;
    fields.retain(|(name, value)| {
        let bytes = name.len() + value.text().len();
        let fits = !is_payload(name) && bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    });
    Fields(fields).object()
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
