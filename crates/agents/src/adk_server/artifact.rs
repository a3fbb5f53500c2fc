//! Artifacts: what an agent saved beside its answer, brought into the answer as a file.

use std::sync::Arc;

use adk_bridge_protocol::base64;
use serde_json::{Value, json};

use super::run::Wanted;
use super::talk::Talk;

/// Where the artifacts of a run lie.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) user: String,
    pub(super) session: String,
}

/// An artifact as an event that shows it. One that cannot be had is left out: the answer does not depend on it.
pub(super) async fn fetch(talk: Arc<Talk>, place: Place, wanted: Wanted) -> Option<String> {
    let version = wanted
        .version
        .map_or_else(|| "latest".to_owned(), |version| version.to_string());
    let path = [
        "apps",
        talk.app(),
        "users",
        &place.user,
        "sessions",
        &place.session,
        "artifacts",
        &wanted.name,
        "versions",
        &version,
    ];
    match talk.get(&path).await {
        Ok(part) => event(part),
        Err(failure) => {
            let error = failure.into_error();
            tracing::warn!(artifact = %wanted.name, %error, detail = %error.detail, "an artifact cannot be had");
            None
        }
    }
}

/// ADK keeps an artifact as a part of a content: bytes, an address or text.
fn event(part: Value) -> Option<String> {
    let shown = match (
        part.get("text"),
        part.get("inlineData"),
        part.get("fileData"),
    ) {
        (Some(Value::String(text)), ..) => json!({
            "inlineData": {"mimeType": "text/plain", "data": base64::encode(text.as_bytes())}
        }),
        (_, Some(blob), _) => json!({"inlineData": blob}),
        (.., Some(file)) => json!({"fileData": file}),
        _ => return None,
    };
    Some(json!({"content": {"role": "model", "parts": [shown]}}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_artifact_is_shown() {
        for (part, shown) in [
            (
                json!({"text": "hi"}),
                Some(json!({"inlineData": {"mimeType": "text/plain", "data": "aGk="}})),
            ),
            (
                json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}, "text": null}),
                Some(json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}})),
            ),
            (
                json!({"fileData": {"fileUri": "https://x/y", "mimeType": "a/b"}}),
                Some(json!({"fileData": {"fileUri": "https://x/y", "mimeType": "a/b"}})),
            ),
            (json!({}), None),
            (json!(null), None),
            (json!("x"), None),
        ] {
            let found = event(part).map(|event| {
                let event: Value = serde_json::from_str(&event).unwrap();
                event["content"]["parts"][0].clone()
            });
            assert_eq!(found, shown);
        }
    }
}
