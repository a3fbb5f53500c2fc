//! The socket of a live connection: bounded in both directions, and silence is noticed.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};

use crate::error::AgentError;
use crate::trust;

/// A message that the other side has not taken by then will never arrive.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// After this much silence the other side is pinged, and after twice as much it is considered gone.
const SILENCE: Duration = Duration::from_secs(20);
/// How long closing may take: another connection may wait for the session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Small, since most connections are silent most of the time; a message may be longer.
const READ_BUFFER_BYTES: usize = 8 * 1024;
const WRITE_BUFFER_BYTES: usize = 8 * 1024;
/// What may wait for the socket: a picture and a second of audio.
const MAX_WRITE_BUFFER_BYTES: usize = 16 * 1024 * 1024;
/// The longest message that is read: some seconds of speech are half a megabyte.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// A close without a code, as when the connection is lost.
pub const NO_CODE: u16 = 1006;

/// One read of a connection.
#[derive(Debug)]
pub enum Read {
    Message(Bytes),
    /// Nothing came although something was due.
    Quiet,
    Closed {
        code: u16,
        reason: String,
    },
}

#[derive(Debug)]
pub(crate) struct LiveSocket {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    heard_at: Instant,
    asked: bool,
    /// When something is due; [`Read::Quiet`] reports that nothing has come.
    pub(crate) quiet_at: Option<Instant>,
}

impl LiveSocket {
    pub(crate) async fn open(request: Request) -> Result<Self, Error> {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_write_buffer_size(MAX_WRITE_BUFFER_BYTES)
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let (socket, _) =
            connect_async_tls_with_config(request, Some(config), true, trust::connector()).await?;
        Ok(Self {
            socket,
            heard_at: Instant::now(),
            asked: false,
            quiet_at: None,
        })
    }

    /// The next message. Cancel-safe. Nothing follows [`Read::Closed`].
    pub(crate) async fn read(&mut self) -> Read {
        loop {
            let deadline = self.heard_at + if self.asked { 2 * SILENCE } else { SILENCE };
            let quiet_at = self.quiet_at.unwrap_or(deadline);
            tokio::select! {
                biased;
                message = self.socket.next() => {
                    self.heard_at = Instant::now();
                    self.asked = false;
                    match message {
                        Some(Ok(Message::Text(text))) => return Read::Message(text.into()),
                        Some(Ok(Message::Binary(bytes))) => return Read::Message(bytes),
                        Some(Ok(Message::Close(frame))) => {
                            let (code, reason) = frame.map_or((NO_CODE, String::new()), |frame| {
                                (frame.code.into(), frame.reason.as_str().to_owned())
                            });
                            return Read::Closed { code, reason };
                        }
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Read::Closed { code: NO_CODE, reason: error.to_string() },
                        None => return Read::Closed { code: NO_CODE, reason: "the connection was cut".into() },
                    }
                }
                () = sleep_until(quiet_at), if self.quiet_at.is_some() => {
                    self.quiet_at = None;
                    return Read::Quiet;
                }
                () = sleep_until(deadline) => {
                    if self.asked {
                        return Read::Closed { code: NO_CODE, reason: "the live model does not respond any more".into() };
                    }
                    self.asked = true;
                    if let Err(error) = self.socket.send(Message::Ping(Bytes::new())).await {
                        return Read::Closed { code: NO_CODE, reason: error.to_string() };
                    }
                }
            }
        }
    }

    pub(crate) async fn write(&mut self, message: Vec<u8>) -> Result<(), AgentError> {
        // JSON that was just made is UTF-8.
        let text = String::from_utf8(message).map_err(|error| broken(&error.to_string()))?;
        match timeout(SEND_TIMEOUT, self.socket.send(Message::text(text))).await {
            Ok(Ok(())) => Ok(()),
            // The close frame that explains it is still to be read.
            Ok(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => Err(broken("it is closed")),
            Ok(Err(error)) => Err(broken(&error.to_string())),
            Err(_) => Err(broken("it does not read what is sent")),
        }
    }

    /// Closes without waiting for the other side.
    pub(crate) async fn close(mut self) {
        let _ = timeout(CLOSE_TIMEOUT, self.socket.close(None)).await;
    }

    /// Closes and waits a moment for the other side to close too.
    pub(crate) async fn hang_up(mut self) {
        let goodbye = async {
            let _ = self.socket.close(None).await;
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        let _ = timeout(CLOSE_TIMEOUT, goodbye).await;
    }
}

fn broken(detail: &str) -> AgentError {
    AgentError::unreachable("the connection to the live model broke", detail)
}
