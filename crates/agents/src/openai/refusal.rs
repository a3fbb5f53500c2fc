//! Why a server does not answer, in the forms that servers have for it.
//!
//! ```text
//!   {"error": {"message": …, "type": …, "code": …}}     OpenAI, llama.cpp, Ollama, gateways
//!   {"error": "…"}, {"message": …}, {"object": "error"} others, and vLLM before 0.10
//!   {"detail": "…"}, {"detail": [{"msg": …}]}           FastAPI
//!   text                                                whatever stands in front of them
//! ```

use std::time::Duration;

use adk_bridge_protocol::wire::json::check;
use reqwest::StatusCode;
use serde_json::Value;

use crate::error::{AgentError, AgentErrorKind, shortened};
use crate::http::Failure;

/// The codes have some twenty letters.
const MAX_CODE_BYTES: usize = 64;

/// What an error says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Refusal {
    message: Option<String>,
    /// `code` and `type`, as far as they are words.
    codes: Vec<String>,
    /// A status that stands in the error itself.
    status: Option<u16>,
}

/// A refused request.
pub(crate) struct Refused {
    pub(crate) failure: Failure,
    /// Whether the request was refused because it asks for the usage.
    pub(super) names_usage: bool,
}

/// What a refused request said of who the bridge is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Credential {
    None,
    Key,
    Token { advice: &'static str },
}

impl Refusal {
    /// Reads the body of an answer with this content type.
    pub(crate) fn read(text: &str, kind: &str) -> Self {
        let text = text.trim();
        // Google's server puts its errors inside an array.
        let json = match text.strip_prefix('[') {
            Some(inside) => inside.strip_suffix(']').unwrap_or(inside),
            None => text,
        };
        if check(json.as_bytes()).is_ok()
            && let Ok(value) = serde_json::from_str::<Value>(json)
        {
            let error = Self::of_chunk(&value);
            return error.unwrap_or_else(|| Self::of(&value));
        }
        let is_page = text.starts_with('<') || kind.eq_ignore_ascii_case("text/html");
        Self {
            message: (!is_page && !text.is_empty()).then(|| text.to_owned()),
            ..Self::default()
        }
    }

    /// The error in a chunk of an answer, if there is one.
    pub(super) fn of_chunk(chunk: &Value) -> Option<Self> {
        match &chunk["error"] {
            Value::String(text) if !text.is_empty() => Some(Self {
                message: Some(text.clone()),
                ..Self::default()
            }),
            error @ Value::Object(fields) if !fields.is_empty() => Some(Self::of(error)),
            _ if chunk["object"] == "error" => Some(Self::of(chunk)),
            _ => None,
        }
    }

    fn of(said: &Value) -> Self {
        let message = match (&said["message"], &said["detail"]) {
            (Value::String(text), _) | (_, Value::String(text)) => Some(text.clone()),
            (_, Value::Array(problems)) => problems
                .first()
                .and_then(|problem| problem["msg"].as_str())
                .map(str::to_owned),
            _ => None,
        };
        let codes = ["code", "type"].iter().filter_map(|key| said[key].as_str());
        let codes = codes.filter(|code| is_code(code)).map(str::to_owned);
        let status = ["code", "status", "status_code"].iter().find_map(|key| {
            let number = match &said[key] {
                Value::String(text) => text.parse().ok(),
                other => other.as_u64(),
            };
            number.and_then(|number| u16::try_from(number).ok())
        });
        Self {
            message,
            codes: codes.collect(),
            status,
        }
    }

    /// The error of an answer that had begun.
    pub(crate) fn of_answer(self) -> AgentError {
        let kind = match self.status {
            Some(status) => self.kind(status, None),
            None => self.kind_by_code().unwrap_or(AgentErrorKind::Broken),
        };
        let said = self.message.as_deref().unwrap_or("no reason was given");
        AgentError::new(
            kind,
            format!("the model aborted its answer: {}", shortened(said)),
            self.codes(),
        )
    }

    /// The failure of a request that was refused with this status.
    pub(crate) fn of_request(
        self,
        status: StatusCode,
        retry_after: Option<Duration>,
        model: &str,
        credential: Credential,
    ) -> Refused {
        let code = status.as_u16();
        let said = self.message.as_deref();
        let names_usage =
            matches!(code, 400 | 422) && said.is_some_and(|said| said.contains("stream_options"));
        // A used up account is not refilled in the next seconds.
        let is_spent = self.codes.iter().any(|code| code == "insufficient_quota");
        let again = (code == 429 && !is_spent || code >= 500).then_some(retry_after);
        let kind = self.kind(code, retry_after);
        let words = said.map_or_else(|| status.to_string(), shortened);
        let message = match code {
            300..=399 => format!(
                "the model's server redirects the request ({words}); correct agent.base_url"
            ),
            401 | 403 => match credential {
                Credential::None => format!(
                    "the model's server wants an API key: {words}; name the variable that contains it with agent.api_key_env"
                ),
                Credential::Key => format!("the model refuses the API key: {words}"),
                Credential::Token { advice } => {
                    format!("the model refuses the token: {words}; {advice}")
                }
            },
            404 if self.is_from_the_model() => format!(
                "the model {model:?} is unknown there: {words}; set agent.model to one that exists"
            ),
            404 | 405 => format!(
                "there are no chat completions at the configured address: {words}; correct agent.base_url, which mostly ends with /v1"
            ),
            429 => format!("the model's quota is used up, try again later: {words}"),
            500..=599 => format!("the model is not available, try again: {words}"),
            _ => format!("the model refused the request: {words}"),
        };
        Refused {
            failure: Failure {
                error: AgentError::new(kind, message, self.codes()),
                again,
            },
            names_usage,
        }
    }

    /// Whether more than a web server has answered. Those that know no such path mostly say so in plain text.
    fn is_from_the_model(&self) -> bool {
        !self.codes.is_empty()
            || (self.message.as_deref()).is_some_and(|said| said.to_lowercase().contains("model"))
    }

    fn kind(&self, status: u16, retry_after: Option<Duration>) -> AgentErrorKind {
        match status {
            401 | 403 => AgentErrorKind::Unauthorized,
            429 => AgentErrorKind::Quota { retry_after },
            500..=599 => AgentErrorKind::Unreachable,
            _ => self.kind_by_code().unwrap_or(AgentErrorKind::Rejected),
        }
    }

    fn kind_by_code(&self) -> Option<AgentErrorKind> {
        self.codes.iter().find_map(|code| {
            Some(match code.as_str() {
                "invalid_api_key"
                | "authentication_error"
                | "permission_error"
                | "unauthorized" => AgentErrorKind::Unauthorized,
                "rate_limit_exceeded"
                | "rate_limit_error"
                | "insufficient_quota"
                | "requests"
                | "tokens" => AgentErrorKind::Quota { retry_after: None },
                "server_error"
                | "overloaded_error"
                | "service_unavailable"
                | "timeout"
                | "internal_server_error"
                | "unavailable_error" => AgentErrorKind::Unreachable,
                "invalid_request_error"
                | "context_length_exceeded"
                | "model_not_found"
                | "not_found_error"
                | "exceed_context_size_error" => AgentErrorKind::Rejected,
                _ => return None,
            })
        })
    }

    /// The codes, for the log.
    fn codes(&self) -> String {
        match self.codes.is_empty() {
            true => "without a code".to_owned(),
            false => self.codes.join(", "),
        }
    }
}

/// Whether this can only be a code, and quotes nothing.
fn is_code(said: &str) -> bool {
    let is_of_code = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=MAX_CODE_BYTES).contains(&said.len()) && said.bytes().all(is_of_code)
}
