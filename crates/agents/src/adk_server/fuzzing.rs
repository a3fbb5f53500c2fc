//! What the fuzz targets read of an ADK server: its answers about itself, its sessions and artifacts, refusals, live frames.

use std::collections::HashSet;

use adk_bridge_protocol::event::Event;
use adk_bridge_protocol::json_text::Json;
use reqwest::header::HeaderMap;

use super::client::{Answer, plain_words, words_of};
use super::live::reading::{EventReader, MAX_OPEN_CALLS, is_sound};
use super::{app_info, artifact, server_traits, session};
use crate::error::MAX_SAID_BYTES;
use crate::live::Incoming;

/// Reads an answer as each of the endpoints would.
pub fn adk_answer(body: &[u8]) {
    if let Ok(answer) = serde_json::from_slice::<Json>(body) {
        let _ = session::has_session(&answer, "s");
        let _ = artifact::event(&answer, "folder/user:name");
        if app_info::check_size(&answer, "answer").is_ok() {
            let _ = answer.read::<Vec<String>>();
            let tools = app_info::read(&answer.to_value()).tools;
            let names: HashSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!(names.len(), tools.len(), "each tool is listed once");
            assert!(!names.contains(""), "a tool has a name");
        }
    }
    for status in [200, 404] {
        let answer = Answer {
            status,
            headers: HeaderMap::new(),
            body: body.to_vec(),
        };
        let _ = (
            server_traits::lists_apps(&answer),
            server_traits::recognize(&answer),
        );
    }
    for words in [words_of(body), plain_words(body)].into_iter().flatten() {
        let most = MAX_SAID_BYTES + "…".len();
        assert!(words.len() <= most, "a refusal is a sentence or two");
    }
}

/// Reads the frames of a live conversation. One that failed has ended, and where text was wanted nothing sounds.
pub fn adk_live<'a>(frames: impl Iterator<Item = &'a [u8]> + Clone) {
    for mute in [false, true] {
        let mut reader = EventReader {
            mute,
            ..EventReader::default()
        };
        for frame in frames.clone() {
            let Ok(json) = std::str::from_utf8(frame) else {
                continue;
            };
            let Ok(event) = Event::parse(json) else {
                continue;
            };
            let has_failed = event.error.is_some() || event.error_code.is_some();
            let (mut has_ended, mut sounds) = (false, false);
            reader.event(event, json, &mut |incoming| {
                if let Incoming::Event(event) = incoming {
                    has_ended = event.turn_complete == Some(true);
                    sounds |= event.parts().iter().any(is_sound);
                }
            });
            assert!(has_ended || !has_failed, "what failed has ended: {json}");
            assert!(!(mute && sounds), "nothing sounds: {json}");
            let most = reader.open.len().max(reader.running.len());
            assert!(most <= MAX_OPEN_CALLS, "calls are bounded");
        }
    }
}
