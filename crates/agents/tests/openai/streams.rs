//! Answers in every form that servers have for them, and the same answers cut into other pieces.

use std::collections::BTreeMap;
use std::path::Path;

use adk_bridge_protocol::event::{Content, Part};
use adk_bridge_testkit::stand_in::{StandIn, refused};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{agent, ask, seen, start};

#[tokio::test]
async fn every_answer_is_read_as_it_was_meant() {
    for case in cases() {
        let answer = answer_of(&case);
        let stand_in = StandIn::start(move |_| answer.clone()).await;
        let (events, ended) = ask(&agent(&stand_in)).await;
        let name = &case["name"];
        match (case["fails"].as_str(), ended) {
            (Some(words), Err(error)) => {
                assert!(error.message().contains(words), "{name}: {error:?}");
                assert_eq!(error.kind().to_string(), case["kind"], "{name}: {error:?}");
                assert!(!has_calls(&events), "{name}: {events:#?}");
            }
            (None, Ok(())) => {
                let mut said = told(&events);
                for of_some in ["usage", "model"] {
                    if case["says"].get(of_some).is_none() {
                        said.remove(of_some);
                    }
                }
                assert_eq!(Value::Object(said), case["says"], "{name}: {events:#?}");
            }
            (expected, found) => panic!("{name}: {expected:?}, but {found:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn where_pieces_end_makes_no_difference(
        pick in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let cases = cases();
        let case = pick.get(&cases);
        let body = body_of(case);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        ends.push(body.len());
        ends.sort_unstable();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (whole, pieces) = runtime.block_on(async {
            let answer = answer_of(case);
            let stand_in = StandIn::start(move |_| answer.clone()).await;
            (read(&stand_in, &body, &[body.len()]).await, read(&stand_in, &body, &ends).await)
        });
        prop_assert_eq!(whole, pieces, "{}", case["name"]);
    }
}

/// Reads a body in pieces that end at these places.
async fn read(stand_in: &StandIn, body: &[u8], ends: &[usize]) -> (Vec<Value>, Option<String>) {
    let question = vec![Content::new("user", vec![Part::text("hello")])];
    let mut run = start(&agent(stand_in), question, &[]).await.unwrap();
    let mut events = Vec::new();
    let mut from = 0;
    for end in ends {
        let piece = &body[from..*end];
        from = *end;
        if let Err(error) = run.events(piece, &mut |event| events.push(seen(event))) {
            return (events, Some(error.message().to_owned()));
        }
    }
    let ended = run.finish(&mut |event| events.push(seen(event)));
    (events, ended.err().map(|error| error.message().to_owned()))
}

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/openai/streams.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn body_of(case: &Value) -> Vec<u8> {
    let events = case["events"].as_array().unwrap().iter();
    let body: String = events
        .map(|event| match event {
            Value::String(raw) => raw.clone(),
            chunk => format!("data: {chunk}\n\n"),
        })
        .collect();
    body.into_bytes()
}

fn answer_of(case: &Value) -> Vec<u8> {
    let kind = case["type"].as_str().unwrap_or("text/event-stream");
    refused(200, kind, &String::from_utf8(body_of(case)).unwrap())
}

fn has_calls(events: &[Value]) -> bool {
    events
        .iter()
        .any(|event| event["partial"] != true && !calls_in(event).is_empty())
}

fn calls_in(event: &Value) -> Vec<&Value> {
    let parts = event["content"]["parts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part.get("functionCall")).collect()
}

/// What the events say, in the words of the fixture.
fn told(events: &[Value]) -> Map<String, Value> {
    let mut said = Map::new();
    let mut calls = Vec::new();
    let mut streamed: BTreeMap<String, String> = BTreeMap::new();
    for event in events {
        let is_partial = event["partial"] == true;
        for part in event["content"]["parts"].as_array().into_iter().flatten() {
            if let Some(text) = part["text"].as_str() {
                assert!(is_partial, "texts are not repeated");
                let kind = if part["thought"] == true {
                    "thought"
                } else {
                    "text"
                };
                let so_far = said.entry(kind).or_insert_with(|| json!(""));
                *so_far = json!(format!("{}{text}", so_far.as_str().unwrap()));
            }
        }
        for call in calls_in(event) {
            let id = call["id"].as_str().unwrap().to_owned();
            if is_partial {
                let text = event["argsText"].as_str().unwrap();
                streamed.entry(id).or_default().push_str(text);
            } else {
                if let Some(text) = streamed.get(&id).filter(|text| text.starts_with('{')) {
                    let args: Value = serde_json::from_str(text).unwrap();
                    assert_eq!(args, call["args"], "what was streamed is what is called");
                }
                assert_eq!(id, format!("call{:05}", calls.len() + 1));
                calls.push(json!([call["name"], call["args"]]));
            }
        }
    }
    if !calls.is_empty() {
        said.insert("calls".into(), calls.into());
    }
    let last = events.last().unwrap();
    let ends = events
        .iter()
        .filter(|event| event.get("finishReason").is_some());
    assert_eq!(ends.count(), 1, "an answer ends once");
    for (name, field) in [
        ("finish", "finishReason"),
        ("usage", "usageMetadata"),
        ("model", "modelVersion"),
    ] {
        if let Some(value) = last.get(field) {
            said.insert(name.into(), value.clone());
        }
    }
    let has_said = said.contains_key("text");
    if let Some(code) = last.get("errorCode").filter(|_| !has_said) {
        said.insert("error".into(), code.clone());
    }
    said
}
