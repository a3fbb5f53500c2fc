//! Keeps one MCP server connected: starts it, lists its tools, and starts it again when it has ended.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, NotificationContext, RoleClient, RunningService, serve_client,
};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::ending::Ending;
use super::http::Place;
use super::stdio::ChildTransport;
use super::{Access, Connection, McpError, McpSettings, Phase, Shared, listing};
use crate::error::shortened;

/// How long a server may take to introduce itself and list its tools. A launcher may have to download it first.
const START_TIME: Duration = Duration::from_secs(60);
/// How long it may take to list its tools again.
const LIST_TIME: Duration = Duration::from_secs(30);
/// The pause before it is started again; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After this time of work, the next pause is the first again.
const STEADY: Duration = Duration::from_secs(60);
/// How often a server can have its tools listed again.
const LIST_PAUSE: Duration = Duration::from_millis(100);

/// A way to a server that has been opened as far as that can be done at once.
pub(super) enum Way {
    Child(Box<ChildTransport>, Ending),
    Http(Place, Ending),
}

impl Way {
    /// Starts the program, or checks the address.
    pub(super) fn open(settings: &McpSettings) -> Result<Self, McpError> {
        match &settings.access {
            Access::Command { command, args, env } => {
                let ending = Ending::default();
                ChildTransport::start(&settings.name, command, args, env, ending.clone())
                    .map(|child| Self::Child(Box::new(child), ending))
                    .map_err(|source| McpError::Command {
                        command: command.clone(),
                        source,
                    })
            }
            Access::Url { url, headers } => {
                let place = Place::new(url, headers)?;
                Ok(Self::Http(place, Ending::default()))
            }
        }
    }

    /// Where the reason will be found why the connection ended.
    fn ending(&self) -> Ending {
        match self {
            Self::Child(_, ending) | Self::Http(_, ending) => ending.clone(),
        }
    }

    /// Introduces the bridge to the server.
    async fn connect(self, client: Client) -> Result<Running, ClientInitializeError> {
        match self {
            Self::Child(child, _) => serve_client(client, *child).await,
            Self::Http(place, ending) => serve_client(client, place.transport(ending)).await,
        }
    }
}

/// Keeps the server connected until it is asked to stop.
pub(super) async fn run(shared: Arc<Shared>, first: Way, stopped: watch::Receiver<bool>) {
    let mut stopped = stopped;
    let mut way = Ok(first);
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        let ended = match way {
            Ok(way) => connected(&shared, way, &mut stopped).await,
            Err(error) => End::Failed(McpError::to_string(&error)),
        };
        let End::Failed(reason) = ended else {
            return;
        };
        if began.elapsed() >= STEADY {
            pause = FIRST_PAUSE;
        }
        let name = shared.name();
        tracing::warn!(
            server = name,
            "the MCP server {name} is not available: {}; it is tried again in {pause:?}",
            shortened(&reason)
        );
        shared.change(|state| state.phase = Phase::Down { reason });
        shared.tried.send_replace(true);
        tokio::select! {
            () = asked(&mut stopped) => return,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
        way = Way::open(&shared.settings);
    }
}

enum End {
    Stopped,
    /// With the reason.
    Failed(String),
}

/// One connection, from its beginning to its end.
async fn connected(shared: &Arc<Shared>, way: Way, stopped: &mut watch::Receiver<bool>) -> End {
    let client = Client::default();
    let changed = client.changed.clone();
    let ending = way.ending();
    let because = |other: String| ending.reason().unwrap_or(other);
    let opening = timeout(START_TIME, way.connect(client));
    let opened = tokio::select! {
        () = asked(stopped) => return End::Stopped,
        opened = opening => opened,
    };
    let running = match opened {
        Ok(Ok(running)) => running,
        Ok(Err(error)) => return End::Failed(because(words_of(&error))),
        Err(_) => {
            let seconds = START_TIME.as_secs();
            return End::Failed(format!(
                "it does not introduce itself within {seconds} seconds"
            ));
        }
    };
    let connection = Connection {
        peer: running.peer().clone(),
        broken: Arc::default(),
    };
    let peer = &connection.peer;
    let listing = timeout(LIST_TIME, listing::tools(shared, peer));
    let listed = tokio::select! {
        () = asked(stopped) => return End::Stopped,
        listed = listing => listed,
    };
    let listed = match listed {
        Ok(Ok(tools)) => tools,
        Ok(Err(reason)) => return End::Failed(because(reason)),
        Err(_) => return End::Failed("it does not list its tools".to_owned()),
    };
    listing::offer(shared, listed, Some(connection.clone()));
    shared.tried.send_replace(true);
    let cancel = running.cancellation_token();
    let mut closed = std::pin::pin!(running.waiting());
    loop {
        tokio::select! {
            () = asked(stopped) => {
                cancel.cancel();
                // A program is given time to end.
                let _ = closed.await;
                return End::Stopped;
            }
            _ = &mut closed => return End::Failed(because("the connection ended".to_owned())),
            () = connection.broken.notified() => {
                return End::Failed(because("the connection failed".to_owned()));
            }
            () = changed.notified() => {}
        }
        match timeout(LIST_TIME, listing::tools(shared, peer)).await {
            Ok(Ok(tools)) => listing::offer(shared, tools, None),
            _ => {
                let name = shared.name();
                tracing::warn!(
                    server = name,
                    "the tools of the MCP server {name} have changed and cannot be listed"
                );
            }
        }
        sleep(LIST_PAUSE).await;
    }
}

/// Until the server is to be stopped.
async fn asked(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

type Running = RunningService<RoleClient, Client>;

/// Why a server could not be connected, without what it sent.
fn words_of(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it ended without an answer".to_owned(),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refuses the connection: {}", shortened(&error.message))
        }
        ClientInitializeError::TransportError { .. } => "it cannot be sent anything".to_owned(),
        _ => "its answer is not the one of an MCP server".to_owned(),
    }
}

/// The bridge as an MCP client. It can do nothing for servers: no model, no files, no questions to users.
#[derive(Default)]
struct Client {
    changed: Arc<Notify>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let this = Implementation::new("adk-bridge", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), this)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
