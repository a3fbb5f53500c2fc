//! Connections: each is served as HTTP/1 by a task of its own, and let go when its client only pretends to ask.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a client may take from the end of one answer, or from its connection, to the end of the next request's head.
/// Browsers keep connections open for about as long; who sends a header now and then would keep one for ever.
pub const HEAD_TIME: Duration = Duration::from_secs(60);

/// How long to wait when no connection can be taken, most likely because too many are open.
const BREATHER: Duration = Duration::from_secs(1);

/// Serves until `stopped`, then takes no more connections and returns when the last one has ended.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    head_time: Duration,
    stopped: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_time);
    // Every connection holds a receiver as long as it lives.
    let (going, stays) = watch::channel(());
    let mut stopped = pin!(stopped);
    loop {
        let stream = tokio::select! {
            () = &mut stopped => break,
            stream = accept(&listener) => stream,
        };
        // Deltas are small and must not wait for each other.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection ended before it began");
            continue;
        }
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let mut stays = stays.clone();
        tokio::spawn(async move {
            let mut connection = pin!(connection.with_upgrades());
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                _ = stays.changed() => {
                    // What was asked is answered, and no more is taken.
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke");
            }
        });
    }
    drop((listener, stays));
    // Without a connection nobody listens.
    let _ = going.send(());
    going.closed().await;
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // The client's affair.
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "no connection can be taken; trying again in a moment");
                tokio::time::sleep(BREATHER).await;
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
            Duration::from_millis(100),
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
