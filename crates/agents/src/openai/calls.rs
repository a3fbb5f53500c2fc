//! The calls of an answer, put together from fragments.
//!
//! A fragment continues a call, or begins one. OpenAI numbers calls (`index`) and names each once; others leave out the
//! index or the id, give all calls the same of either, repeat id and name in every fragment, or send arguments whole,
//! as text or as an object.

use std::borrow::Cow;

use adk_bridge_protocol::event::{Content, Event, FunctionCall, Part, Raw, raw};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::wire::json::check;
use adk_bridge_protocol::wire::sse::MAX_EVENT_BYTES;
use serde::Deserialize;

use super::request::call_id;
use super::unparsable;
use crate::agent::EventSink;
use crate::error::{AgentError, place_of, shortened};

/// More calls than any model makes in one answer.
const MAX_CALLS: usize = 128;
/// More letters than any name of a tool has.
const MAX_NAME_BYTES: usize = 1024;

/// The calls of one answer.
#[derive(Debug)]
pub(super) struct GrowingCalls {
    calls: Vec<GrowingCall>,
    /// How many calls the conversation had before.
    before: usize,
    /// The bytes of all arguments.
    bytes: usize,
}

#[derive(Debug, Default)]
struct GrowingCall {
    index: Option<u64>,
    /// The server's own id; another one is used for it.
    id: String,
    name: String,
    args: String,
    /// How much of the arguments has been passed on.
    shown: usize,
}

/// A piece of a call, as it is sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fragment<'a> {
    #[serde(borrow, deserialize_with = "raw")]
    index: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    id: Option<Raw<'a>>,
    #[serde(borrow)]
    function: Option<FunctionFragment<'a>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionFragment<'a> {
    #[serde(borrow, deserialize_with = "raw")]
    name: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "raw")]
    arguments: Option<Raw<'a>>,
}

/// A piece of a call that has been read.
struct Piece<'a> {
    index: Option<u64>,
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    args: Cow<'a, str>,
}

impl<'a> From<FunctionFragment<'a>> for Fragment<'a> {
    /// The only call of an answer in the form that came before `tool_calls`.
    fn from(function: FunctionFragment<'a>) -> Self {
        Self {
            function: Some(function),
            ..Self::default()
        }
    }
}

impl GrowingCalls {
    pub(super) fn after(before: usize) -> Self {
        Self {
            calls: Vec::new(),
            before,
            bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds a fragment, and passes on what it adds to the arguments of a call.
    pub(super) fn push(
        &mut self,
        fragment: &Fragment<'_>,
        sink: EventSink<'_>,
    ) -> Result<(), AgentError> {
        let piece = Piece::of(fragment);
        let place = match self.continued_by(&piece) {
            Some(place) => place,
            None if piece.name.is_empty() && piece.args.is_empty() => return Ok(()),
            None if self.calls.len() == MAX_CALLS => {
                return Err(AgentError::broken(
                    "the model called too many tools at once",
                    format!("more than {MAX_CALLS} calls"),
                ));
            }
            None => {
                self.calls.push(GrowingCall {
                    index: piece.index,
                    ..GrowingCall::default()
                });
                self.calls.len() - 1
            }
        };
        self.bytes += piece.args.len();
        let call = &mut self.calls[place];
        if self.bytes > MAX_EVENT_BYTES || call.name.len() + piece.name.len() > MAX_NAME_BYTES {
            return Err(AgentError::broken(
                "the model called a tool with too long a name, or too many arguments",
                format!("{} bytes of arguments", self.bytes),
            ));
        }
        call.add(&piece);
        call.show(&call_id(self.before + place + 1), sink);
        Ok(())
    }

    /// Passes on the calls. Of an answer that was cut short, those that are complete.
    pub(super) fn complete(
        &mut self,
        was_cut: bool,
        sink: EventSink<'_>,
    ) -> Result<(), AgentError> {
        for (place, call) in self.calls.drain(..).enumerate() {
            let args = match call.arguments() {
                _ if was_cut && call.args.trim().is_empty() => continue,
                Err(_) if was_cut => continue,
                args => args?,
            };
            if call.name.is_empty() {
                return Err(AgentError::broken(
                    "the model called a tool without naming it; try again",
                    "a call without a name",
                ));
            }
            let call = FunctionCall {
                id: Some(Cow::Owned(call_id(self.before + place + 1))),
                name: Some(Cow::Owned(call.name)),
                args: Some(args),
                ..FunctionCall::default()
            };
            send(call, false, sink);
        }
        Ok(())
    }

    /// The call that a piece continues, if it begins none.
    fn continued_by(&self, piece: &Piece<'_>) -> Option<usize> {
        let last = self.calls.len().checked_sub(1)?;
        let find = |of: &dyn Fn(&GrowingCall) -> bool| self.calls.iter().rposition(of);
        let of_id = |call: &GrowingCall| !piece.id.is_empty() && call.id == piece.id;
        let of_index = |call: &GrowingCall| piece.index.is_some() && call.index == piece.index;
        let place = match find(&|call| of_index(call) && of_id(call)).or_else(|| find(&of_index)) {
            Some(place) => place,
            // Another call, even if its id is that of an earlier one.
            None if piece.index.is_some() && !piece.name.is_empty() => return None,
            None => find(&of_id).unwrap_or(last),
        };
        (!self.calls[place].is_over_for(piece)).then_some(place)
    }
}

impl GrowingCall {
    /// Whether a piece with the place of this call belongs to another one.
    fn is_over_for(&self, piece: &Piece<'_>) -> bool {
        if !piece.id.is_empty() && !self.id.is_empty() && piece.id != self.id {
            return true;
        }
        if piece.name.is_empty() || self.name.is_empty() {
            return false;
        }
        let has_args = !piece.args.is_empty();
        match piece.name == self.name {
            true => has_args && self.has_whole_args(),
            // A name may come in pieces, before the arguments.
            false => has_args || !self.args.is_empty() || piece.index.is_none(),
        }
    }

    fn has_whole_args(&self) -> bool {
        self.args.ends_with('}') && Json::parse(&self.args).is_ok_and(|args| args.is_object())
    }

    fn add(&mut self, piece: &Piece<'_>) {
        if self.id.is_empty() {
            self.id.push_str(&piece.id);
        }
        if self.name != piece.name {
            self.name.push_str(&piece.name);
        }
        self.args.push_str(&piece.args);
    }

    /// Passes on new arguments. The name is complete when they begin.
    fn show(&mut self, id: &str, sink: EventSink<'_>) {
        if self.name.is_empty() || self.shown == self.args.len() {
            return;
        }
        let call = FunctionCall {
            id: Some(Cow::Borrowed(id)),
            name: Some(Cow::Borrowed(&self.name)),
            args_text: Some(Cow::Borrowed(&self.args[self.shown..])),
            will_continue: Some(true),
            ..FunctionCall::default()
        };
        send(call, true, sink);
        self.shown = self.args.len();
    }

    /// The arguments as an object.
    fn arguments(&self) -> Result<Json, AgentError> {
        let refused = |why: String| {
            AgentError::broken(
                format!(
                    "the model called {:?} with arguments that are not a JSON object, so it was not run; try again",
                    shortened(&self.name)
                ),
                format!("{why} in {} bytes of arguments", self.args.len()),
            )
        };
        let text = self.args.trim();
        // What a tool without parameters is called with.
        if matches!(text, "" | "null") {
            return Ok(Json::empty());
        }
        check(text.as_bytes()).map_err(|error| refused(error.to_string()))?;
        let mut args = Json::parse(text).map_err(|error| refused(place_of(&error)))?;
        // Some encode them twice.
        let inner = args.as_str().map(Cow::into_owned);
        if let Some(inner) = inner {
            check(inner.as_bytes()).map_err(|error| refused(error.to_string()))?;
            args = Json::parse(&inner).map_err(|error| refused(place_of(&error)))?;
        }
        match args.is_object() {
            true => Ok(args),
            false => Err(refused("no object".to_owned())),
        }
    }
}

impl<'a> Piece<'a> {
    fn of(fragment: &'a Fragment<'_>) -> Self {
        let function = fragment.function.as_ref();
        let args = function.and_then(|function| function.arguments.as_ref());
        Self {
            index: fragment.index.as_ref().and_then(|index| {
                let digits = index.get().trim_matches('"');
                digits.parse().ok()
            }),
            id: words(fragment.id.as_ref()),
            name: words(function.and_then(|function| function.name.as_ref())),
            args: match args.map(|args| args.get()) {
                Some(object) if object.starts_with('{') => Cow::Borrowed(object),
                _ => words(args),
            },
        }
    }
}

/// A text; empty if the value is none.
pub(super) fn words<'a>(value: Option<&'a Raw<'_>>) -> Cow<'a, str> {
    #[derive(Deserialize)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
    let text = value.and_then(|value| serde_json::from_str::<Borrowed<'a>>(value.get()).ok());
    text.map_or(Cow::Borrowed(""), |text| text.0)
}

/// The fragments in a list of calls.
pub(super) fn fragments<'a>(list: &'a Raw<'_>) -> Result<Vec<Fragment<'a>>, AgentError> {
    serde_json::from_str(list.get()).map_err(|error| unparsable(place_of(&error)))
}

fn send(call: FunctionCall<'_>, partial: bool, sink: EventSink<'_>) {
    let part = Part {
        function_call: Some(Box::new(call)),
        ..Part::default()
    };
    sink(&Event {
        content: Some(Content::new("model", vec![part])),
        partial: partial.then_some(true),
        ..Event::default()
    });
}
