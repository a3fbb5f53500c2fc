//! Targets of the server.

use adk_bridge::fuzzing;
use adk_bridge::protocol::chunk::Chunk;
use adk_bridge::protocol::dialect::Dialect;
use adk_bridge::protocol::time::Timestamp;

use crate::split_of;

pub(crate) fn chat_request(data: &[u8]) {
    fuzzing::chat_request(data);
}

pub(crate) fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::configuration(text);
}

/// The key that has signed what the searches begin with, in `fixtures/foreign/sign.py`, and when it is looked at.
const KEY: &[u8] = b"the key of the fuzz targets";
const NOW: Timestamp = Timestamp::from_millis(2_000_000_000_000);

const KEY_SET: &[u8] = include_bytes!("../../../fixtures/foreign/key-set/three-kinds.json");
const COOKIES: &str = include_str!("../../../fixtures/foreign/cookie/both.txt");
const FILE: &str = include_str!("../../../fixtures/foreign/file-address/relative.txt");
const FORWARDED: &str = include_str!("../../../fixtures/foreign/forwarded-request/alice.txt");
const TICKET: &str = include_str!("../../../fixtures/foreign/ticket/alice.txt");
const TOKENS: &[&str] = &[
    include_str!("../../../fixtures/foreign/token/eddsa.jwt"),
    include_str!("../../../fixtures/foreign/token/es256.jwt"),
    include_str!("../../../fixtures/foreign/token/rs256.jwt"),
];

pub(crate) fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::token(text, KEY_SET, TOKENS, NOW);
}

pub(crate) fn key_set(data: &[u8]) {
    fuzzing::key_set(data, TOKENS, KEY_SET);
}

pub(crate) fn openid_description(data: &[u8]) {
    fuzzing::openid_description(data);
}

pub(crate) fn login_answer(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::login_answer(text);
}

pub(crate) fn login_exchange(data: &[u8]) {
    fuzzing::login_exchange(data);
}

pub(crate) fn cookie(data: &[u8]) {
    fuzzing::cookie(data, KEY, COOKIES, NOW);
}

pub(crate) fn credential_callback(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::credential_callback(text);
}

pub(crate) fn credential_request(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::credential_request(text);
}

pub(crate) fn ticket(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::ticket(text, KEY, TICKET, NOW);
}

pub(crate) fn forwarded_request(data: &[u8]) {
    fuzzing::forwarded_request(data, KEY, FORWARDED, NOW);
}

pub(crate) fn file_address(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::file_address(text, KEY, FILE, NOW);
}

pub(crate) fn file_kind(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n');
    let (declared, content) = data.split_at(end.unwrap_or_default());
    fuzzing::file_kind(
        &String::from_utf8_lossy(declared),
        content.trim_ascii_start(),
    );
}

pub(crate) fn range(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (bytes, range) = text.split_once('\n').unwrap_or(("10", text));
    fuzzing::range(range, bytes.parse().unwrap_or_default());
}

pub(crate) fn upload_form(data: &[u8]) {
    fuzzing::upload_form(data);
}

pub(crate) fn source(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::source(text);
}

pub(crate) fn tunnel(data: &[u8]) {
    fuzzing::tunnel(data, split_of(data));
}

pub(crate) fn audit_export(data: &[u8]) {
    fuzzing::audit_export(data);
}

pub(crate) fn tool_result(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    fuzzing::tool_result(text);
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
