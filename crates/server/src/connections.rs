//! Connections: each is served as HTTP/1 by its own task, and closed if its client neither asks nor reads for too long.

mod crowd;
mod places;
mod written_messages;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Sleep, timeout};

use crate::config::Current;
use crate::error::AppError;
pub use crowd::ConnectionPlace;
use crowd::{CountedStream, Crowd};
pub(crate) use places::LOBBY;
use places::NotBegun;
pub use places::{Bounds, TooManyConnections};
pub use written_messages::WrittenMessages;

/// How long a client may take from opening the connection, or from the end of an answer, to the end of the next
/// request's head. Browsers keep connections open for about as long. Without this limit, a client that sends a header
/// now and then could keep one forever.
pub const HEAD_TIME: Duration = Duration::from_secs(60);

/// The longest head of a request, which may have 100 headers (hyper's own limit). Proxies allow 8 to 32 kB; it is also
/// the most of a body that is read at once.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// How long a connection stays open after its last answer, unless its place is needed, and how much is read meanwhile.
/// If a connection is closed while its client still sends, the client loses the answer.
const LINGERING: Duration = Duration::from_secs(1);
const MAX_UNREAD_BYTES: usize = 64 * 1024;
/// How much of that is read at once.
const UNREAD_PIECE_BYTES: usize = 4 * 1024;

/// Where a request comes from: the other end of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// How long to wait if no connection can be accepted, most likely because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The limits of connections.
#[derive(Debug, Clone)]
pub struct Terms {
    pub head_time: Duration,
    /// A client that reads nothing for this long is disconnected: otherwise the data for it would stay in memory as
    /// long as the client likes.
    pub write_stall: Duration,
    /// A reload may change them.
    pub bounds: Arc<Current<Bounds>>,
    /// The paths that report the state of the server; they are answered even if all connections are in use.
    pub informing: &'static [&'static str],
}

/// Serves until `stopped`, then accepts no more connections and returns when the last one has ended.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    terms: Terms,
    stopped: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(terms.head_time)
        .max_buf_size(MAX_HEAD_BYTES);
    let crowd = Crowd::new(terms.bounds.clone());
    // Every connection holds a receiver while it is open.
    let (going, stays) = watch::channel(());
    let mut stopped = pin!(stopped);
    loop {
        let entered = async {
            let (stream, peer) = accept(&listener).await;
            (stream, peer, crowd.enter(peer).await)
        };
        let (stream, peer, place) = tokio::select! {
            () = &mut stopped => break,
            entered = entered => entered,
        };
        let stream = CountedStream::new(Patient::new(stream, terms.write_stall), place.clone());
        // Deltas are small and must not wait for each other.
        if let Err(error) = stream.get_ref().stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection closed before it was set up");
            continue;
        }
        let service = Serving {
            inner: TowerToHyperService::new(router.clone()),
            place,
            peer,
            written: WrittenMessages::default(),
            informing: terms.informing,
        };
        tokio::spawn(serve_one(
            stream,
            service,
            http.clone(),
            terms.clone(),
            stays.clone(),
        ));
        // Leave a rush of newcomers in the system's queue: accepted at once, they would delay all requests in progress.
        tokio::task::yield_now().await;
    }
    drop((listener, stays));
    // Fails if no connection is open.
    let _ = going.send(());
    going.closed().await;
}

/// Serves a connection until it ends, has to leave, or the server stops.
async fn serve_one(
    stream: CountedStream<Patient>,
    service: Serving,
    http: http1::Builder,
    terms: Terms,
    mut stays: watch::Receiver<()>,
) {
    let place = service.place.clone();
    // A client that has sent nothing can be sent the reason, and needs no buffers.
    tokio::select! {
        biased;
        readable = timeout(terms.head_time, stream.get_ref().stream.readable()) => match readable {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        },
        () = place.is_asked_to_leave() => return turn_away(stream, terms.bounds.get().in_use, &place).await,
        _ = stays.changed() => return,
    }
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = connection.with_upgrades();
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = place.is_asked_to_leave() => {
            // A request that it begins is refused.
            Pin::new(&mut connection).graceful_shutdown();
            tokio::select! {
                biased;
                ended = timeout(LINGERING, &mut connection) => match ended {
                    Ok(ended) => ended,
                    Err(_) => return,
                },
                () = place.is_cut() => return,
            }
        }
        () = place.is_cut() => return,
        _ = stays.changed() => {
            // Requests in progress are answered, and no more are accepted.
            Pin::new(&mut connection).graceful_shutdown();
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
            return;
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
        // An answer that breaks off: its client is to notice at once.
        if error.is_user() {
            return;
        }
    }
    // An upgraded connection lives on.
    if let Some(parts) = connection.into_parts() {
        linger(parts.io.into_inner(), &place).await;
    }
}

/// Passes the requests of a connection to the router.
struct Serving {
    inner: TowerToHyperService<Router>,
    place: Arc<ConnectionPlace>,
    peer: Peer,
    written: WrittenMessages,
    informing: &'static [&'static str],
}

impl hyper::service::Service<Request<Incoming>> for Serving {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let informed = self.informing.contains(&request.uri().path());
        if let Err(why) = self.place.begins(informed) {
            let mut refusal = AppError::unavailable(match why {
                NotBegun::Parting => "the server needs this connection for another client (limits.connections); try again in a moment".to_owned(),
                NotBegun::Full => all_in_use(self.place.limit()),
            })
            .into_response();
            let close = HeaderValue::from_static("close");
            refusal.headers_mut().insert(header::CONNECTION, close);
            return Box::pin(std::future::ready(Ok(refusal)));
        }
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.written.clone());
        request.extensions_mut().insert(self.place.clone());
        let (answer, place) = (self.inner.call(request), self.place.clone());
        Box::pin(async move { Ok(place.until_answered(answer.await?)) })
    }
}

/// Sends the reason to a client that has not asked anything yet and whose place is needed.
async fn turn_away(mut stream: CountedStream<Patient>, limit: usize, place: &ConnectionPlace) {
    let body = format!(
        r#"{{"error":{{"code":"unavailable","message":"{}"}}}}"#,
        all_in_use(limit)
    );
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nx-error-code: unavailable\r\n\
         retry-after: 2\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // The system has room for it: nothing was written to this connection before.
    let written = timeout(LINGERING, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    });
    if matches!(written.await, Ok(Ok(()))) {
        linger(stream, place).await;
    }
}

fn all_in_use(limit: usize) -> String {
    format!(
        "all {limit} connections of the server are in use (limits.connections); try again in a moment"
    )
}

/// Reads what a client still sends after its last answer, until the client closes its end or the place is needed.
async fn linger(mut stream: CountedStream<Patient>, place: &ConnectionPlace) {
    place.parts();
    // On the heap: otherwise every idle connection would reserve it in its future.
    let mut unread = vec![0; UNREAD_PIECE_BYTES];
    let mut left = MAX_UNREAD_BYTES;
    let reading = async {
        while let Ok(read @ 1..) = stream.read(&mut unread).await {
            left = left.saturating_sub(read);
            if left == 0 {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        _ = timeout(LINGERING, reading) => {}
        () = place.is_cut() => {}
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, Peer(peer.ip())),
            // Only this client is affected.
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted; trying again in a moment");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// A stream that fails if a write makes no progress for too long, whether it writes an answer, a stream of events or a
/// WebSocket. It may stay idle as long as there is nothing to write.
struct Patient {
    stream: TcpStream,
    stall: Duration,
    /// Runs while a write is blocked.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, stall: Duration) -> Self {
        Self {
            stream,
            stall,
            waiting: None,
        }
    }

    fn wait<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let stall = self.stall;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read what is written to it",
        )))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wait(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.wait(context, written)
    }

    /// Without it hyper would copy every answer into one buffer.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// TCP has nothing to flush.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::{Notify, oneshot};

    use super::*;

    #[tokio::test]
    async fn a_head_that_never_ends_is_given_up_and_an_answer_that_takes_long_is_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(Notify::new());
        let done = answer.clone();
        let slow = || async move {
            done.notified().await;
            "done"
        };
        let router = Router::new().route("/slow", get(slow));
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(serve(
            listener,
            router,
            Terms {
                head_time: Duration::from_millis(100),
                write_stall: Duration::from_secs(30),
                bounds: Arc::new(Current::new(Bounds {
                    in_use: 100,
                    per_user: None,
                })),
                informing: &[],
            },
            async move { stopped.await.unwrap() },
        ));

        let mut waiting = TcpStream::connect(address).await.unwrap();
        waiting
            .write_all(b"GET /slow HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        for begun in ["", "GET /slow HTTP/1.1\r\nhost: he"] {
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(begun.as_bytes()).await.unwrap();
            let mut said = Vec::new();
            slow.read_to_end(&mut said).await.unwrap();
            let said = String::from_utf8(said).unwrap();
            assert!(
                said.is_empty() || said.starts_with("HTTP/1.1 408"),
                "{said}"
            );
        }
        answer.notify_one();
        let mut said = String::new();
        waiting.read_to_string(&mut said).await.unwrap();
        assert!(said.ends_with("done"), "{said}");

        stop.send(()).unwrap();
        serving.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
