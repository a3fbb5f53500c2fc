//! Whether replicas reach each other: each asks itself and the others for `/health`, under their advertised addresses.
//!
//! The question holds a random word, and the answer its HMAC under the key of the cluster and the name of the replica. So an
//! address that leads to another replica, to a replica of another cluster or to no bridge at all is noticed.

use std::collections::HashSet;
use std::time::Duration;

use axum::http::{HeaderName, Request, StatusCode, header};
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use url::Url;
use uuid::Uuid;

use super::{Cluster, Peer, Problem};

/// The header of the question, and of the answer.
pub const PROBE: HeaderName = HeaderName::from_static("x-adk-bridge-probe");

/// How long after a lease a replica that was not reached is asked again.
const SOON: Duration = Duration::from_secs(1);
/// How often a replica asks.
const LOOK: Duration = Duration::from_secs(10);
/// How long an answer may take: replicas are near each other.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an answer may take that somebody waits for.
const QUICKLY: Duration = Duration::from_secs(1);
/// The longest word of a question.
const MAX_WORD: usize = 64;

impl Cluster {
    /// The answer of this replica to a question.
    pub fn answer_probe(&self, word: &str) -> Option<String> {
        (word.len() <= MAX_WORD).then(|| answer(&self.key, &self.me().name, word))
    }

    /// Looks now and then whether this replica and the others can be reached, until the future is dropped.
    pub async fn look_around(&self) {
        // What fails once may be about to stop, or just starting.
        let mut failed: HashSet<String> = HashSet::new();
        loop {
            let me = self.me();
            let mut failing = HashSet::new();
            match self.probe(&me).await {
                Ok(()) => self.states.solved(Problem::OwnAddress),
                Err(_) if failing.insert(me.name.clone()) && !failed.contains(&me.name) => {}
                Err(why) => {
                    tracing::debug!(address = %me.address, why, "this replica does not reach itself");
                    let words = format!(
                        "this replica ({:?}) cannot be reached under its own address (server.advertise): {why}",
                        me.name
                    );
                    self.states.report(Problem::OwnAddress, words);
                }
            }
            for peer in self.peers() {
                let problem = Problem::Unreachable(peer.name.clone());
                match self.probe(&peer).await {
                    Ok(()) => self.states.solved(problem),
                    Err(_) if failing.insert(peer.name.clone()) && !failed.contains(&peer.name) => {
                    }
                    Err(why) => {
                        tracing::debug!(address = %peer.address, why, "a replica cannot be reached");
                        let words = format!(
                            "the replica {:?} cannot be reached from {:?} under its address (server.advertise): {why}",
                            peer.name, me.name
                        );
                        self.states.report(problem, words);
                    }
                }
            }
            // A replica that has died counts as living for a lease.
            let again = self.lease() + SOON;
            sleep(if failing.is_empty() { LOOK } else { again }).await;
            failed = failing;
        }
    }

    /// Whether a replica answers at the moment.
    pub async fn reaches(&self, peer: &Peer) -> bool {
        let asked = timeout(QUICKLY, self.probe(peer)).await;
        matches!(asked, Ok(Ok(())))
    }

    async fn probe(&self, peer: &Peer) -> Result<(), &'static str> {
        let word = Uuid::new_v4().simple().to_string();
        let answered = match timeout(PATIENCE, ask(&peer.address, &word)).await {
            Ok(answered) => answered?,
            Err(_) => return Err("it does not answer in time"),
        };
        // Both are of this process or of one that has the key; there is nothing to find out by timing.
        match answered == Some(answer(&self.key, &peer.name, &word)) {
            true => Ok(()),
            false => Err("what answers there is not this replica, or has another cluster.key"),
        }
    }
}

/// Asks for `/health`; returns the header of the answer.
async fn ask(address: &Url, word: &str) -> Result<Option<String>, &'static str> {
    let host = address.host_str().ok_or("the address has no host")?;
    let port = address.port_or_known_default().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port));
    let stream = stream.await.map_err(|_| "nothing listens there")?;
    let broken = |_| "what answers there does not speak HTTP";
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let request = Request::get(format!("{}/health", address.path().trim_end_matches('/')))
        .header(header::HOST, format!("{host}:{port}"))
        .header(PROBE, word)
        .body(axum::body::Body::empty())
        .map_err(|_| "the address cannot be asked")?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            _ => Err("what answers there is not healthy, or not a bridge"),
        }
    };
    let answer = tokio::select! {
        answer = answer => answer?,
        _ = connection => return Err("the connection broke"),
    };
    let header = answer
        .headers()
        .get(PROBE)
        .and_then(|value| value.to_str().ok());
    Ok(header.map(str::to_owned))
}

fn answer(key: &[u8], name: &str, word: &str) -> String {
    // HMAC takes a key of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return String::new();
    };
    mac.update(b"adk-bridge probe\n");
    mac.update(name.as_bytes());
    mac.update(b"\n");
    mac.update(word.as_bytes());
    let bytes = mac.finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
