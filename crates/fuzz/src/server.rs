//! Targets of the server.

use adk_bridge::fuzzing;
use adk_bridge::protocol::chunk::Chunk;
use adk_bridge::protocol::dialect::Dialect;

pub(crate) fn chat_request(data: &[u8]) {
    fuzzing::chat_request(data);
}

pub(crate) fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::configuration(text);
}

pub(crate) fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::token(text);
}

pub(crate) fn percent(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::percent(text);
}

pub(crate) fn recording(data: &[u8]) {
    for &dialect in Dialect::ALL {
        let Some(stream) = fuzzing::translated(data, dialect) else {
            continue;
        };
        let stream = String::from_utf8_lossy(&stream);
        for payload in stream
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
        {
            let is_read = payload == "[DONE]" || Chunk::parse(payload).is_ok();
            assert!(is_read, "not a chunk: {payload}");
        }
    }
}
