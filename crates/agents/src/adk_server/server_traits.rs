//! What an ADK server is and can do, found out by asking it: all that depends on it is asked of [`ServerTraits`].
//!
//! | | Python | TypeScript | Go | Java |
//! |---|---|---|---|---|
//! | below `/api` | no | no | yes | no |
//! | says its version | newer ones | yes | no | no |
//! | a new session takes its id, its events | both | neither | events | neither |
//! | makes sessions that it does not know | with an option | no | no | no |
//! | `/run_live` | yes | no | speech only | speech only |
//! | fields that it does not know | ignored | ignored | refused | ignored |
//!
//! What a server shows in its answers counts more than what its language lets expect.

use std::fmt;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, SERVER};
use serde_json::Value;

use super::client::{AdkClient, Answer};
use crate::error::AgentError;

/// Where servers in Go have their endpoints.
pub(super) const API: &str = "api";
/// The longest version that is shown: `12.34.56-rc.1+build`, and more is no version.
const MAX_VERSION_BYTES: usize = 32;

/// An ADK server, as far as it has shown what it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerTraits {
    language: Language,
    version: Option<String>,
    below_api: bool,
    has_no_voice: bool,
    pub(super) describes_apps: Option<bool>,
    pub(super) takes_session_id: Option<bool>,
    pub(super) takes_events: Option<bool>,
    pub(super) makes_sessions: Option<bool>,
}

/// What a server is written in, which decides how it behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    Python,
    TypeScript,
    Go,
    Java,
    #[default]
    Unknown,
}

impl ServerTraits {
    pub fn language(&self) -> Language {
        self.language
    }

    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The path below the configured URL where its endpoints are.
    pub fn prefix(&self) -> Option<&'static str> {
        self.below_api.then_some(API)
    }

    /// Whether it supports speech.
    pub fn has_voice(&self) -> bool {
        !self.has_no_voice
    }

    /// Whether it answers with speech even where text is asked for.
    pub fn only_speaks(&self) -> bool {
        matches!(self.language, Language::Go | Language::Java)
    }

    /// Whether it tells the tools of an app.
    pub fn describes_apps(&self) -> bool {
        let expected = matches!(self.language, Language::Python | Language::Unknown);
        self.describes_apps.unwrap_or(expected)
    }

    /// Whether a new session can be given the id that the bridge wants.
    pub fn takes_session_id(&self) -> bool {
        let expected = matches!(self.language, Language::Python | Language::Unknown);
        self.takes_session_id.unwrap_or(expected)
    }

    /// Whether a new session can be given the events of a conversation; otherwise the next message tells it.
    pub fn takes_events(&self) -> bool {
        let expected = !matches!(self.language, Language::TypeScript | Language::Java);
        self.takes_events.unwrap_or(expected)
    }

    /// Whether a run in a session that it does not know makes that session; unknown until it was tried. Only Python's
    /// server has an option for it.
    pub fn makes_sessions(&self) -> Option<bool> {
        match self.language {
            Language::Python => self.makes_sessions,
            _ => Some(false),
        }
    }

    /// Whether a request may have fields that the server does not know.
    pub fn ignores_unknown_fields(&self) -> bool {
        self.language != Language::Go
    }

    /// Why a connection may have broken in the middle of an answer that took so long.
    pub(super) fn why_cut(&self, after: Duration) -> Option<String> {
        (self.language == Language::Go).then(|| {
            format!(
                "the ADK server cut its answer off after {} seconds; what it said until then is kept. A server in Go \
                 stops writing after 120 seconds unless it is started with a longer -sse-write-timeout",
                after.as_secs()
            )
        })
    }

    /// What it lacks, as phrases that follow "it cannot".
    pub(super) fn limitations(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        if self.has_voice() {
            lacks.push("ask for approval in a spoken conversation".to_owned());
        } else {
            lacks.push("hold a voice conversation: its server has no /run_live".to_owned());
        }
        if !self.describes_apps() {
            lacks
                .push("list its tools before it calls them: its server has no app-info".to_owned());
        }
        if !self.takes_events() {
            lacks.push(
                "be given an earlier conversation as events: the next message repeats it as text"
                    .to_owned(),
            );
        }
        if !self.takes_events() && self.has_voice() {
            lacks.push(
                "know in a spoken conversation what was said before its session was lost or the history was changed, \
                 until a written message repeats it"
                    .to_owned(),
            );
        }
        lacks
    }
}

/// Asks a server what it is, and says whether that was clear. An error means that it cannot be reached.
pub(super) async fn find(client: &AdkClient) -> Result<(ServerTraits, bool), AgentError> {
    let at_root = client.look(&["list-apps"]).await?;
    let below_api = !lists_apps(&at_root)
        && client.may_be_below_api()
        && lists_apps(&client.look(&[API, "list-apps"]).await?);
    let path = |last: &'static str| match below_api {
        true => vec![API, last],
        false => vec![last],
    };
    let version = client.look(&path("version")).await?;
    // A server that fails, or lets nobody in, may say more later.
    let is_clear = matches!(version.status, 200..=299 | 404 | 405);
    let (language, version) = recognize(&version);
    let has_no_voice = match language {
        // Its WebSocket endpoint looks absent to other requests, and every version has it.
        Language::Python => false,
        _ => lacks_voice(client.look(&path("run_live")).await?.status),
    };
    let traits = ServerTraits {
        language,
        version,
        below_api,
        has_no_voice,
        ..ServerTraits::default()
    };
    Ok((traits, is_clear))
}

pub(super) fn lists_apps(answer: &Answer) -> bool {
    answer.status == 200 && serde_json::from_slice::<Vec<String>>(&answer.body).is_ok()
}

/// Whether `/run_live` is not there, by its answer to a request that is no WebSocket handshake. A page that is served for
/// every path is none either.
fn lacks_voice(status: u16) -> bool {
    matches!(status, 200..=299 | 404 | 405 | 501)
}

/// What a server is, by its answer to `GET /version`. Those that do not have it are known by how they say so.
pub(super) fn recognize(answer: &Answer) -> (Language, Option<String>) {
    let header = |name: &str| {
        let value = answer
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_ascii_lowercase()
    };
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let has = |keys: &[&str]| keys.iter().all(|key| body.get(key).is_some());
    let version = body.get("version").and_then(Value::as_str);
    let version = version.filter(|version| answer.status == 200 && is_version(version));
    let named = body.get("language").and_then(Value::as_str);
    let language = match named.unwrap_or_default() {
        "python" => Language::Python,
        "typescript" | "javascript" => Language::TypeScript,
        "go" => Language::Go,
        "java" => Language::Java,
        _ if header("x-powered-by").contains("express") => Language::TypeScript,
        _ if answer.status == 404
            && header(CONTENT_TYPE.as_str()).starts_with("text/plain")
            && answer.body.starts_with(b"404 page not found") =>
        {
            Language::Go
        }
        _ if answer.status == 404 && has(&["timestamp", "status", "error", "path"]) => {
            Language::Java
        }
        _ if answer.status == 404 && has(&["detail"]) || header(SERVER.as_str()) == "uvicorn" => {
            Language::Python
        }
        _ => Language::Unknown,
    };
    (language, version.map(str::to_owned))
}

/// Whether a foreign text is nothing but a version, so that it can be shown.
fn is_version(text: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    (1..=MAX_VERSION_BYTES).contains(&text.len()) && text.bytes().all(is_safe)
}

/// The name in one word, for programs.
impl Language {
    pub fn word(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::TypeScript => "typescript",
            Self::Go => "go",
            Self::Java => "java",
            Self::Unknown => "unknown",
        }
    }
}

/// As people read it: `ADK for Python 2.13.0`.
impl fmt::Display for ServerTraits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let language = match self.language {
            Language::Python => "Python",
            Language::TypeScript => "TypeScript",
            Language::Go => "Go",
            Language::Java => "Java",
            Language::Unknown => return formatter.write_str("an ADK server of an unknown kind"),
        };
        write!(formatter, "ADK for {language}")?;
        match &self.version {
            Some(version) => write!(formatter, " {version}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Answer {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        Answer {
            status,
            headers: headers.collect::<HeaderMap>(),
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn servers_are_known_by_their_answers() {
        let text = ("content-type", "text/plain; charset=utf-8");
        let spring = r#"{"timestamp":"2026-11-16T10:00:00.000+00:00","status":404,"error":"Not Found","path":"/version"}"#;
        for (given, language, version) in [
            (
                answer(
                    200,
                    &[],
                    r#"{"version":"2.13.0","language":"python","language_version":"3.11.7"}"#,
                ),
                Language::Python,
                Some("2.13.0"),
            ),
            (
                answer(404, &[("server", "uvicorn")], r#"{"detail":"Not Found"}"#),
                Language::Python,
                None,
            ),
            (
                answer(404, &[], r#"{"detail":"Not Found"}"#),
                Language::Python,
                None,
            ),
            (
                answer(
                    200,
                    &[("x-powered-by", "Express")],
                    r#"{"version":"2.0.0"}"#,
                ),
                Language::TypeScript,
                Some("2.0.0"),
            ),
            (
                answer(
                    404,
                    &[("x-powered-by", "Express")],
                    "<pre>Cannot GET /version</pre>",
                ),
                Language::TypeScript,
                None,
            ),
            (
                answer(404, &[text], "404 page not found\n"),
                Language::Go,
                None,
            ),
            (
                answer(404, &[("content-type", "application/json")], spring),
                Language::Java,
                None,
            ),
            (answer(404, &[], "not here"), Language::Unknown, None),
            (
                answer(200, &[], r#"{"version":"1 <script>","language":"go"}"#),
                Language::Go,
                None,
            ),
            (
                answer(200, &[], r#"{"version":"9","language":"cobol"}"#),
                Language::Unknown,
                Some("9"),
            ),
            (
                answer(401, &[], r#"{"detail":"no"}"#),
                Language::Unknown,
                None,
            ),
            (answer(500, &[], ""), Language::Unknown, None),
        ] {
            assert_eq!(
                recognize(&given),
                (language, version.map(str::to_owned)),
                "{given:?}"
            );
        }
    }

    #[test]
    fn what_was_seen_counts_more_than_what_is_expected() {
        let of = |language| ServerTraits {
            language,
            ..ServerTraits::default()
        };
        for (language, id, events, voice_only) in [
            (Language::Python, true, true, false),
            (Language::TypeScript, false, false, false),
            (Language::Go, false, true, true),
            (Language::Java, false, false, true),
            (Language::Unknown, true, true, false),
        ] {
            let traits = of(language);
            assert_eq!(traits.takes_session_id(), id, "{language:?}");
            assert_eq!(traits.takes_events(), events, "{language:?}");
            assert_eq!(traits.only_speaks(), voice_only, "{language:?}");
            let seen = ServerTraits {
                takes_events: Some(!events),
                takes_session_id: Some(!id),
                ..traits
            };
            assert_eq!(seen.takes_events(), !events, "{language:?}");
            assert_eq!(seen.takes_session_id(), !id, "{language:?}");
        }
        let cut = of(Language::Go).why_cut(Duration::from_secs(120)).unwrap();
        assert!(
            cut.contains("after 120 seconds") && cut.contains("-sse-write-timeout"),
            "{cut}"
        );
        assert_eq!(of(Language::Python).why_cut(Duration::from_secs(120)), None);
        assert_eq!(of(Language::Go).makes_sessions(), Some(false));
        assert_eq!(of(Language::Python).makes_sessions(), None);
    }
}
