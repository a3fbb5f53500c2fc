//! Keeps one MCP server connected: starts it, lists its tools, and starts it again when it has ended.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::reply::ToolAnswer;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationCapability,
    ErrorData, FormElicitationCapability, Implementation, ProtocolVersion, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, InboundStreamOrigin, NotificationContext,
    RequestContext, RoleClient, RunningService, serve_client_with_lifecycle,
};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::ending::Ending;
use super::http::Place;
use super::questions::{RunningCalls, result_of};
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
const LIST_PAUSE: Duration = Duration::from_secs(1);

/// A way to a server that has been opened as far as that can be done at once.
pub(super) struct Way {
    transport: Opened,
    /// Where the reason will be found why the connection ended.
    ending: Ending,
    calls: Arc<RunningCalls>,
}

enum Opened {
    Child(Box<ChildTransport>),
    Http(Place),
}

impl Way {
    /// Starts the program, or checks the address.
    pub(super) fn open(settings: &McpSettings) -> Result<Self, McpError> {
        let (ending, calls) = (Ending::default(), Arc::<RunningCalls>::default());
        let transport = match &settings.access {
            Access::Command { command, args, env } => {
                let (ending, calls) = (ending.clone(), calls.clone());
                ChildTransport::start(&settings.name, command, args, env, ending, calls)
                    .map(|child| Opened::Child(Box::new(child)))
                    .map_err(|source| McpError::Command {
                        command: command.clone(),
                        source,
                    })?
            }
            Access::Url { url, headers } => Opened::Http(Place::new(url, headers)?),
        };
        Ok(Self {
            transport,
            ending,
            calls,
        })
    }

    /// Introduces the bridge to the server.
    async fn connect(self, client: Client, era: Era) -> Result<Running, ClientInitializeError> {
        let how = era.lifecycle();
        match self.transport {
            Opened::Child(child) => serve_client_with_lifecycle(client, *child, how).await,
            Opened::Http(place) => {
                let transport = place.transport(self.ending, self.calls);
                serve_client_with_lifecycle(client, transport, how).await
            }
        }
    }
}

/// How a server is spoken with. One that knows both ways is spoken with in the older one: there, and only there, its tools can
/// ask while they run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    /// Up to protocol version 2025-11-25: both introduce themselves first.
    Introduced,
    /// From 2026-07-28 on: every request stands alone, and a call ends with its questions.
    Alone,
}

impl Era {
    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Introduced => ClientLifecycleMode::Initialize,
            Self::Alone => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        }
    }
}

/// Keeps the server connected until it is asked to stop.
pub(super) async fn run(shared: Arc<Shared>, first: Way, stopped: watch::Receiver<bool>) {
    let mut stopped = stopped;
    let mut way = Ok(first);
    let mut pause = FIRST_PAUSE;
    let mut era = Era::Introduced;
    loop {
        let began = Instant::now();
        let ended = match way {
            Ok(way) => connected(&shared, way, era, &mut stopped).await,
            Err(error) => End::Failed(McpError::to_string(&error)),
        };
        let reason = match ended {
            End::Stopped => return,
            End::Refused(_) if era == Era::Introduced => {
                era = Era::Alone;
                way = Way::open(&shared.settings);
                continue;
            }
            End::Refused(reason) => {
                era = Era::Introduced;
                reason
            }
            End::Failed(reason) => reason,
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
    /// It answers that it does not want to be spoken with in this way.
    Refused(String),
    /// With the reason.
    Failed(String),
}

/// One connection, from its beginning to its end.
async fn connected(
    shared: &Arc<Shared>,
    way: Way,
    era: Era,
    stopped: &mut watch::Receiver<bool>,
) -> End {
    let calls = way.calls.clone();
    let client = Client::new(shared.name(), calls.clone());
    let changed = client.changed.clone();
    let ending = way.ending.clone();
    let because = |other: String| ending.reason().unwrap_or(other);
    let opening = timeout(START_TIME, way.connect(client, era));
    let opened = tokio::select! {
        () = asked(stopped) => return End::Stopped,
        opened = opening => opened,
    };
    let running = match opened {
        Ok(Ok(running)) => running,
        Ok(Err(error @ ClientInitializeError::JsonRpcError(_))) => {
            return End::Refused(words_of(&error));
        }
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
        calls,
    };
    let peer = &connection.peer;
    let listing = timeout(LIST_TIME, listing::tools(peer));
    let listed = tokio::select! {
        () = asked(stopped) => return End::Stopped,
        listed = listing => listed,
    };
    let listed = match listed {
        Ok(Ok(list)) => list,
        Ok(Err(reason)) => return End::Failed(because(reason)),
        Err(_) => return End::Failed("it does not list its tools".to_owned()),
    };
    listing::offer(shared, &listed, Some(connection.clone()));
    let mut offered = listed.digest;
    drop(listed);
    shared.tried.send_replace(true);
    // In the older way a server tells by itself that its list has changed.
    let mut changes = match era {
        Era::Introduced => None,
        Era::Alone => {
            let wanted = SubscriptionFilter::builder().tools_list_changed().build();
            let changes = timeout(LIST_TIME, peer.listen(wanted)).await;
            changes.ok().and_then(Result::ok)
        }
    };
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
            news = async {
                match &mut changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            } => if !matches!(news, Ok(Some(_))) {
                changes = None;
                continue;
            },
        }
        match timeout(LIST_TIME, listing::tools(peer)).await {
            // A server may say without end that its list has changed.
            Ok(Ok(list)) if list.digest == offered => {}
            Ok(Ok(list)) => {
                listing::offer(shared, &list, None);
                offered = list.digest;
            }
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

/// The bridge as an MCP client. It can ask users with a form; it has no model and no files for servers.
struct Client {
    server: String,
    changed: Arc<Notify>,
    calls: Arc<RunningCalls>,
}

impl Client {
    fn new(server: &str, calls: Arc<RunningCalls>) -> Self {
        Self {
            server: server.to_owned(),
            changed: Arc::default(),
            calls,
        }
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let this = Implementation::new("adk-bridge", env!("CARGO_PKG_VERSION"));
        let mut can = ClientCapabilities::default();
        // Not addresses to visit (`url`): who controls a server would choose where users go.
        let form = FormElicitationCapability::new();
        can.elicitation = Some(ElicitationCapability::new().with_form(form));
        ClientConfig::new(can, this).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let ElicitRequestParams::UrlElicitationParams { .. } = request {
            return Err(ErrorData::invalid_params(
                "this client declared forms only",
                None,
            ));
        }
        let origin = context.extensions.get::<InboundStreamOrigin>();
        let answer = tokio::select! {
            answer = self.calls.ask(&self.server, request, origin) => answer,
            () = context.ct.cancelled() => ToolAnswer::Cancelled,
        };
        Ok(result_of(answer))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
