//! The collector that spans are sent to: requests go through the HTTP client of the rest, and the log says once that it is away.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use adk_bridge_agents::trust;
use axum::http::{Request, Response};
use bytes::{Bytes, BytesMut};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;

use crate::metrics::SpanExports;

/// How much of an answer is read: it says at most how many spans were refused.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Sends requests of the exporter, which waits on a thread of its own, in the runtime of the server.
pub(super) struct Collector {
    http: reqwest::Client,
    runtime: Handle,
    exports: Arc<SpanExports>,
    is_away: Arc<AtomicBool>,
}

impl Collector {
    /// `is_local`: whether it is on this machine, where no proxy is asked.
    pub(super) fn new(
        limit: Duration,
        is_local: bool,
        exports: Arc<SpanExports>,
    ) -> reqwest::Result<Self> {
        let mut builder = trust::http_client()
            .timeout(limit)
            // The headers may contain secrets, which are for this server only.
            .redirect(reqwest::redirect::Policy::none());
        if is_local {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder.build()?,
            runtime: Handle::current(),
            exports,
            is_away: Arc::default(),
        })
    }

    /// Counts an attempt. What goes on for long is said once.
    fn note(&self, failure: Option<&str>) {
        self.exports.counted(failure.is_none());
        match failure {
            None if self.is_away.swap(false, Relaxed) => {
                tracing::info!("spans reach the collector again");
            }
            Some(why) if !self.is_away.swap(true, Relaxed) => {
                tracing::warn!(
                    "spans cannot be sent to the collector: {why}; the newest are dropped while the queue is full"
                );
            }
            None | Some(_) => {}
        }
    }
}

type Sending<'s> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 's>>;

impl HttpClient for Collector {
    fn send_bytes<'s, 'f>(&'s self, request: Request<Bytes>) -> Sending<'f>
    where
        's: 'f,
        Self: 'f,
    {
        let sending = self.runtime.spawn(send(self.http.clone(), request));
        Box::pin(async move {
            // Only the end of the runtime ends it early.
            let sent = sending.await.unwrap_or(Err("this server stops"));
            match &sent {
                Ok(response) if response.status().is_success() => self.note(None),
                Ok(response) => self.note(Some(&format!("it answers {}", response.status()))),
                Err(why) => self.note(Some(why)),
            }
            sent.map_err(HttpError::from)
        })
    }
}

/// An error is a phrase that follows "because", without the address: that may hold a password.
async fn send(
    http: reqwest::Client,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, &'static str> {
    let request = reqwest::Request::try_from(request).map_err(|_| "its address is not valid")?;
    let mut response = http.execute(request).await.map_err(|error| match error {
        error if error.is_timeout() => "it does not answer in time",
        _ => "it cannot be reached",
    })?;
    let mut body = BytesMut::new();
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(|_| "its answer breaks off")?
    {
        if body.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err("its answer is too long");
        }
        body.extend_from_slice(&piece);
    }
    let mut answer = Response::new(body.freeze());
    *answer.status_mut() = response.status();
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    Ok(answer)
}

impl fmt::Debug for Collector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Collector").finish_non_exhaustive()
    }
}
