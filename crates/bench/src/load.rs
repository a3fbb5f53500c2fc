//! The load on a server, and the measured costs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::reader::{Reader, Shape, Stall};
use crate::server::{Kind, Server, Used};
use crate::stand_in::{self, Answer, Pace, Script};
use crate::words::Tally;

const CONNECTIONS: usize = 8;
const FLOOD_DELTAS: usize = 1_000;
const SHORT_DELTAS: usize = 20;
const LONG_DELTAS: usize = 4_000;
/// 30 deltas per second, a typical rate in production.
const PACE: Duration = Duration::from_micros(33_333);
const PACED_TURNS: usize = 10;
/// Of all paced turns together.
pub(crate) const PACED_PER_SECOND: f64 = 300.0;
/// A server is at rest if it uses less CPU time than this in one look, as often as that in a row: half a percent of a core,
/// and several times what a replica does all the time. Chats leave the memory of the bridge two seconds after their last turn,
/// which belongs to the cost of the turn, and not to that of what is measured next.
const REST_MICROS: f64 = 2_500.0;
/// How long a server is looked at that has nothing to do: several of the heartbeats of a replica.
const IDLE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 5;
/// The lengths of histories, in messages before the question.
const HISTORIES: [usize; 2] = [2, 400];
const LARGE_DELTAS: usize = 200_000;
/// Shorter than the time after which a server may disconnect its reader.
const STALL: Stall = Stall {
    after: LARGE_DELTAS / 10,
    pause: Duration::from_secs(20),
};

/// The amount of load. A scenario should use at least a second of CPU time: what a machine does otherwise varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    flood_turns: usize,
    short_turns: usize,
    paced_deltas: usize,
    history_turns: usize,
    large: bool,
}

impl Size {
    pub(crate) const FULL: Self = Self {
        flood_turns: 100,
        short_turns: 250,
        paced_deltas: 600,
        history_turns: 8,
        large: true,
    };
    pub(crate) const QUICK: Self = Self {
        flood_turns: 50,
        short_turns: 120,
        paced_deltas: 240,
        history_turns: 4,
        large: false,
    };

    /// The same for a server that takes ten times as long for everything.
    fn of(self, kind: &Kind) -> Self {
        match kind.is_slow() {
            true => Self {
                flood_turns: 5,
                short_turns: 20,
                paced_deltas: 240,
                history_turns: 1,
                ..self
            },
            false => self,
        }
    }
}

/// The costs of a server: CPU in microseconds, memory in megabytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    pub(crate) flood: f64,
    pub(crate) paced: f64,
    pub(crate) short_turn: f64,
    /// Switches between threads, per delta and per turn.
    pub(crate) paced_switches: f64,
    pub(crate) short_turn_switches: f64,
    /// Per delta, for each of the histories, if the server is sent any.
    pub(crate) history: Option<[f64; 2]>,
    /// Per second, of a server that has nothing to do.
    pub(crate) idle_cpu: f64,
    pub(crate) idle: f64,
    pub(crate) peak: f64,
    pub(crate) large: Option<Large>,
}

/// How much memory grows during one large answer, and how much a stalled reader adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Large {
    pub(crate) steady: f64,
    pub(crate) stalled: f64,
}

pub(crate) struct Load {
    size: Size,
    pub(crate) script: Arc<Script>,
    pub(crate) stand_in: SocketAddr,
    ids: AtomicU64,
}

impl Load {
    pub(crate) async fn new(size: Size) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let stand_in = listener.local_addr()?;
        let script = Arc::new(Script::new());
        tokio::spawn(stand_in::serve(listener, script.clone()));
        Ok(Self {
            size,
            script,
            stand_in,
            ids: AtomicU64::new(0),
        })
    }

    pub(crate) async fn measure(&self, kind: &Kind) -> anyhow::Result<Measured> {
        let server = Server::start(kind, self.stand_in)?;
        let idle = server.resident()?;
        let say = |what: &str| println!("{}: {what}", kind.name());
        say("flood");
        // A first run does not count: connections, statements and memory are created on first use.
        self.fresh_chats(&server, CONNECTIONS, 5, FLOOD_DELTAS)
            .await?;
        let size = self.size.of(kind);
        let turns = size.flood_turns;
        let flood = self
            .fresh_chats(&server, CONNECTIONS, turns, FLOOD_DELTAS)
            .await?;
        let flood = flood / count(CONNECTIONS * turns * FLOOD_DELTAS);
        say("short turns");
        let turns = size.short_turns;
        let short_turn = self
            .fresh_chats(&server, CONNECTIONS, turns, SHORT_DELTAS)
            .await?;
        let short_turn = short_turn / count(CONNECTIONS * turns);
        say("paced");
        let deltas = size.paced_deltas;
        let paced = self.paced(&server, deltas).await? / count(PACED_TURNS * deltas);
        let history = if server.shape.takes_history() {
            say("histories");
            let mut history = [0.0; 2];
            for (cost, length) in history.iter_mut().zip(HISTORIES) {
                *cost = self.per_delta(&server, length, size.history_turns).await?;
            }
            Some(history)
        } else {
            None
        };
        say("nothing to do");
        let idle_cpu = idle_cpu(&server).await?;
        let peak = server.peak()?;
        drop(server);
        let large = if self.size.large {
            say("a large answer, then one whose reader stops");
            let steady = self.large(kind, None).await?;
            Some(Large {
                steady,
                stalled: self.large(kind, Some(STALL)).await? - steady,
            })
        } else {
            None
        };
        Ok(Measured {
            flood: flood.micros,
            paced: paced.micros,
            short_turn: short_turn.micros,
            paced_switches: paced.switches,
            short_turn_switches: short_turn.switches,
            history,
            idle_cpu,
            idle,
            peak,
            large,
        })
    }

    /// Turns back to back on every connection, each in a new chat. Returns what the server used until it was at rest.
    async fn fresh_chats(
        &self,
        server: &Server,
        connections: usize,
        turns: usize,
        deltas: usize,
    ) -> anyhow::Result<Used> {
        self.flood(deltas);
        let expected = Tally::expected(deltas);
        let before = server.used()?;
        try_join_all((0..connections).map(|_| async {
            let mut reader = Reader::connect(server.address, server.shape, false).await?;
            for _ in 0..turns {
                let chat = self.id();
                let _claim = server.claim(&chat).await?;
                let body = self.post(server.shape, &chat, 0);
                verify(reader.turn(&body, None).await?, expected)?;
            }
            anyhow::Ok(())
        }))
        .await?;
        rest(server).await?;
        Ok(server.used()? - before)
    }

    async fn paced(&self, server: &Server, deltas: usize) -> anyhow::Result<Used> {
        self.script.set(Answer {
            deltas,
            pace: Pace::Every(PACE),
        });
        let expected = Tally::expected(deltas);
        let before = server.used()?;
        try_join_all((0..PACED_TURNS).map(|turn| async move {
            // Start at different times, as users do.
            tokio::time::sleep(PACE * u32::try_from(turn)? / u32::try_from(PACED_TURNS)?).await;
            let mut reader = Reader::connect(server.address, server.shape, false).await?;
            let chat = self.id();
            let _claim = server.claim(&chat).await?;
            verify(
                reader
                    .turn(&self.post(server.shape, &chat, 0), None)
                    .await?,
                expected,
            )
        }))
        .await?;
        let spent = server.used()? - before;
        rest(server).await?;
        Ok(spent)
    }

    /// The cost of a delta in a chat with a history: the difference between long and short turns, which excludes the
    /// fixed cost of a turn.
    async fn per_delta(
        &self,
        server: &Server,
        history: usize,
        turns: usize,
    ) -> anyhow::Result<f64> {
        let chats: Vec<String> = (0..CONNECTIONS).map(|_| self.id()).collect();
        self.in_chats(server, &chats, history, 1, SHORT_DELTAS)
            .await?;
        let short = self
            .in_chats(server, &chats, history, turns, SHORT_DELTAS)
            .await?;
        let long = self
            .in_chats(server, &chats, history, turns, LONG_DELTAS)
            .await?;
        Ok((long - short) / count(CONNECTIONS * turns * (LONG_DELTAS - SHORT_DELTAS)))
    }

    async fn in_chats(
        &self,
        server: &Server,
        chats: &[String],
        history: usize,
        turns: usize,
        deltas: usize,
    ) -> anyhow::Result<f64> {
        self.flood(deltas);
        let expected = Tally::expected(deltas);
        let before = server.cpu()?;
        try_join_all(chats.iter().map(|chat| async move {
            let _claim = server.claim(chat).await?;
            let mut reader = Reader::connect(server.address, server.shape, false).await?;
            for _ in 0..turns {
                verify(
                    reader
                        .turn(&self.post(server.shape, chat, history), None)
                        .await?,
                    expected,
                )?;
            }
            anyhow::Ok(())
        }))
        .await?;
        Ok(server.cpu()? - before)
    }

    /// The largest growth of a fresh server's memory during one large answer.
    async fn large(&self, kind: &Kind, stall: Option<Stall>) -> anyhow::Result<f64> {
        let server = Server::start(kind, self.stand_in)?;
        self.fresh_chats(&server, 1, 3, FLOOD_DELTAS).await?;
        self.flood(LARGE_DELTAS);
        let before = server.resident()?;
        let mut reader = Reader::connect(server.address, server.shape, stall.is_some()).await?;
        let chat = self.id();
        let _claim = server.claim(&chat).await?;
        let tally = reader
            .turn(&self.post(server.shape, &chat, 0), stall)
            .await?;
        verify(tally, Tally::expected(LARGE_DELTAS))?;
        Ok(server.peak()? - before)
    }

    /// Turns one after the other, each in a new chat. Returns how long the longest took.
    pub(crate) async fn one_by_one(
        &self,
        server: &Server,
        turns: usize,
        answer: Answer,
        stall: Option<Stall>,
    ) -> anyhow::Result<Duration> {
        self.script.set(answer);
        let expected = Tally::expected(answer.deltas);
        let reader = Reader::connect(server.address, server.shape, false).await?;
        let script = self.script.clone();
        let mut reader = reader.telling(move |deltas| script.note_read(deltas));
        let mut longest = Duration::ZERO;
        for _ in 0..turns {
            let chat = self.id();
            let _claim = server.claim(&chat).await?;
            let body = self.post(server.shape, &chat, 0);
            let began = Instant::now();
            verify(reader.turn(&body, stall).await?, expected)?;
            longest = longest.max(began.elapsed());
        }
        Ok(longest)
    }

    pub(crate) fn flood(&self, deltas: usize) {
        self.script.set(Answer {
            deltas,
            pace: Pace::Flood,
        });
    }

    /// A request as `useChat` sends it: the whole history, and a question.
    fn post(&self, shape: Shape, chat: &str, history: usize) -> String {
        self.post_question(shape, chat, history, "Tell me everything about bridges.")
    }

    /// The same with another question. An ADK server is asked as its clients do it, who do not send the history.
    pub(crate) fn post_question(
        &self,
        shape: Shape,
        chat: &str,
        history: usize,
        question: &str,
    ) -> String {
        if shape == Shape::Adk {
            let message = json!({"role": "user", "parts": [{"text": question}]});
            return json!({
                "appName": "bench", "userId": "bench", "sessionId": chat, "newMessage": message, "streaming": true,
            })
            .to_string();
        }
        let mut messages: Vec<Value> = (0..history)
            .map(|index| {
                let role = if index % 2 == 0 { "user" } else { "assistant" };
                let text = "What was said before is sent to the model again with every question. "
                    .repeat(4);
                message(&format!("{chat}-{index}"), role, &text)
            })
            .collect();
        messages.push(message(&self.id(), "user", question));
        json!({"id": chat, "trigger": "submit-message", "messages": messages}).to_string()
    }

    pub(crate) fn id(&self) -> String {
        format!("bench{:011}", self.ids.fetch_add(1, Ordering::Relaxed))
    }
}

/// The CPU time of each second of a server that has nothing to do.
async fn idle_cpu(server: &Server) -> anyhow::Result<f64> {
    rest(server).await?;
    let (before, began) = (server.cpu()?, Instant::now());
    tokio::time::sleep(IDLE).await;
    Ok((server.cpu()? - before) / began.elapsed().as_secs_f64())
}

/// Waits until a server has nothing more to do.
pub(crate) async fn rest(server: &Server) -> anyhow::Result<()> {
    let mut quiet = 0;
    while quiet < LOOKS {
        let before = server.cpu()?;
        tokio::time::sleep(LOOK).await;
        quiet = match server.cpu()? - before {
            used if used <= REST_MICROS => quiet + 1,
            _ => 0,
        };
    }
    Ok(())
}

fn message(id: &str, role: &str, text: &str) -> Value {
    json!({"id": id, "role": role, "parts": [{"type": "text", "text": text}]})
}

pub(crate) fn verify(got: Tally, expected: Tally) -> anyhow::Result<()> {
    ensure!(
        got == expected,
        "an answer is not whole: {} deltas came, {} were sent, or their text differs",
        got.deltas,
        expected.deltas
    );
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts are far below what a float holds exactly"
)]
pub(crate) fn count(number: usize) -> f64 {
    number as f64
}
