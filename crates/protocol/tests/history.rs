//! What a model is sent of a conversation: every call answered once, in a form that survives as JSON.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use adk_bridge_testkit::conversations;

use adk_bridge_protocol::event::Content;
use adk_bridge_protocol::history::contents;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::{Message, parse_messages};

const CONVERSATIONS: u64 = 3_000;

#[test]
fn every_call_of_a_model_turn_is_answered_once_and_at_once() {
    let mut called = 0;
    for messages in conversations() {
        let sent = contents(&messages);
        for (index, content) in sent.iter().enumerate() {
            let calls: Vec<_> = ids(content, |part| part.function_call.as_ref()?.id.as_deref());
            called += calls.len();
            let next = sent.get(index + 1);
            let answers = next.map_or_else(Vec::new, |next| {
                ids(next, |part| part.function_response.as_ref()?.id.as_deref())
            });
            if content.role.as_deref() == Some("model") {
                assert_eq!(calls, answers, "{sent:#?}");
            } else {
                assert!(calls.is_empty(), "a user calls no tools");
            }
        }
    }
    assert!(called > 3_000, "{called} calls are too few to tell");
}

#[test]
fn contents_travel_as_json() {
    for conversation in conversations() {
        for content in contents(&conversation) {
            let json = json(&content);
            let read: Content<'_> = serde_json::from_str(&json).unwrap();
            assert_eq!(read, content);
        }
    }
}

fn conversations() -> impl Iterator<Item = Vec<Message>> {
    std::iter::once(conversations::by_hand())
        .chain((0..CONVERSATIONS).map(conversations::generated))
        .map(|conversation| parse_messages(Json::from(conversation).raw()).unwrap())
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

fn ids<'c>(
    content: &'c Content<'_>,
    id: impl Fn(&'c adk_bridge_protocol::event::Part<'_>) -> Option<&'c str>,
) -> Vec<&'c str> {
    content.parts.iter().filter_map(id).collect()
}
