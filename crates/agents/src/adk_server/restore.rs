//! A conversation as the events of a new session.
//!
//! ADK takes events that say something, call tools and bring results. It takes none with actions, with long-running
//! ids or with calls of its own (`adk_request_*`), and a call without a result may be run when the session goes on. So
//! only the content is kept, the state is gathered, ADK's own calls are left out, and every call gets its result.

use std::collections::{BTreeMap, HashSet};

use adk_bridge_protocol::event::{REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, REQUEST_INPUT};
use adk_bridge_protocol::history::{UNANSWERED, contents};
use adk_bridge_protocol::message::Role;
use adk_bridge_protocol::outbox::Response;
use serde_json::{Map, Value, json};

use super::session::Original;
use crate::agent::Past;

/// What a question for input is called where ADK does not take its own name.
const INPUT: &str = "request_input";

/// What a new session begins with.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Restored {
    pub(super) events: Vec<Value>,
    pub(super) state: Map<String, Value>,
    /// Questions that are open, by id, with the call that takes their answer.
    pub(super) lost: BTreeMap<String, Original>,
}

/// Tells a conversation again; `responses` are about to be sent to the last message.
pub(super) fn restore(past: &[Past], responses: Option<&[Response]>, app: &str) -> Restored {
    let mut telling = Telling::default();
    let messages = past.len();
    for (index, past) in past.iter().enumerate() {
        telling.invocation = format!("restored-{}", index + 1);
        telling.restored.lost.clear();
        if past.message.role == Role::Assistant && !past.said.is_empty() {
            for line in &past.said {
                telling.event(line, app);
            }
        } else {
            telling.message(past, app);
        }
        let is_last = index + 1 == messages;
        let coming = responses.filter(|_| is_last).unwrap_or_default();
        telling.answer_the_rest(coming, app);
    }
    if responses.is_none() {
        telling.restored.lost.clear();
    }
    telling.restored
}

#[derive(Default)]
struct Telling {
    restored: Restored,
    invocation: String,
    /// Calls that have no result yet: id and name.
    open: Vec<(String, String)>,
}

impl Telling {
    /// Something that the agent said, or was told in between, as it went over the wire.
    fn event(&mut self, line: &str, app: &str) {
        let Ok(Value::Object(mut event)) = serde_json::from_str(line) else {
            return;
        };
        if event.get("partial") == Some(&Value::Bool(true)) {
            return;
        }
        self.note_state(&event);
        let Some(Value::Object(content)) = event.get_mut("content") else {
            return;
        };
        let role = content.remove("role").unwrap_or_else(|| json!("model"));
        let Some(Value::Array(parts)) = content.remove("parts") else {
            return;
        };
        let parts: Vec<Value> = parts
            .into_iter()
            .filter_map(|part| self.part(part))
            .collect();
        let author = match event.remove("author") {
            Some(Value::String(author)) if !author.is_empty() => author,
            _ => app.to_owned(),
        };
        let branch = event.remove("branch").filter(Value::is_string);
        self.push(&author, role, parts, branch);
    }

    /// A message of which the bridge knows only what front ends are shown.
    fn message(&mut self, past: &Past, app: &str) {
        for content in contents(std::slice::from_ref(&past.message)) {
            let Ok(Value::Object(mut content)) = serde_json::to_value(&content) else {
                continue;
            };
            let role = content.remove("role").unwrap_or_else(|| json!("user"));
            let Some(Value::Array(parts)) = content.remove("parts") else {
                continue;
            };
            let author = match past.message.role {
                Role::Assistant => app,
                Role::User | Role::System => "user",
            };
            self.push(author, role, parts, None);
        }
    }

    /// A part as a new session takes it; nothing for those of ADK's own.
    fn part(&mut self, mut part: Value) -> Option<Value> {
        for kind in ["functionCall", "functionResponse"] {
            let Some(Value::Object(call)) = part.get_mut(kind) else {
                continue;
            };
            let text = |key: &str| call.get(key).and_then(Value::as_str).map(str::to_owned);
            let (id, name) = (
                text("id").unwrap_or_default(),
                text("name").unwrap_or_default(),
            );
            let is_call = kind == "functionCall";
            match name.as_str() {
                REQUEST_CREDENTIAL => return None,
                REQUEST_CONFIRMATION => {
                    match original(call).filter(|_| is_call) {
                        Some(original) => self.restored.lost.insert(id, original),
                        None => self.restored.lost.remove(&id),
                    };
                    return None;
                }
                REQUEST_INPUT => {
                    call.insert("name".into(), json!(INPUT));
                    if is_call {
                        let original = Original {
                            id: id.clone(),
                            name: INPUT.to_owned(),
                        };
                        self.restored.lost.insert(id.clone(), original);
                    } else {
                        self.restored.lost.remove(&id);
                    }
                }
                _ => {}
            }
            if is_call {
                let name = if name == REQUEST_INPUT {
                    INPUT.to_owned()
                } else {
                    name
                };
                self.open.push((id, name));
            } else {
                self.open.retain(|(open, _)| *open != id);
            }
        }
        Some(part)
    }

    /// Every call gets a result, but for those that one is about to be sent to.
    fn answer_the_rest(&mut self, coming: &[Response], app: &str) {
        let coming: HashSet<&str> = coming.iter().map(|response| response.id.as_str()).collect();
        let parts: Vec<Value> = std::mem::take(&mut self.open)
            .into_iter()
            .filter(|(id, _)| !coming.contains(id.as_str()))
            .map(|(id, name)| {
                json!({"functionResponse": {"id": id, "name": name, "response": {"error": UNANSWERED}}})
            })
            .collect();
        self.push(app, json!("user"), parts, None);
    }

    fn push(&mut self, author: &str, role: Value, parts: Vec<Value>, branch: Option<Value>) {
        if parts.is_empty() {
            return;
        }
        let mut event = json!({
            "author": author,
            "invocationId": self.invocation,
            "content": {"role": role, "parts": parts},
        });
        if let Some(branch) = branch {
            event["branch"] = branch;
        }
        self.restored.events.push(event);
    }

    /// The state of the session. What belongs to the user or the app outlives it, and is not the bridge's to set.
    fn note_state(&mut self, event: &Map<String, Value>) {
        let delta = event.get("actions").and_then(|did| did.get("stateDelta"));
        for (key, value) in delta.and_then(Value::as_object).into_iter().flatten() {
            let elsewhere = ["app:", "user:", "temp:"];
            if !elsewhere.iter().any(|prefix| key.starts_with(prefix)) {
                self.restored.state.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The call that a confirmation asks about.
fn original(call: &Map<String, Value>) -> Option<Original> {
    let original = call.get("args")?.get("originalFunctionCall")?;
    let text = |key: &str| Some(original.get(key)?.as_str()?.to_owned());
    Some(Original {
        id: text("id")?,
        name: text("name")?,
    })
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::message::parse_messages;
    use proptest::prelude::*;

    use super::*;

    fn past(role: &str, text: &str, said: &[Value]) -> Past {
        let messages =
            json!([{"id": text, "role": role, "parts": [{"type": "text", "text": text}]}]);
        Past {
            message: parse_messages(messages).unwrap().remove(0),
            said: said.iter().map(Value::to_string).collect(),
        }
    }

    fn call(id: &str, name: &str, args: Value) -> Value {
        json!({"functionCall": {"id": id, "name": name, "args": args}})
    }

    fn result(id: &str, name: &str, response: Value) -> Value {
        json!({"functionResponse": {"id": id, "name": name, "response": response}})
    }

    fn said(parts: &[Value]) -> Value {
        json!({"author": "helper", "invocationId": "i", "content": {"role": "model", "parts": parts}})
    }

    fn parts_of(restored: &Restored) -> Vec<Value> {
        let parts = restored
            .events
            .iter()
            .map(|event| &event["content"]["parts"]);
        parts
            .flat_map(|parts| parts.as_array().unwrap().clone())
            .collect()
    }

    #[test]
    fn a_conversation_is_told_in_order_with_its_authors() {
        let mut partial = said(&[json!({"text": "He"})]);
        partial["partial"] = json!(true);
        let mut with_state = said(&[json!({"text": "Hello"})]);
        with_state["actions"] = json!({"stateDelta": {"mood": "good", "user:name": "x"}});
        with_state["longRunningToolIds"] = json!(["c"]);
        let told = restore(
            &[
                past("user", "hi", &[]),
                past("assistant", "Hello", &[partial, with_state]),
                past("user", "bye", &[]),
                past("assistant", "from elsewhere", &[]),
            ],
            None,
            "app",
        );
        let authors: Vec<&str> = told
            .events
            .iter()
            .map(|event| event["author"].as_str().unwrap())
            .collect();
        assert_eq!(authors, ["user", "helper", "user", "app"]);
        let texts: Vec<Value> = parts_of(&told)
            .iter()
            .map(|part| part["text"].clone())
            .collect();
        assert_eq!(texts, ["hi", "Hello", "bye", "from elsewhere"]);
        assert_eq!(json!(told.state), json!({"mood": "good"}));
        for event in &told.events {
            let keys: Vec<&str> = event
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            assert_eq!(keys, ["author", "invocationId", "content"]);
        }
    }

    #[test]
    fn an_open_question_is_remembered_and_not_told() {
        let asked = call(
            "q1",
            REQUEST_CONFIRMATION,
            json!({"originalFunctionCall": {"id": "c1", "name": "pay", "args": {}}}),
        );
        let lines = [
            said(&[call("c1", "pay", json!({}))]),
            said(std::slice::from_ref(&asked)),
            said(&[result(
                "c1",
                "pay",
                json!({"error": "requires confirmation"}),
            )]),
            said(&[call("i1", REQUEST_INPUT, json!({"message": "how many?"}))]),
        ];
        let coming = [Response {
            id: "i1".into(),
            name: REQUEST_INPUT.into(),
            response: json!({"result": 3}),
        }];
        let told = restore(&[past("assistant", "a", &lines)], Some(&coming), "app");
        let names: Vec<Value> = parts_of(&told)
            .iter()
            .map(|part| part.as_object().unwrap().values().next().unwrap()["name"].clone())
            .collect();
        assert_eq!(names, ["pay", "pay", INPUT]);
        assert_eq!(
            told.lost["q1"],
            Original {
                id: "c1".into(),
                name: "pay".into()
            }
        );
        assert_eq!(
            told.lost["i1"],
            Original {
                id: "i1".into(),
                name: INPUT.into()
            }
        );

        // Somebody wrote something new instead: the questions are void, and the open call has a result.
        let told = restore(&[past("assistant", "a", &lines)], None, "app");
        assert!(told.lost.is_empty());
        assert_eq!(
            parts_of(&told).last().unwrap()["functionResponse"]["id"],
            "i1"
        );

        // Answered questions are void too.
        let answered = said(&[result(
            "q1",
            REQUEST_CONFIRMATION,
            json!({"confirmed": true}),
        )]);
        let told = restore(
            &[past("assistant", "a", &[said(&[asked]), answered])],
            Some(&coming),
            "app",
        );
        assert!(told.lost.is_empty() && told.events.is_empty());
    }

    #[test]
    fn what_is_no_event_is_left_out() {
        for line in [
            "",
            "null",
            "[]",
            "7",
            "{}",
            r#"{"content":null}"#,
            r#"{"content":{"parts":null}}"#,
            r#"{"content":{"parts":[]}}"#,
            r#"{"content":"x"}"#,
            r#"{"error":"Boom"}"#,
            "{\"content\":",
        ] {
            let mut odd = past("assistant", "a", &[]);
            odd.said.push(line.to_owned());
            assert_eq!(restore(&[odd], None, "app"), Restored::default(), "{line}");
        }
    }

    /// A part with one of a few ids and names, so that they meet.
    fn any_part() -> impl Strategy<Value = Value> {
        let names = [
            "pay",
            "pick",
            REQUEST_CONFIRMATION,
            REQUEST_INPUT,
            REQUEST_CREDENTIAL,
        ];
        let (ids, names) = ("[a-d]", prop::sample::select(names.to_vec()));
        (0..4, ids, names).prop_map(|(kind, id, name)| match kind {
            0 => json!({"text": id}),
            1 => result(&id, name, json!({})),
            2 => json!({"functionCall": id}),
            _ => call(
                &id,
                name,
                json!({"originalFunctionCall": {"id": "a", "name": "pay"}}),
            ),
        })
    }

    proptest! {
        /// What ADK refuses is never sent, and no call is left that it might run.
        #[test]
        fn every_call_has_a_result_and_none_is_adks_own(
            messages in prop::collection::vec(prop::collection::vec(any_part(), 0..6), 1..4),
            answered in prop::option::of("[a-d]"),
        ) {
            let past: Vec<Past> = messages
                .iter()
                .map(|parts| past("assistant", "a", &[said(parts)]))
                .collect();
            let coming: Option<Vec<Response>> = answered.map(|id| {
                vec![Response { id, name: "pick".into(), response: json!({}) }]
            });
            let told = restore(&past, coming.as_deref(), "app");
            let mut open: Vec<Value> = Vec::new();
            for part in parts_of(&told) {
                for kind in ["functionCall", "functionResponse"] {
                    let name = part[kind]["name"].as_str().unwrap_or_default();
                    prop_assert!(!name.starts_with("adk_"), "{}", part);
                }
                if part["functionCall"].is_object() {
                    open.push(part["functionCall"]["id"].clone());
                }
                open.retain(|id| *id != part["functionResponse"]["id"]);
            }
            let coming: Vec<Value> = coming.iter().flatten().map(|one| json!(one.id)).collect();
            prop_assert!(open.iter().all(|id| coming.contains(id)), "{:?}", told);
        }
    }
}
