//! The events of a live conversation: where its turns end, and what is stored of them.

use adk_bridge_protocol::event::{Content, Event, Part};
use serde::Deserialize;
use serde_json::json;

use crate::live::{Incoming, IncomingSink};

/// How many calls may be open at a time; real models stay far below.
pub(in crate::adk_server) const MAX_OPEN_CALLS: usize = 1_024;

/// What is expected soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::adk_server) enum Expectation {
    #[default]
    Nothing,
    Answer,
    Words,
    /// Whether the turn is over.
    End,
    /// More words: the model says that it goes on.
    More,
}

/// The state between two events.
#[derive(Debug, Default)]
pub(in crate::adk_server) struct EventReader {
    /// Long-running calls whose results the server waits for.
    pub(in crate::adk_server) open: Vec<String>,
    /// Calls of tools that the server runs.
    pub(in crate::adk_server) running: Vec<String>,
    /// Whether a call was made or answered, and nothing has been said since.
    pub(in crate::adk_server) awaits_words: bool,
    pub(in crate::adk_server) speaking: bool,
    /// Whether audio is left out, because text was requested.
    pub(in crate::adk_server) mute: bool,
    pub(in crate::adk_server) said: Vec<String>,
}

impl EventReader {
    /// Passes an event on. Returns what is expected after it, if that changes.
    pub(in crate::adk_server) fn event(
        &mut self,
        mut event: Event<'_>,
        json: &str,
        sink: IncomingSink<'_>,
    ) -> Option<Expectation> {
        let mut awaited = self.note(&event);
        self.keep(&event, json);
        let failed = event.error.is_some() || event.error_code.is_some();
        let complete = event.turn_complete == Some(true);
        if event.interrupted == Some(true) || failed {
            self.rest();
            awaited = Some(Expectation::Nothing);
        } else if complete && goes_on(json) {
            event.turn_complete = None;
            let working = !self.running.is_empty() || !self.open.is_empty();
            awaited = Some(match working {
                true => Expectation::Nothing,
                false => Expectation::More,
            });
        } else if complete && self.awaits_words {
            event.turn_complete = None;
            let working = !self.running.is_empty() || !self.open.is_empty();
            awaited = Some(match working {
                true => Expectation::Nothing,
                false => Expectation::End,
            });
        } else if complete {
            self.rest();
            awaited = Some(Expectation::Nothing);
        }
        if self.mute
            && let Some(content) = &mut event.content
        {
            let parts = std::mem::take(&mut content.parts);
            let parts: Vec<_> = Vec::from(parts)
                .into_iter()
                .filter(|part| !is_sound(part))
                .collect();
            content.parts = parts.into();
        }
        sink(Incoming::Event(&event));
        if failed && !complete {
            sink(Incoming::Event(&Event {
                turn_complete: Some(true),
                ..Event::default()
            }));
        }
        awaited
    }

    fn note(&mut self, event: &Event<'_>) -> Option<Expectation> {
        let mut awaited = None;
        for part in event.parts().iter().filter(|_| !event.is_partial()) {
            if let Some(call) = &part.function_call
                && let Some(id) = call.id.as_deref()
            {
                let long_running = event.long_running_tool_ids.iter().any(|it| it == id);
                let calls = if long_running {
                    &mut self.open
                } else {
                    &mut self.running
                };
                calls.truncate(MAX_OPEN_CALLS - 1);
                calls.push(id.to_owned());
                self.awaits_words = true;
                awaited = Some(Expectation::Nothing);
            } else if let Some(response) = &part.function_response {
                self.running
                    .retain(|id| Some(id.as_str()) != response.id.as_deref());
                self.awaits_words = true;
                let working = !self.running.is_empty() || !self.open.is_empty();
                awaited = Some(match working {
                    true => Expectation::Nothing,
                    false => Expectation::Answer,
                });
            }
        }
        if says(event) {
            self.speaking = true;
            if self.running.is_empty() {
                self.awaits_words = false;
                awaited = Some(Expectation::Words);
            }
        } else if event.input_transcription.is_some() && !self.speaking && !self.awaits_words {
            awaited = Some(Expectation::Answer);
        }
        awaited
    }

    fn rest(&mut self) {
        self.running.clear();
        self.awaits_words = false;
        self.speaking = false;
    }

    /// Stores the event for restoring a session later: transcriptions instead of audio.
    fn keep(&mut self, event: &Event<'_>, json: &str) {
        if event.is_partial() || event.is_from_user() {
            return;
        }
        if !event.parts().is_empty() && !event.parts().iter().any(is_sound) {
            self.said.push(json.to_owned());
        }
        let spoken = event.output_transcription.as_ref();
        if let Some(text) = spoken.and_then(|it| it.text.as_deref())
            && !text.is_empty()
        {
            let content = Content::new("model", vec![Part::text(text)]);
            let said = json!({"author": event.author, "content": content});
            self.said.push(said.to_string());
        }
    }
}

/// Whether a model that has completed its turn is still at work: it then answers one question in several turns.
fn goes_on(json: &str) -> bool {
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "interactionStatus", alias = "interaction_status")]
        status: Option<String>,
    }
    let status = serde_json::from_str::<Status>(json).ok();
    status.and_then(|it| it.status).as_deref() == Some("IN_PROGRESS")
}

/// Whether the agent says something in this event.
pub(in crate::adk_server) fn says(event: &Event<'_>) -> bool {
    let speaks = |part: &Part<'_>| {
        part.text.as_deref().is_some_and(|text| !text.is_empty())
            || part.inline_data.is_some()
            || part.file_data.is_some()
    };
    let transcribed = event.output_transcription.as_ref();
    let transcribed = transcribed.and_then(|it| it.text.as_deref());
    !event.is_from_user()
        && (event.parts().iter().any(speaks) || transcribed.is_some_and(|text| !text.is_empty()))
}

pub(in crate::adk_server) fn is_sound(part: &Part<'_>) -> bool {
    let kind = part
        .inline_data
        .as_ref()
        .and_then(|it| it.mime_type.as_deref());
    kind.is_some_and(|kind| kind.starts_with("audio/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Reads an event: what is expected after it, and whether the turn is over.
    fn read(reading: &mut EventReader, event: &Value) -> (Option<Expectation>, bool) {
        let json = event.to_string();
        let mut over = false;
        let event = Event::parse(&json).unwrap();
        let awaited = reading.event(event, &json, &mut |incoming| {
            if let Incoming::Event(event) = incoming {
                over |= event.turn_complete == Some(true);
            }
        });
        (awaited, over)
    }

    fn content(part: Value) -> Value {
        json!({"author": "a", "content": {"role": "model", "parts": [part]}})
    }

    fn spoken(text: &str, finished: bool) -> Value {
        json!({"author": "a", "partial": !finished, "outputTranscription": {"text": text, "finished": finished}})
    }

    fn call(id: &str, long_running: bool) -> Value {
        let mut event = content(json!({"functionCall": {"id": id, "name": "t", "args": {}}}));
        if long_running {
            event["longRunningToolIds"] = json!([id]);
        }
        event
    }

    fn response(id: &str) -> Value {
        content(json!({"functionResponse": {"id": id, "name": "t", "response": {"ok": 1}}}))
    }

    fn complete() -> Value {
        json!({"author": "a", "turnComplete": true})
    }

    #[test]
    fn a_turn_is_over_when_words_have_followed_its_calls() {
        let mut reading = EventReader::default();
        for (event, expected) in [
            (spoken("so ", false), (Some(Expectation::Words), false)),
            (spoken("so ", true), (Some(Expectation::Words), false)),
            (complete(), (Some(Expectation::Nothing), true)),
            (call("1", false), (Some(Expectation::Nothing), false)),
            (call("2", false), (Some(Expectation::Nothing), false)),
            (complete(), (Some(Expectation::Nothing), false)),
            (response("1"), (Some(Expectation::Nothing), false)),
            (response("2"), (Some(Expectation::Answer), false)),
            (complete(), (Some(Expectation::End), false)),
            (
                content(json!({"text": "x"})),
                (Some(Expectation::Words), false),
            ),
            (complete(), (Some(Expectation::Nothing), true)),
            (
                json!({"errorCode": "X"}),
                (Some(Expectation::Nothing), true),
            ),
            (json!({"error": "X"}), (Some(Expectation::Nothing), true)),
            (
                json!({"interrupted": true}),
                (Some(Expectation::Nothing), false),
            ),
            (json!({"anything": [1]}), (None, false)),
        ] {
            assert_eq!(read(&mut reading, &event), expected, "{event}");
        }
    }

    #[test]
    fn a_turn_is_not_over_while_the_model_is_at_work() {
        let status = |status: &str| json!({"author": "a", "turnComplete": true, "interactionStatus": status});
        let mut reading = EventReader::default();
        for (event, expected) in [
            (call("1", false), (Some(Expectation::Nothing), false)),
            (response("1"), (Some(Expectation::Answer), false)),
            (spoken("hm ", false), (Some(Expectation::Words), false)),
            (status("IN_PROGRESS"), (Some(Expectation::More), false)),
            (spoken("so ", false), (Some(Expectation::Words), false)),
            (status("IDLE"), (Some(Expectation::Nothing), true)),
            (call("2", false), (Some(Expectation::Nothing), false)),
            (spoken("hm ", false), (None, false)),
            (status("IN_PROGRESS"), (Some(Expectation::Nothing), false)),
        ] {
            assert_eq!(read(&mut reading, &event), expected, "{event}");
        }
    }

    #[test]
    fn long_running_calls_are_waited_for() {
        let mut reading = EventReader::default();
        read(&mut reading, &call("l", true));
        assert_eq!(reading.open, ["l"]);
        assert_eq!(
            read(&mut reading, &complete()),
            (Some(Expectation::Nothing), false)
        );
        assert_eq!(reading.open, ["l"]);
    }

    #[test]
    fn words_are_kept_and_sounds_are_not() {
        let mut reading = EventReader::default();
        let sound =
            content(json!({"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": "AAAA"}}));
        for event in [
            sound,
            spoken("he", false),
            spoken("hello", true),
            call("1", false),
        ] {
            read(&mut reading, &event);
        }
        let said: Vec<Value> = reading
            .said
            .iter()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect();
        assert_eq!(said, [content(json!({"text": "hello"})), call("1", false)]);
    }

    fn any_event() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<bool>().prop_map(|finished| spoken("word", finished)),
            (0..3_u8, any::<bool>()).prop_map(|(id, long)| call(&id.to_string(), long)),
            (0..3_u8).prop_map(|id| response(&id.to_string())),
            Just(complete()),
            Just(json!({"interrupted": true})),
            Just(json!({"errorCode": "X"})),
        ]
    }

    proptest! {
        #[test]
        fn whatever_comes_a_turn_with_words_last_can_end(events in prop::collection::vec(any_event(), 0..40)) {
            let mut reading = EventReader::default();
            for event in &events {
                let (awaited, over) = read(&mut reading, event);
                // After the end of a turn nothing of it is expected.
                prop_assert!(!over || awaited == Some(Expectation::Nothing));
            }
            let running = std::mem::take(&mut reading.running);
            for id in running {
                read(&mut reading, &response(&id));
            }
            read(&mut reading, &spoken("word", false));
            prop_assert_eq!(read(&mut reading, &complete()), (Some(Expectation::Nothing), true));
        }
    }
}
