//! Every stream of the corpus folds, in its version, to the message that the reply itself has.
//!
//! `web/conformance/streams.test.mjs` asks the real packages the same.

use adk_bridge_protocol::chunk::Chunk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::message::fold::{Fold, FoldError};

use super::case::Case;
use super::{conversations, recordings};

#[test]
fn recordings_late_readers_and_resumes() {
    let mut cases = Vec::new();
    recordings::write(&mut cases).unwrap();
    check(&cases);
}

#[test]
fn conversations_with_answers() {
    let mut cases = Vec::new();
    conversations::write(&mut cases).unwrap();
    check(&cases);
}

fn check(cases: &[Case]) {
    assert!(!cases.is_empty());
    for case in cases {
        let mut folded = fold(case);
        if case.dialect == Dialect::Held {
            leave_speech_out(&mut folded);
        }
        assert_eq!(folded, case.expected(), "{}", case.name);
    }
}

/// Dialect `held` adds how much speech the stream had.
fn leave_speech_out(message: &mut Message) {
    let Some(metadata) = &message.metadata else {
        return;
    };
    let mut fields: serde_json::Map<String, serde_json::Value> = metadata.read().unwrap();
    if fields.remove("audio").is_some() {
        let rest = !fields.is_empty();
        message.metadata = rest.then(|| serde_json::Value::Object(fields).into());
    }
}

fn fold(case: &Case) -> Message {
    let mut fold = match &case.prior {
        Some(prior) => Fold::onto(case.sdk, prior.clone()),
        None => Fold::new(case.sdk, ""),
    };
    let text = std::str::from_utf8(&case.sse).unwrap();
    let chunks = text.strip_suffix("data: [DONE]\n\n").unwrap();
    for event in chunks.split_terminator("\n\n") {
        let json = event.strip_prefix("data: ").unwrap();
        match fold.apply(&Chunk::parse(json).unwrap()) {
            Ok(()) => {}
            Err(FoldError::Reported(_)) if case.ends == "error" => {}
            Err(error) => panic!("{}: {error}: {json}", case.name),
        }
    }
    fold.into_message()
}
