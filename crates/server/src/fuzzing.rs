//! The parsers of foreign bytes, for the fuzz targets; nothing else may use them.

use adk_bridge_protocol::dialect::Dialect;

use crate::auth::Unverified;
use crate::chat::request::ChatRequest;
use crate::config::Config;
use crate::transport::{adk_stream_protocol, percent as percents};

/// Reads the body of a chat request, as any client's and as the original front end's.
pub fn chat_request(body: &[u8]) {
    for &dialect in Dialect::ALL {
        let _ = ChatRequest::parse(body, dialect);
        let _ = adk_stream_protocol::parse(body, dialect);
    }
}

/// Reads the text of a configuration file.
pub fn configuration(toml: &str) {
    let (_, problems) = Config::read_text(toml);
    for problem in problems {
        let _ = problem.to_string();
    }
}

/// Reads a token whose signature was not checked.
pub fn token(text: &str) {
    let _ = Unverified::read(text);
}

/// Decodes percent-encoded text.
pub fn percent(text: &str) {
    if let Some(decoded) = percents::decoded(text) {
        let again = percents::decoded(&percents::encoded(&decoded).to_string());
        assert_eq!(again, Some(decoded), "encoded text is the same text");
    }
}

/// The stream of a recorded run, if it is one.
pub fn translated(recording: &[u8], dialect: Dialect) -> Option<Vec<u8>> {
    crate::translate::translate(recording, dialect, "message", &mut Vec::new()).ok()
}
