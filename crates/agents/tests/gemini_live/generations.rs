//! What differs from one generation of live models to the next.

use adk_bridge_agents::gemini_live::Generation;

use super::endings::still;
use super::tools::{located, response};
use super::*;

/// What comes of the messages of a server that says nothing else, until the turn is complete.
async fn read_all(model: &str, messages: &[&'static str]) -> Vec<String> {
    let mut all = vec![r#"{"setupComplete":{}}"#];
    all.extend(messages);
    let (url, task) = still(all).await;
    let live = GeminiLive::new(settings(&url, model));
    let connection = live.open(&setup(Modality::Audio, &[])).await.unwrap();
    let mut talk = Talk::new(connection);
    for _ in messages {
        talk.read().await;
    }
    // What is due only after a while is due now.
    tokio::time::pause();
    while !talk.log.iter().any(|(kind, _)| *kind == "complete") {
        talk.read().await;
    }
    task.abort();
    let lines = talk.log.iter();
    lines
        .map(|(kind, text)| format!("{kind} {text}").trim_end().to_owned())
        .collect()
}

#[tokio::test]
async fn a_turn_is_complete_when_the_model_is_idle() {
    const WORDS: &str = r#"{"serverContent":{"outputTranscription":{"text":"a "}}}"#;
    const MORE: &str = r#"{"serverContent":{"outputTranscription":{"text":"b"}}}"#;
    const TURN: &str = r#"{"serverContent":{"turnComplete":true}}"#;
    const BUSY: &str =
        r#"{"serverContent":{"turnComplete":true,"interactionStatus":"IN_PROGRESS"}}"#;
    const IDLE: &str = r#"{"serverContent":{"turnComplete":true,"interactionStatus":"IDLE"}}"#;
    const ONLY_IDLE: &str = r#"{"serverContent":{"interactionStatus":"IDLE"}}"#;
    const UNKNOWN: &str = r#"{"serverContent":{"turnComplete":true,"interactionStatus":"INTERACTION_STATUS_UNSPECIFIED"}}"#;
    const WAITING: &str = r#"{"serverContent":{"waitingForInput":true}}"#;
    const USAGE: &str = r#"{"serverContent":{},"usageMetadata":{"totalTokenCount":1}}"#;
    const INTERIM: &str = r#"{"serverContent":{"interimInputTranscription":{"text":"hel"}}}"#;
    const HEARD: &str =
        r#"{"serverContent":{"inputTranscription":{"text":"hello","finished":true}}}"#;
    let cases: [(&[&str], &[&str]); 7] = [
        (&[WORDS, TURN], &["spoke a", "complete"]),
        (&[WORDS, IDLE], &["spoke a", "complete"]),
        (&[WORDS, ONLY_IDLE], &["spoke a", "complete"]),
        (&[WORDS, UNKNOWN], &["spoke a", "complete"]),
        (
            &[WORDS, BUSY, USAGE, MORE, IDLE],
            &["spoke a b", "complete"],
        ),
        // It has nothing to say, and does not say so.
        (&[WAITING, USAGE], &["complete"]),
        (
            &[INTERIM, HEARD, WORDS, IDLE],
            &["heard hello", "heard all hello", "spoke a", "complete"],
        ),
    ];
    for (messages, expected) in cases {
        for model in [THIRD_MODEL, THINKING_MODEL] {
            let read = read_all(model, messages);
            let lines = tokio::time::timeout(Duration::from_secs(600), read).await;
            tokio::time::resume();
            assert_eq!(lines.unwrap(), expected, "{model}: {messages:?}");
        }
    }
}

#[tokio::test]
async fn calls_of_a_model_that_speaks_on_wait_for_its_words() {
    const CALL: &str =
        r#"{"toolCall":{"functionCalls":[{"id":"1","name":"get_location","args":{}}]}}"#;
    const CANCEL: &str = r#"{"toolCallCancellation":{"ids":["1"]}}"#;
    const WORDS: &str = r#"{"serverContent":{"outputTranscription":{"text":"well"}}}"#;
    const GENERATED: &str = r#"{"serverContent":{"generationComplete":true}}"#;
    const IDLE: &str = r#"{"serverContent":{"turnComplete":true,"interactionStatus":"IDLE"}}"#;
    let cases: [(&[&str], &[&str]); 3] = [
        // Without any words they are not held for long.
        (&[CALL], &["call get_location{}"]),
        (
            &[CALL, WORDS, GENERATED],
            &["spoke well", "call get_location{}"],
        ),
        // A call that the model takes back in time is never made.
        (
            &[CALL, CANCEL, WORDS, IDLE],
            &["cancelled 1", "spoke well", "complete"],
        ),
    ];
    for (messages, expected) in cases {
        let mut all = vec![r#"{"setupComplete":{}}"#];
        all.extend(messages);
        let (url, task) = still(all).await;
        let live = GeminiLive::new(settings(&url, THINKING_MODEL));
        let connection = live.open(&setup(Modality::Audio, &[])).await.unwrap();
        let mut talk = Talk::new(connection);
        let lines = talk.until(expected.last().unwrap().split(' ').next().unwrap());
        let lines: Vec<String> = lines.await.iter().map(|it| it.replace(": ", " ")).collect();
        assert_eq!(lines, expected);
        task.abort();
    }
}

/// The user presses the key while a call is open, which cancels it for every other model.
#[tokio::test]
async fn a_model_that_speaks_on_learns_that_the_result_comes_later() {
    let server = Server::start().await;
    let tools = tools(&["get_location"]);
    let setup = LiveSetup {
        activity: Activity::Explicit,
        ..setup(Modality::Text, &tools)
    };
    let mut talk = server.open(THINKING_MODEL, &setup).await;
    talk.send(LiveInput::Text("call get_location")).await;
    talk.until("call").await;
    let id = talk.connection.open_calls()[0].clone();
    talk.send(LiveInput::ActivityStart).await;
    assert!(!talk.connection.knows(&id));
    talk.say("say meanwhile").await;
    talk.send(LiveInput::ActivityEnd).await;
    while !talk.words("spoke").ends_with("meanwhile") {
        talk.read().await;
    }
    talk.until("complete").await;
    let turns = located(&id);
    talk.send(LiveInput::Contents {
        turns: &turns,
        answer: true,
    })
    .await;
    // It may first say something about the result that it did not get.
    while !talk.words("spoke").ends_with("You are in Rome.") {
        talk.read().await;
    }
}

/// What is said while a call is open is heard after its result.
#[tokio::test]
async fn words_during_a_call_come_after_its_result() {
    let server = Server::start().await;
    let tools = tools(&["get_location"]);
    let mut talk = server
        .open(THINKING_MODEL, &setup(Modality::Text, &tools))
        .await;
    talk.send(LiveInput::Text("call get_location")).await;
    talk.until("call").await;
    let id = talk.connection.open_calls()[0].clone();
    // The model answers although its call is open. The speech comes right after the call, so it counts as part of
    // what was said before it.
    talk.say("say hm").await;
    while talk.words("heard") != "say hm" {
        talk.read().await;
    }
    let results = [response(&id, "get_location", json!({"city": "Oslo"}))];
    talk.send(LiveInput::Responses(&results)).await;
    while !talk.words("spoke").ends_with("You are in Oslo.") {
        talk.read().await;
    }
    assert_eq!(talk.words("spoke"), "One moment. hmYou are in Oslo.");
}

#[tokio::test]
async fn early_models_of_the_third_generation_get_turns_by_a_new_connection() {
    let server = Server::start().await;
    let mut talk = server
        .open(EARLY_THIRD_MODEL, &setup(Modality::Text, &[]))
        .await;
    let turns = [user("say never")];
    let input = LiveInput::Contents {
        turns: &turns,
        answer: false,
    };
    let error = talk.connection.send(input).await.unwrap_err();
    assert!(
        error.detail().contains("when a connection opens"),
        "{error:?}"
    );
    // Nothing was sent that would have closed it.
    talk.send(LiveInput::Text("say still here")).await;
    assert_eq!(
        talk.until("complete").await,
        ["spoke: still here", "complete"]
    );
}

/// A name that says the wrong thing, as that of a proxy's alias, can be corrected.
#[tokio::test]
async fn a_generation_can_be_named() {
    let server = Server::start().await;
    let setup = LiveSetup {
        contents: vec![user("say old")],
        ..setup(Modality::Text, &[])
    };
    let settings = settings(&server.url, MODEL);
    let as_named = GeminiLive::new(settings.clone());
    assert_eq!(
        as_named.open(&setup).await.unwrap().modality(),
        Modality::Text
    );
    let other = GeminiLive::new(settings).acting_like(Generation::Third);
    assert_eq!(
        other.open(&setup).await.unwrap().modality(),
        Modality::Audio
    );
}
