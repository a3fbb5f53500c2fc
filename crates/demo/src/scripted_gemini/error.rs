//! Errors in Google's JSON form.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// How long a client that asked too often has to wait: short, because tests really wait.
const RETRY_DELAY: &str = "1s";

/// `{"error": {code, message, status, details?}}`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ApiError {
    code: u16,
    status: &'static str,
    message: String,
    details: Vec<Value>,
}

impl ApiError {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// A wrong field of a request, with the details that Google adds.
    pub(super) fn bad_field(field: &str, message: String) -> Self {
        let violation = match field {
            "" => json!({"description": message}),
            _ => json!({"field": field, "description": message}),
        };
        Self {
            details: vec![json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [violation],
            })],
            ..Self::invalid(message)
        }
    }

    pub(super) fn no_key() -> Self {
        Self::new(
            403,
            "Method doesn't allow unregistered callers (callers without established identity). Please use API Key \
             or other form of API consumer identity to call this API.",
        )
    }

    pub(super) fn bad_key() -> Self {
        Self {
            details: vec![json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
                "metadata": {"service": "generativelanguage.googleapis.com"},
            })],
            ..Self::invalid("API key not valid. Please pass a valid API key.")
        }
    }

    pub(super) fn no_model(version: &str, model: &str, method: &str) -> Self {
        Self::new(
            404,
            format!(
                "models/{model} is not found for API version {version}, or is not supported for {method}. Call \
                 ListModels to see the list of available models and their supported methods."
            ),
        )
    }

    /// Google's error for this code.
    pub(super) fn of_code(code: u16) -> Self {
        match code {
            400 => Self::invalid("Request contains an invalid argument."),
            401 => Self::new(
                401,
                "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other \
                 valid authentication credential.",
            ),
            403 => Self::new(403, "The caller does not have permission"),
            404 => Self::new(404, "Requested entity was not found."),
            429 => Self {
                details: vec![
                    json!({
                        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                        "violations": [{
                            "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
                            "quotaId": "GenerateRequestsPerMinutePerProjectPerModel",
                        }],
                    }),
                    json!({
                        "@type": "type.googleapis.com/google.rpc.RetryInfo",
                        "retryDelay": RETRY_DELAY,
                    }),
                ],
                ..Self::new(
                    429,
                    "You exceeded your current quota, please check your plan and billing details.",
                )
            },
            503 => Self::new(503, "The model is overloaded. Please try again later."),
            504 => Self::new(504, "The request timed out. Please try again."),
            _ => Self::new(
                code,
                "An internal error has occurred. Please retry or report.",
            ),
        }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn body(&self) -> Value {
        let mut error = json!({
            "code": self.code,
            "message": self.message,
            "status": self.status,
        });
        if !self.details.is_empty() {
            error["details"] = json!(self.details);
        }
        json!({ "error": error })
    }

    fn new(code: u16, message: impl Into<String>) -> Self {
        let status = match code {
            400 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            409 => "ABORTED",
            429 => "RESOURCE_EXHAUSTED",
            499 => "CANCELLED",
            501 => "UNIMPLEMENTED",
            503 => "UNAVAILABLE",
            504 => "DEADLINE_EXCEEDED",
            500..=599 => "INTERNAL",
            _ => "FAILED_PRECONDITION",
        };
        Self {
            code,
            status,
            message: message.into(),
            details: Vec::new(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = format!("{:#}\n", self.body());
        (status, [(header::CONTENT_TYPE, super::JSON)], json).into_response()
    }
}
