//! Artifacts: what an agent saved separately from its answer, added to the answer as a file.

use std::collections::VecDeque;
use std::sync::Arc;

use adk_bridge_protocol::base64;
use adk_bridge_protocol::event::Actions;
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::json_text::Json;
use serde_json::json;

use super::client::AdkClient;
use super::engine;
use crate::agent::BoxFuture;
use crate::error::withheld;

/// How many artifacts may wait at once, and how many of one run are shown; no run for a human saves more.
pub(super) const MAX_ARTIFACTS: usize = 64;

/// Where the artifacts of a run are stored.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) user: UserId,
    pub(super) session: String,
}

/// The saved artifacts that are still to be fetched, in order.
pub(super) struct Artifacts {
    client: Arc<AdkClient>,
    place: Place,
    waiting: VecDeque<SavedArtifact>,
    fetching: Option<BoxFuture<'static, Option<String>>>,
    /// How many more may be shown.
    left: usize,
}

impl Artifacts {
    pub(super) fn new(client: Arc<AdkClient>, place: Place, most: usize) -> Self {
        Self {
            client,
            place,
            waiting: VecDeque::new(),
            fetching: None,
            left: most,
        }
    }

    /// Notes the artifacts that an event names.
    pub(super) fn note(&mut self, actions: &Actions) {
        let saved = actions.artifact_delta.as_ref().map(Json::fields);
        for (name, version) in saved.into_iter().flatten() {
            if self.left > 0 && self.waiting.len() < MAX_ARTIFACTS {
                self.left -= 1;
                self.waiting.push_back(SavedArtifact {
                    name: name.into_owned(),
                    version: version.get().parse().ok(),
                });
            }
        }
    }

    /// The next one as an event, or `None` if none is waiting. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            if self.fetching.is_none() {
                let wanted = self.waiting.pop_front()?;
                let fetch = fetch(self.client.clone(), self.place.clone(), wanted);
                self.fetching = Some(Box::pin(fetch));
            }
            if let Some(fetching) = &mut self.fetching {
                let fetched = fetching.await;
                self.fetching = None;
                if fetched.is_some() {
                    return fetched;
                }
            }
        }
    }
}

/// An artifact that was saved.
pub(super) struct SavedArtifact {
    pub(super) name: String,
    pub(super) version: Option<u64>,
}

/// Fetches an artifact as an event that shows it. If that fails it is left out: the answer does not depend on it.
async fn fetch(client: Arc<AdkClient>, place: Place, wanted: SavedArtifact) -> Option<String> {
    let version = wanted.version.map(|version| version.to_string());
    let mut path = vec![
        "apps",
        client.app(),
        "users",
        place.user.as_str(),
        "sessions",
        &place.session,
        "artifacts",
        &wanted.name,
    ];
    // Without a version it is the latest one; not every server has a word for that.
    if let Some(version) = &version {
        path.extend(["versions", version]);
    }
    let found = match &client.artifact_method {
        Some(url) => engine::artifact(&client, url, &place, &wanted).await,
        None => client.get(&path).await,
    };
    match found {
        Ok(part) => event(&part, &wanted.name),
        Err(failure) => {
            let error = failure.into_error();
            tracing::warn!(
                kind = %error.kind(),
                detail = error.detail(),
                name = withheld(&wanted.name),
                "an artifact cannot be loaded"
            );
            None
        }
    }
}

/// ADK stores an artifact as a part of a content: bytes, a URL or text.
pub(super) fn event(part: &Json, name: &str) -> Option<String> {
    let text = part.get("text");
    let text = text.as_ref().and_then(Json::as_str);
    let (kind, data) = match (text, part.get("inlineData"), part.get("fileData")) {
        (Some(text), ..) => {
            let data = base64::encode(text.as_bytes());
            (
                "inlineData",
                json!({"mimeType": "text/plain", "data": data}).into(),
            )
        }
        (_, Some(blob), _) => ("inlineData", blob),
        (.., Some(file)) => ("fileData", file),
        _ => return None,
    };
    // Names are paths on some servers; the user's own part is the last one.
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.strip_prefix("user:").unwrap_or(name);
    let data = data.with("displayName", &name.into());
    let shown = Json::object([(kind, data)]);
    let parts = ("parts", Json::array([&shown]));
    let content = Json::object([("role", "model".into()), parts]);
    Some(Json::object([("content", content)]).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_artifact_is_shown() {
        for (part, shown) in [
            (
                json!({"text": "hi"}),
                Some(
                    json!({"inlineData": {"mimeType": "text/plain", "data": "aGk=", "displayName": "a b.txt"}}),
                ),
            ),
            (
                json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}, "text": null}),
                Some(
                    json!({"inlineData": {"mimeType": "image/png", "data": "aGk=", "displayName": "a b.txt"}}),
                ),
            ),
            (
                json!({"fileData": {"fileUri": "https://x/y", "mimeType": "a/b"}}),
                Some(
                    json!({"fileData": {"fileUri": "https://x/y", "mimeType": "a/b", "displayName": "a b.txt"}}),
                ),
            ),
            (json!({}), None),
            (json!(null), None),
            (json!("x"), None),
        ] {
            let found = event(&part.into(), "user:notes/a b.txt").map(|event| {
                let event: serde_json::Value = serde_json::from_str(&event).unwrap();
                event["content"]["parts"][0].clone()
            });
            assert_eq!(found, shown);
        }
    }
}
