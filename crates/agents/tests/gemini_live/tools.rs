//! Calls: several at once, cancelled, and answered by a connection that does not know them.

use adk_bridge_protocol::event::FunctionCall;
use adk_bridge_protocol::outbox::Response;

use super::*;

pub(super) fn response(id: &str, name: &str, response: Value) -> Response {
    Response {
        id: id.into(),
        name: name.into(),
        response: response.into(),
    }
}

#[tokio::test]
async fn calls_at_once_are_answered_at_once() {
    let server = Server::start().await;
    let tools = tools(&["get_location", "roll_dice"]);
    for model in MODELS {
        let words = words_of(model);
        let mut talk = server.open(model, &setup(Modality::Text, &tools)).await;
        talk.send(LiveInput::Text(
            "say wait then call get_location && call roll_dice",
        ))
        .await;
        let lines = talk.until("call").await;
        let said = match model {
            // It speaks on, and the calls wait for the end of these words.
            THINKING_MODEL => "waitOne moment.",
            _ => "wait",
        };
        assert_eq!(
            lines,
            [
                &format!("{words}: {said}"),
                "call: get_location+roll_dice{}"
            ]
        );
        let ids = talk.connection.open_calls().to_vec();
        assert_eq!(ids.len(), 2);
        assert!(ids.iter().all(|id| talk.connection.knows(id)));
        // The second generation has said by then that its turn is complete; that is not yet read.
        let responses = [
            response(&ids[0], "get_location", json!({"city": "Oslo"})),
            response(&ids[1], "roll_dice", json!({"rolls": [4], "total": 4})),
        ];
        talk.send(LiveInput::Responses(&responses)).await;
        assert!(!talk.connection.knows(&ids[0]));
        assert_eq!(
            talk.until("complete").await,
            [
                &format!("{words}: You are in Oslo. You rolled 4."),
                "complete"
            ]
        );
    }
}

#[tokio::test]
async fn a_turn_that_ends_without_words_ends_after_a_while() {
    let server = Server::start().await;
    let tools = tools(&["get_location"]);
    let mut talk = server.open(MODEL, &setup(Modality::Text, &tools)).await;
    talk.send(LiveInput::Text("call get_location then empty"))
        .await;
    talk.until("call").await;
    let id = talk.connection.open_calls()[0].clone();
    let responses = [response(&id, "get_location", json!({"city": "Oslo"}))];
    talk.send(LiveInput::Responses(&responses)).await;
    // The first handle comes with the setup, a second when the conversation can be taken up again: after the turn.
    while talk.handles.iter().flatten().count() < 2 {
        talk.read().await;
    }
    assert!(talk.log.iter().all(|(kind, _)| *kind != "complete"));
    tokio::time::pause();
    assert_eq!(talk.until("complete").await, ["complete"]);
}

#[tokio::test]
async fn a_cancelled_call_is_answered_as_part_of_the_conversation() {
    let server = Server::start().await;
    let tools = tools(&["get_location"]);
    for model in [MODEL, THIRD_MODEL] {
        let mut talk = server.open(model, &setup(Modality::Text, &tools)).await;
        talk.send(LiveInput::Text("call get_location")).await;
        talk.until("call").await;
        let id = talk.connection.open_calls()[0].clone();
        talk.say("say meanwhile").await;
        talk.until("cancelled").await;
        assert!(!talk.connection.knows(&id));
        while talk.words(words_of(model)) != "meanwhile" {
            talk.read().await;
        }
        talk.until("complete").await;
        let turns = located(&id);
        talk.send(LiveInput::Contents {
            turns: &turns,
            answer: true,
        })
        .await;
        let lines = talk.until("complete").await;
        let said = format!("{}: You are in Rome.", words_of(model));
        assert_eq!(lines, [&said, "complete"]);
    }
}

/// A call, and its result.
pub(super) fn located(id: &str) -> [Content<'_>; 2] {
    let call = Part {
        function_call: Some(Box::new(FunctionCall {
            id: Some(id.into()),
            name: Some("get_location".into()),
            args: Some(json!({}).into()),
            ..FunctionCall::default()
        })),
        ..Part::default()
    };
    let answer = Part::function_response(id, "get_location", json!({"city": "Rome"}).into());
    [
        Content::new("model", vec![call]),
        Content::new("user", vec![answer]),
    ]
}

/// The payment waits for a human while the connection closes: what the handle does not know is sent again.
#[tokio::test]
async fn a_lost_call_is_answered_on_the_next_connection() {
    let server = Server::start().await;
    let tools = tools(&["search_database", "update_database"]);
    let mut talk = server.open(MODEL, &setup(Modality::Audio, &tools)).await;
    talk.send(LiveInput::Text("say hello")).await;
    talk.until("complete").await;
    while talk.handles.len() < 2 {
        talk.read().await;
    }
    let handle = talk.handles.last().cloned().flatten().unwrap();
    let wish = "search the database and update it";
    talk.send(LiveInput::Text(wish)).await;
    talk.until("call").await;
    assert_eq!(talk.handles.last(), Some(&None), "not resumable");
    let lost = talk.connection.open_calls()[0].clone();
    Box::new(talk.connection).close().await;

    let resumed = LiveSetup {
        contents: vec![user(wish)],
        handle: Some(&handle),
        ..setup(Modality::Text, &tools)
    };
    let mut talk = server.open(MODEL, &resumed).await;
    assert!(!talk.connection.knows(&lost));
    let call = Part {
        function_call: Some(Box::new(FunctionCall {
            id: Some("ours".into()),
            name: Some("search_database".into()),
            args: Some(json!({"query": "users"}).into()),
            ..FunctionCall::default()
        })),
        ..Part::default()
    };
    let answer = Part::function_response(
        "ours",
        "search_database",
        json!({"message": "Found 10 users"}).into(),
    );
    let turns = [
        Content::new("model", vec![call]),
        Content::new("user", vec![answer]),
    ];
    talk.send(LiveInput::Contents {
        turns: &turns,
        answer: true,
    })
    .await;
    let lines = talk.until("call").await;
    assert_eq!(lines[0], "wrote: Found 10 users.");
    assert!(lines[1].starts_with("call: update_database"), "{lines:?}");
}
