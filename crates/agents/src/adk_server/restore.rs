//! A conversation as the events of a new session.
//!
//! ADK accepts events with text, calls and results. It refuses events with actions, with long-running ids or with its
//! own calls (`adk_request_*`), and may run a call without a result when the session continues. So only the content is
//! kept, the state is collected, ADK's own calls are left out, and every call gets a result.

use std::collections::{BTreeMap, HashMap, HashSet};

use adk_bridge_protocol::credentials::asker_of;
use adk_bridge_protocol::event::{REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, REQUEST_INPUT};
use adk_bridge_protocol::history::{UNANSWERED, contents};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::Role;
use adk_bridge_protocol::outbox::Response;
use serde_json::value::RawValue;

use super::part;
use super::session::Original;
use crate::agent::PastMessage;

/// The name of a request for input, since ADK refuses its own name here.
const INPUT: &str = "request_input";

/// What a new session begins with.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RestoredSession {
    pub(super) events: Vec<Json>,
    pub(super) state: BTreeMap<String, Json>,
    /// Open questions, by id, with the call that takes the answer.
    pub(super) lost: BTreeMap<String, Original>,
    /// The calls of the last message that have no result yet, if results are about to be sent.
    pub(super) open: Vec<Original>,
}

/// Restores a conversation; `responses` are about to be sent to the last message.
pub(super) fn restore(
    past: &[PastMessage],
    responses: Option<&[Response]>,
    app: &str,
) -> RestoredSession {
    let mut telling = SessionWriter::default();
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
        if is_last && responses.is_some() {
            let open = telling.open.iter().cloned();
            telling.restored.open = open.map(|(id, name)| Original { id, name }).collect();
        }
        telling.answer_the_rest(coming, app);
    }
    if responses.is_none() {
        telling.restored.lost.clear();
    }
    telling.restored
}

#[derive(Default)]
struct SessionWriter {
    restored: RestoredSession,
    invocation: String,
    /// Calls that have no result yet: id and name.
    open: Vec<(String, String)>,
    /// The names of all calls.
    names: HashMap<String, String>,
}

impl SessionWriter {
    /// Adds a raw event: something that the agent said, or was sent in between.
    fn event(&mut self, line: &str, app: &str) {
        let Ok(event) = Json::parse(line) else {
            return;
        };
        if event.get("partial") == Some(true.into()) {
            return;
        }
        self.note_state(&event);
        let Some(content) = event.get("content") else {
            return;
        };
        let role = content.get("role").unwrap_or_else(|| "model".into());
        let parts = content.get("parts").unwrap_or_default();
        let parts = parts.items().unwrap_or_default().into_iter();
        let parts = parts.filter_map(|part| self.part(part)).collect();
        let author = event.get("author");
        let author = author.as_ref().and_then(Json::as_str);
        let author = author.filter(|author| !author.is_empty());
        let branch = event.get("branch").filter(|it| it.as_str().is_some());
        self.push(author.as_deref().unwrap_or(app), role, parts, branch);
    }

    /// Adds a message without stored events, from what front ends see.
    fn message(&mut self, past: &PastMessage, app: &str) {
        for content in contents(std::slice::from_ref(&past.message)) {
            let role = content.role.as_deref().unwrap_or("user").into();
            let parts = content.parts.iter().filter_map(|part| Json::of(part).ok());
            let parts = parts.filter_map(|part| self.part(part.raw())).collect();
            let author = match past.message.role {
                Role::Assistant => app,
                Role::User | Role::System => "user",
            };
            self.push(author, role, parts, None);
        }
    }

    /// A part in the form that a new session accepts; nothing for ADK's own calls.
    fn part(&mut self, part: &RawValue) -> Option<Json> {
        let mut part = Json::read_raw(part).ok()?;
        for kind in ["functionCall", "functionResponse"] {
            let Some(call) = part.get(kind).filter(Json::is_object) else {
                continue;
            };
            let text = |key: &str| Some(call.get(key)?.as_str()?.into_owned());
            let (id, name) = (
                text("id").unwrap_or_default(),
                text("name").unwrap_or_default(),
            );
            let is_call = kind == "functionCall";
            match name.as_str() {
                REQUEST_CREDENTIAL => {
                    match is_call {
                        true => self
                            .restored
                            .lost
                            .insert(id.clone(), self.asker(&id, &call)),
                        false => self.restored.lost.remove(&id),
                    };
                    return None;
                }
                REQUEST_CONFIRMATION => {
                    match original(&call).filter(|_| is_call) {
                        Some(original) => self.restored.lost.insert(id, original),
                        None => self.restored.lost.remove(&id),
                    };
                    return None;
                }
                REQUEST_INPUT => {
                    part = part.with(kind, &call.with("name", &INPUT.into()));
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
                self.names.insert(id.clone(), name.clone());
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

    /// The call that waits for credentials. A toolset asks for all of its tools: then it has no name.
    fn asker(&self, id: &str, request: &Json) -> Original {
        let asker = request.get("args").as_ref().and_then(asker_of);
        let known = asker.and_then(|asker| Some((self.names.get(&asker)?.clone(), asker)));
        let (name, id) = known.unwrap_or_else(|| (String::new(), id.to_owned()));
        Original { id, name }
    }

    /// Gives every call a result, except those whose result is about to be sent.
    fn answer_the_rest(&mut self, coming: &[Response], app: &str) {
        let coming: HashSet<&str> = coming.iter().map(|response| response.id.as_str()).collect();
        let parts: Vec<Json> = std::mem::take(&mut self.open)
            .into_iter()
            .filter(|(id, _)| !coming.contains(id.as_str()))
            .map(|(id, name)| {
                let response = Json::object([("error", UNANSWERED.into())]);
                part(&Response { id, name, response })
            })
            .collect();
        self.push(app, "user".into(), parts, None);
    }

    fn push(&mut self, author: &str, role: Json, parts: Vec<Json>, branch: Option<Json>) {
        if parts.is_empty() {
            return;
        }
        let content = Json::object([("role", role), ("parts", Json::array(&parts))]);
        let event = [
            ("author", author.into()),
            ("invocationId", self.invocation.as_str().into()),
            ("content", content),
        ];
        let branch = branch.map(|branch| ("branch", branch));
        let event = Json::object(event.into_iter().chain(branch));
        self.restored.events.push(event);
    }

    /// Collects the state of the session. State of the user or the app outlives it, and must not be set here.
    fn note_state(&mut self, event: &Json) {
        let delta = event.get("actions").and_then(|did| did.get("stateDelta"));
        for (key, value) in delta.iter().flat_map(Json::fields) {
            let elsewhere = ["app:", "user:", "temp:"];
            if !elsewhere.iter().any(|prefix| key.starts_with(prefix))
                && let Ok(value) = Json::read_raw(value)
            {
                self.restored.state.insert(key.into_owned(), value);
            }
        }
    }
}

/// The call that a confirmation asks about.
fn original(call: &Json) -> Option<Original> {
    let original = call.get("args")?.get("originalFunctionCall")?;
    let text = |key: &str| Some(original.get(key)?.as_str()?.into_owned());
    Some(Original {
        id: text("id")?,
        name: text("name")?,
    })
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::message::parse_messages;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn past(role: &str, text: &str, said: &[Value]) -> PastMessage {
        let messages =
            json!([{"id": text, "role": role, "parts": [{"type": "text", "text": text}]}]);
        PastMessage {
            message: parse_messages(Json::from(messages).raw())
                .unwrap()
                .remove(0),
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

    fn parts_of(restored: &RestoredSession) -> Vec<Value> {
        let parts = restored
            .events
            .iter()
            .map(|event| event.to_value()["content"]["parts"].take());
        parts
            .flat_map(|parts| parts.as_array().unwrap().clone())
            .collect()
    }

    #[test]
    fn a_conversation_is_restored_in_order_with_its_authors() {
        let mut partial = said(&[json!({"text": "He"})]);
        partial["partial"] = json!(true);
        let mut with_state = said(&[json!({"text": "Hello"})]);
        with_state["actions"] = json!({"stateDelta": {"mood": "good", "user:name": "x"}});
        with_state["longRunningToolIds"] = json!(["c"]);
        let restored = restore(
            &[
                past("user", "hi", &[]),
                past("assistant", "Hello", &[partial, with_state]),
                past("user", "bye", &[]),
                past("assistant", "from elsewhere", &[]),
            ],
            None,
            "app",
        );
        let authors: Vec<String> = restored
            .events
            .iter()
            .map(|event| event.get("author").unwrap().as_str().unwrap().into_owned())
            .collect();
        assert_eq!(authors, ["user", "helper", "user", "app"]);
        let texts: Vec<Value> = parts_of(&restored)
            .iter()
            .map(|part| part["text"].clone())
            .collect();
        assert_eq!(texts, ["hi", "Hello", "bye", "from elsewhere"]);
        assert_eq!(json!(restored.state), json!({"mood": "good"}));
        for event in &restored.events {
            let keys: Vec<_> = event.fields().into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, ["author", "invocationId", "content"]);
        }
    }

    #[test]
    fn an_open_question_is_remembered_and_not_restored() {
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
            response: json!({"result": 3}).into(),
        }];
        let restored = restore(&[past("assistant", "a", &lines)], Some(&coming), "app");
        let names: Vec<Value> = parts_of(&restored)
            .iter()
            .map(|part| part.as_object().unwrap().values().next().unwrap()["name"].clone())
            .collect();
        assert_eq!(names, ["pay", "pay", INPUT]);
        assert_eq!(
            restored.lost["q1"],
            Original {
                id: "c1".into(),
                name: "pay".into()
            }
        );
        assert_eq!(
            restored.lost["i1"],
            Original {
                id: "i1".into(),
                name: INPUT.into()
            }
        );

        // The user wrote something new instead: the questions are dropped, and the open call has a result.
        let restored = restore(&[past("assistant", "a", &lines)], None, "app");
        assert!(restored.lost.is_empty());
        assert_eq!(
            parts_of(&restored).last().unwrap()["functionResponse"]["id"],
            "i1"
        );

        // Answered questions are dropped too.
        let answered = said(&[result(
            "q1",
            REQUEST_CONFIRMATION,
            json!({"confirmed": true}),
        )]);
        let restored = restore(
            &[past("assistant", "a", &[said(&[asked]), answered])],
            Some(&coming),
            "app",
        );
        assert!(restored.lost.is_empty() && restored.events.is_empty());
    }

    #[test]
    fn a_lost_question_for_access_names_the_call_that_waits() {
        let asks = |args: Value| call("r", REQUEST_CREDENTIAL, args);
        let waits = [
            call("m", "read_mail", json!({})),
            result("m", "read_mail", json!({"pending": true})),
        ];
        for (args, id, name) in [
            (json!({"functionCallId": "m"}), "m", "read_mail"),
            (json!({"function_call_id": "m"}), "m", "read_mail"),
            (json!({"functionCallId": "_adk_toolset_auth_x"}), "r", ""),
            (json!({"kind": "oauth2"}), "r", ""),
        ] {
            let events = [said(&waits), said(&[asks(args)])];
            let responses = [Response {
                id: "r".into(),
                name: REQUEST_CREDENTIAL.into(),
                response: Json::empty(),
            }];
            let restored = restore(&[past("assistant", "", &events)], Some(&responses), "app");
            let lost = Original {
                id: id.into(),
                name: name.into(),
            };
            assert_eq!(restored.lost["r"], lost);
            assert!(
                !json!(parts_of(&restored))
                    .to_string()
                    .contains("adk_request")
            );
        }
    }

    #[test]
    fn a_message_without_events_is_restored_without_adks_own_calls() {
        let part = |name: &str, id: &str| json!({"type": format!("tool-{name}"), "toolCallId": id, "state": "output-available", "input": {}, "output": 1});
        let messages = json!([{"id": "a", "role": "assistant", "parts": [
            {"type": "text", "text": "so"}, part(REQUEST_CREDENTIAL, "r"), part("pay", "p"), part(REQUEST_INPUT, "i"),
        ]}]);
        let message = parse_messages(Json::from(messages).raw())
            .unwrap()
            .remove(0);
        let said = Vec::new();
        let restored = restore(&[PastMessage { message, said }], None, "app");
        let sent = json!(parts_of(&restored)).to_string();
        assert!(!sent.contains("adk_request_"), "{sent}");
        assert!(sent.contains("pay") && sent.contains(INPUT), "{sent}");
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
            assert_eq!(
                restore(&[odd], None, "app"),
                RestoredSession::default(),
                "{line}"
            );
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
        /// Nothing is sent that ADK refuses, and no call remains that it might run.
        #[test]
        fn every_call_has_a_result_and_none_is_adks_own(
            messages in prop::collection::vec(prop::collection::vec(any_part(), 0..6), 1..4),
            answered in prop::option::of("[a-d]"),
        ) {
            let past: Vec<PastMessage> = messages
                .iter()
                .map(|parts| past("assistant", "a", &[said(parts)]))
                .collect();
            let coming: Option<Vec<Response>> = answered.map(|id| {
                vec![Response { id, name: "pick".into(), response: json!({}).into() }]
            });
            let restored = restore(&past, coming.as_deref(), "app");
            let mut open: Vec<Value> = Vec::new();
            for part in parts_of(&restored) {
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
            prop_assert!(open.iter().all(|id| coming.contains(id)), "{:?}", restored);
        }
    }
}
