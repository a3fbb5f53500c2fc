//! A crowd in one process: idle live sockets, open approvals, chats that stream at pace, and short turns beside them.
//!
//! If the streams wait too long, it finds out how many do not. `delay` is a small crowd: what a server adds to the way of a
//! delta, next to nginx.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::future::{join_all, try_join_all};
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::load::{Load, Size, count, verify};
use crate::reader::{Attempt, Reader};
use crate::server::{Kind, Server, Socket, Spent, allow_open_files, open_live};
use crate::stand_in::{Answer, PAY, PAYMENT, Pace, lock};
use crate::words::Tally;

const USAGE: &str =
    "usage: bench crowd [--idle N] [--approvals N] [--streams N] [--turns N] [--seconds N] [SERVER]...
       bench delay [--streams N] [--seconds N] [--rounds N] [SERVER]...

  SERVER         adk-bridge by default, of `delay` nginx and translator, too; these two have no sockets and no approvals
  --idle N       idle live sockets (10,000)
  --approvals N  chats that wait for an approval (2,000)
  --streams N    chats that stream 30 deltas a second (2,000, of `delay` 200)
  --turns N      short turns a second in addition (200)
  --seconds N    how long the streams last (20)
  --rounds N     measure every server N times, in turns, and take the medians (3)";

/// 30 deltas per second.
const PACE: Duration = Duration::from_micros(33_333);
const SHORT_DELTAS: usize = 20;
/// How many sockets are opened at once: fewer than wait in the queue of a listening socket.
const OPENED_AT_ONCE: usize = 64;
/// The first deltas of a stream come while others begin.
const BEGINNING: usize = 30;
/// All streams have begun after a second.
const BEGUN: Duration = Duration::from_secs(2);
/// Descriptors besides those of the crowd.
const OTHER_FILES: usize = 1_000;
/// How many seconds of short turns may run at once. On a server that has too much to do they pile up, and more are refused.
const TURNS_AT_ONCE: usize = 5;

/// What idle live sockets may take.
const MOST_IDLE: (usize, f64) = (10_000, 250.0);
/// What a delta may take on its way, for all but one of a hundred.
const MOST_DELAY: Duration = Duration::from_millis(50);
/// How much more than in nginx that may be where there is no crowd.
const MOST_MORE_DELAY: f64 = 2.0;
/// How long streams last while their largest number is searched, and how exactly it is found.
const SEARCH_SECONDS: usize = 10;
const SEARCH_STEPS: usize = 40;
/// A core that is used so much is what everything else waits for.
const FULL: f64 = 0.9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Crowd {
    idle: usize,
    approvals: usize,
    streams: usize,
    turns: usize,
    seconds: usize,
}

/// What the members of a crowd take that do nothing.
#[derive(Debug, Clone, Copy)]
struct Resting {
    /// Megabytes of a server that has nobody.
    empty: f64,
    idle_kilobytes: Option<f64>,
    approval_kilobytes: Option<f64>,
}

/// What a crowd took while it was busy, and how long its members waited.
struct Seen {
    streams: usize,
    stream_kilobytes: f64,
    deltas_per_second: f64,
    peak: f64,
    cores: f64,
    load_cores: f64,
    delays: Vec<Duration>,
    first_chunks: Vec<Duration>,
    refused: usize,
}

/// A server with those of a crowd who do nothing.
struct Venue {
    load: Rc<Load>,
    server: Rc<Server>,
    crowd: Crowd,
    sockets: Vec<Socket>,
    resting: Resting,
}

pub(crate) async fn run(words: &[&str]) -> anyhow::Result<()> {
    let full = Crowd {
        idle: 10_000,
        approvals: 2_000,
        streams: 2_000,
        turns: 200,
        seconds: 20,
    };
    let (wanted, mut kinds, _) = read(full, words)?;
    if kinds.is_empty() {
        kinds.push(Kind::Bridge);
    }
    let crowd = wanted.fitting(allow_open_files(wanted.files())?)?;
    if crowd != wanted {
        println!(
            "this machine allows too few open files (ulimit -Hn) for {} idle sockets, which take {}: there are {}",
            wanted.idle,
            wanted.files(),
            crowd.idle
        );
    }
    let mut problems = Vec::new();
    for kind in kinds {
        problems.extend(LocalSet::new().run_until(of_server(&kind, crowd)).await?);
    }
    ensure!(problems.is_empty(), problems.join("; "));
    Ok(())
}

/// Measures one server, and returns what should not be so.
async fn of_server(kind: &Kind, crowd: Crowd) -> anyhow::Result<Vec<String>> {
    let name = kind.name();
    let venue = Venue::open(kind, crowd).await?;
    println!(
        "\n{name}: {} idle live sockets, {} open approvals, {} streams of 30 deltas a second, {} short turns a second; every \
         answer was compared.\n",
        crowd.idle, crowd.approvals, crowd.streams, crowd.turns
    );
    let mut problems = Vec::new();
    if let Some(kilobytes) = venue.resting.idle_kilobytes {
        let (number, most) = MOST_IDLE;
        let all = venue.resting.empty + kilobytes * count(number) / 1024.0;
        println!("| memory | |\n|---|--:|");
        println!("| of an idle live socket, kB | {kilobytes:.1} |");
        println!("| of a server with 10,000 of them, MB | {all:.0} |");
        // Few sockets say little of many: what a server takes once is divided by them.
        if all >= most && crowd.idle >= number / 4 {
            problems.push(format!("{number} idle sockets take {all:.0} MB of {most}"));
        }
        if let Some(kilobytes) = venue.resting.approval_kilobytes {
            println!("| of an open approval, kB | {kilobytes:.1} |");
        }
    }
    let mut seen = vec![venue.stage(crowd.streams, crowd.seconds).await?];
    if crowd.has_sockets(kind) {
        println!(
            "| of a chat that streams, kB | {:.1} |",
            seen[0].stream_kilobytes
        );
    }
    println!("\n{}", Seen::HEAD);
    println!("{}", seen[0].line());
    if !seen[0].holds() {
        venue.search(&mut seen).await?;
    }
    venue.close().await?;
    Ok(problems)
}

/// What servers add to the way of a delta, in turns.
pub(crate) async fn delay(words: &[&str]) -> anyhow::Result<()> {
    let few = Crowd {
        idle: 0,
        approvals: 0,
        streams: 200,
        turns: 0,
        seconds: 20,
    };
    let (crowd, mut kinds, rounds) = read(few, words)?;
    if kinds.is_empty() {
        kinds.extend([Kind::Nginx, Kind::Translator, Kind::Bridge]);
    }
    let files = crowd.files();
    ensure!(
        allow_open_files(files)? >= files,
        "{files} open files are needed: raise `ulimit -n`"
    );
    let mut measured = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for (kind, delays) in kinds.iter().zip(&mut measured) {
            let once = async {
                let venue = Venue::open(kind, crowd).await?;
                venue.stage(crowd.streams, crowd.seconds).await
            };
            let seen = LocalSet::new().run_until(once).await?;
            delays.push([0.5, 0.99].map(|share| millis(&seen.delays, share)));
        }
    }
    println!(
        "\nFrom the model to the reader, {} turns of 30 deltas a second, medians of {rounds} rounds.\n\n\
         | delay of a delta, ms | p50 | p99 |\n|---|--:|--:|",
        crowd.streams
    );
    let mut p99 = Vec::new();
    for (kind, delays) in kinds.iter().zip(&measured) {
        let [p50, last] = [0, 1].map(|column| median(delays.iter().map(|it| it[column])));
        println!("| {} | {p50:.2} | {last:.2} |", kind.name());
        p99.push(last);
    }
    let of = |wanted: &Kind| {
        kinds
            .iter()
            .position(|kind| kind == wanted)
            .map(|it| p99[it])
    };
    if let (Some(nginx), Some(bridge)) = (of(&Kind::Nginx), of(&Kind::Bridge)) {
        let more = bridge - nginx;
        println!(
            "\np99 is {more:+.2} ms from that of nginx; at most {MOST_MORE_DELAY} ms more are meant"
        );
        ensure!(more <= MOST_MORE_DELAY, "the bridge holds deltas up");
    }
    Ok(())
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The crowd, its servers, and the number of rounds.
fn read(mut crowd: Crowd, words: &[&str]) -> anyhow::Result<(Crowd, Vec<Kind>, usize)> {
    let mut kinds = Vec::new();
    let mut rounds = 3;
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut number = || {
            let number = words.next().and_then(|number| number.parse().ok());
            number.context(USAGE)
        };
        match word {
            "--idle" => crowd.idle = number()?,
            "--approvals" => crowd.approvals = number()?,
            "--streams" => crowd.streams = number()?,
            "--turns" => crowd.turns = number()?,
            "--seconds" => crowd.seconds = number()?,
            "--rounds" => rounds = number()?,
            "--also" => kinds.push(Kind::Other(words.next().context(USAGE)?.into())),
            name => {
                let kind = Kind::KNOWN.into_iter().find(|kind| kind.name() == name);
                kinds.push(kind.context(USAGE)?);
            }
        }
    }
    ensure!(crowd.streams > 0 && crowd.seconds > 2 && rounds > 0, USAGE);
    for kind in &kinds {
        if let Some(obstacle) = kind.obstacle() {
            bail!("{}: {obstacle}", kind.name());
        }
    }
    Ok((crowd, kinds, rounds))
}

impl Crowd {
    /// How many turns may run at once.
    fn turns_at_once(&self) -> usize {
        self.streams + self.turns * TURNS_AT_ONCE + OPENED_AT_ONCE
    }

    /// How many connections the server must allow: sockets may be three quarters of them.
    fn connections(&self) -> usize {
        let for_sockets = self.idle * 4 / 3 + OPENED_AT_ONCE;
        for_sockets.max(self.idle + self.turns_at_once())
    }

    /// How many open files the busier of both processes must be allowed. This one has both ends of the streams; the bridge sets
    /// two aside for every connection, and one with a quarter for every turn.
    fn files(&self) -> usize {
        let load = self.idle + 2 * self.turns_at_once();
        let bridge = 2 * self.connections() + self.turns_at_once() * 5 / 4;
        load.max(bridge) + OTHER_FILES
    }

    /// The same with as many idle sockets as so many open files allow.
    fn fitting(mut self, files: usize) -> anyhow::Result<Self> {
        let needed = Self { idle: 0, ..self }.files();
        ensure!(
            needed <= files,
            "{needed} open files are needed, and {files} are allowed: raise `ulimit -n`, or ask for less"
        );
        let wanted = self.idle;
        let is_too_many = |idle: &usize| {
            Self {
                idle: *idle,
                ..self
            }
            .files()
                > files
        };
        self.idle = (0..=wanted)
            .rev()
            .step_by(100)
            .find(|idle| !is_too_many(idle))
            .unwrap_or(0);
        Ok(self)
    }

    fn has_sockets(&self, kind: &Kind) -> bool {
        self.idle > 0 && kind.is_bridge()
    }
}

impl Venue {
    /// Starts a server, and has those come who do nothing.
    async fn open(kind: &Kind, crowd: Crowd) -> anyhow::Result<Self> {
        let load = Rc::new(Load::new(Size::QUICK).await?);
        let mut keys = vec![
            ("LIMITS__CONNECTIONS", crowd.connections().to_string()),
            ("LIMITS__TURNS", crowd.turns_at_once().to_string()),
            ("SERVER__MAX_SOCKETS", crowd.connections().to_string()),
        ];
        if crowd.approvals > 0 {
            keys.push(("AGENT__TOOLS", format!("[\"{PAYMENT}\"]")));
            keys.push(("APPROVAL__TIMEOUT", "1h".to_owned()));
        }
        let server = Rc::new(Server::start_configured(kind, load.stand_in, &keys)?);
        load.flood(SHORT_DELTAS);
        // Connections, statements and memory are created on first use.
        for _ in 0..10 {
            turn(&load, &server).await?;
        }
        let empty = settled(&server).await?;
        let per = |more: f64, number: usize| more.max(0.0) * 1024.0 / count(number.max(1));
        let mut venue = Self {
            load,
            server,
            crowd,
            sockets: Vec::new(),
            resting: Resting {
                empty,
                idle_kilobytes: None,
                approval_kilobytes: None,
            },
        };
        let mut before = empty;
        if crowd.has_sockets(kind) {
            venue.sockets = venue.open_sockets().await?;
            let now = settled(&venue.server).await?;
            venue.resting.idle_kilobytes = Some(per(now - before, crowd.idle));
            before = now;
        }
        if crowd.approvals > 0 && kind.is_bridge() {
            venue.open_approvals().await?;
            let now = settled(&venue.server).await?;
            venue.resting.approval_kilobytes = Some(per(now - before, crowd.approvals));
        }
        Ok(venue)
    }

    async fn open_sockets(&self) -> anyhow::Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        for first in (0..self.crowd.idle).step_by(OPENED_AT_ONCE) {
            let numbers = first..self.crowd.idle.min(first + OPENED_AT_ONCE);
            let opened = numbers.map(|number| {
                let address = self.server.address;
                async move { open_live(address, &format!("idle-{number}")).await }
            });
            sockets.extend(try_join_all(opened).await?);
        }
        Ok(sockets)
    }

    /// Has chats ask whether a tool may run; their answers have come when this is done.
    async fn open_approvals(&self) -> anyhow::Result<()> {
        let clients = (0..OPENED_AT_ONCE).map(|client| async move {
            let mut reader = Reader::connect(self.server.address, self.server.shape, false).await?;
            for _ in (client..self.crowd.approvals).step_by(OPENED_AT_ONCE) {
                let body = self
                    .load
                    .post_question(self.server.shape, &self.load.id(), 0, PAY);
                verify(reader.turn(&body, None).await?, Tally::of_question())?;
            }
            anyhow::Ok(())
        });
        try_join_all(clients).await?;
        Ok(())
    }

    /// So many chats stream for so long, with short turns beside them.
    async fn stage(&self, streams: usize, seconds: usize) -> anyhow::Result<Seen> {
        let (load, server) = (&self.load, &self.server);
        let before = server.resident()?;
        let delays = Rc::new(RefCell::new(Vec::new()));
        let streaming: Vec<_> = (0..streams)
            .map(|number| {
                let stream = stream(
                    load.clone(),
                    server.clone(),
                    (streams, seconds),
                    number,
                    delays.clone(),
                );
                tokio::task::spawn_local(stream)
            })
            .collect();
        sleep(BEGUN).await;
        let with_streams = server.resident()?;
        let mut own = Spent::default();
        own.look(std::process::id())?;
        let (cpu, own_cpu, began) = (server.cpu()?, own.used().micros, Instant::now());
        let seen_before = delays.borrow().len();
        let end = began + Duration::from_secs(seconds as u64).saturating_sub(BEGUN);
        let mut turns = Vec::new();
        if self.crowd.turns > 0 {
            let mut ticks = interval(Duration::from_secs(1) / u32::try_from(self.crowd.turns)?);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            while ticks.tick().await < end {
                let (load, server) = (load.clone(), server.clone());
                turns.push(tokio::task::spawn_local(async move {
                    turn(&load, &server).await
                }));
            }
        } else {
            sleep_until(end).await;
        }
        own.look(std::process::id())?;
        let passed = began.elapsed().as_secs_f64();
        let cores = (server.cpu()? - cpu) / 1e6 / passed;
        let load_cores = (own.used().micros - own_cpu) / 1e6 / passed;
        let deltas_per_second = count(delays.borrow().len() - seen_before) / passed;
        for stream in join_all(streaming).await {
            stream??;
        }
        let (mut first_chunks, mut refused) = (Vec::new(), 0);
        for turn in join_all(turns).await {
            match turn?? {
                Some(first) => first_chunks.push(first),
                None => refused += 1,
            }
        }
        let mut delays = delays.take();
        delays.sort_unstable();
        first_chunks.sort_unstable();
        Ok(Seen {
            streams,
            stream_kilobytes: (with_streams - before).max(0.0) * 1024.0 / count(streams),
            deltas_per_second,
            peak: server.peak()?,
            cores,
            load_cores,
            delays,
            first_chunks,
            refused,
        })
    }

    /// Finds the largest number of streams that do not wait too long, and says what the others wait for.
    async fn search(&self, seen: &mut Vec<Seen>) -> anyhow::Result<()> {
        let exact = (self.crowd.streams / SEARCH_STEPS).max(1);
        let (mut holds, mut fails) = (0, self.crowd.streams);
        let mut best: Option<usize> = None;
        while fails - holds > exact {
            let streams = (holds + fails) / 2;
            settled(&self.server).await?;
            let stage = self.stage(streams, SEARCH_SECONDS).await?;
            println!("{}", stage.line());
            match stage.holds() {
                true => (holds, best) = (streams, Some(seen.len())),
                false => fails = streams,
            }
            seen.push(stage);
        }
        let most = MOST_DELAY.as_millis();
        match best.map(|it| &seen[it]) {
            Some(best) => println!(
                "\nmost streams with a p99 of less than {most} ms: {}, {:.0} deltas a second",
                best.streams, best.deltas_per_second
            ),
            None => println!("\nno number of streams has a p99 of less than {most} ms"),
        }
        let beyond = seen
            .iter()
            .filter(|it| !it.holds())
            .min_by_key(|it| it.streams);
        if let Some(beyond) = beyond {
            println!(
                "what {} streams wait for: {}",
                beyond.streams,
                beyond.bound()
            );
        }
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        for mut socket in self.sockets {
            // An idle socket that was closed would have cost nothing.
            socket
                .close(None)
                .await
                .context("an idle socket was lost")?;
        }
        Ok(())
    }
}

impl Seen {
    const HEAD: &str = "| streams | deltas/s | delay of a delta, ms: p50 | p99 | worst | short turns | refused | first chunk of one, ms: p50 | \
         p99 | cores of the server | of load and model | peak RSS, MB |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|";

    fn line(&self) -> String {
        let [delay, late, worst] = [0.5, 0.99, 1.0].map(|share| millis(&self.delays, share));
        let [first, late_first] = [0.5, 0.99].map(|share| millis(&self.first_chunks, share));
        format!(
            "| {} | {:.0} | {delay:.1} | {late:.1} | {worst:.1} | {} | {} | {first:.1} | {late_first:.1} | {:.2} | {:.2} | {:.0} |",
            self.streams,
            self.deltas_per_second,
            self.first_chunks.len(),
            self.refused,
            self.cores,
            self.load_cores,
            self.peak,
        )
    }

    /// Whether deltas come soon enough, and short turns are not refused.
    fn holds(&self) -> bool {
        at(&self.delays, 0.99).is_some_and(|late| late < MOST_DELAY)
    }

    fn bound(&self) -> String {
        let of =
            |what: &str, cores: f64| format!("the core of {what}, {:.0} % used", cores * 100.0);
        match (self.cores >= FULL, self.load_cores >= FULL) {
            (true, true) => format!(
                "{} (and {})",
                of("the server", self.cores),
                of("load and model", self.load_cores)
            ),
            (true, false) => of("the server", self.cores),
            (false, true) => format!(
                "{}, not the server ({:.0} %)",
                of("load and model", self.load_cores),
                self.cores * 100.0
            ),
            (false, false) => format!(
                "neither core: the server used {:.0} % of its own, load and model {:.0} %",
                self.cores * 100.0,
                self.load_cores * 100.0
            ),
        }
    }
}

fn millis(sorted: &[Duration], share: f64) -> f64 {
    at(sorted, share).map_or(f64::NAN, |it| it.as_secs_f64() * 1e3)
}

/// One chat that streams at pace; adds how long each of its later deltas took from the model to the reader.
async fn stream(
    load: Rc<Load>,
    server: Rc<Server>,
    (streams, seconds): (usize, usize),
    number: usize,
    delays: Rc<RefCell<Vec<Duration>>>,
) -> anyhow::Result<()> {
    // Start at different times, as users do.
    sleep(Duration::from_secs(1) * u32::try_from(number)? / u32::try_from(streams)?).await;
    let answer = Answer {
        deltas: seconds * 30,
        pace: Pace::Every(PACE),
    };
    let (question, sent) = load.script.add_stream(&number.to_string(), answer);
    let reader = Reader::connect(server.address, server.shape, false).await?;
    let mut read = 0;
    let mut reader = reader.telling(move |deltas| {
        let now = Instant::now();
        let mut sent = lock(&sent);
        while read < deltas {
            read += 1;
            if let Some(sent) = sent.pop_front().filter(|_| read > BEGINNING) {
                delays.borrow_mut().push(now - sent);
            }
        }
    });
    let chat = load.id();
    let tally = reader
        .turn(&load.post_question(server.shape, &chat, 0, &question), None)
        .await?;
    verify(tally, Tally::expected(answer.deltas))
}

/// A short turn in a new chat, by a client that has no connection yet; returns how long its first chunk took, unless it was
/// refused because there are too many.
async fn turn(load: &Load, server: &Server) -> anyhow::Result<Option<Duration>> {
    let began = Instant::now();
    let first = Arc::new(std::sync::Mutex::new(None));
    let reader = Reader::connect(server.address, server.shape, false).await?;
    let noted = first.clone();
    let mut reader = reader.telling(move |deltas| {
        if deltas > 0 {
            lock(&noted).get_or_insert_with(|| began.elapsed());
        }
    });
    let body = load.post_question(server.shape, &load.id(), 0, "Tell me something.");
    match reader.attempt(&body, None).await? {
        Attempt::Answered(tally) => verify(tally, Tally::expected(SHORT_DELTAS))?,
        Attempt::Refused(refused) if refused.status == 503 => return Ok(None),
        Attempt::Refused(refused) => bail!("not how a turn too many is refused: {refused:?}"),
    }
    let first = lock(&first).take();
    first.context("an answer without a delta").map(Some)
}

/// The memory of a server that has nothing to do.
async fn settled(server: &Server) -> anyhow::Result<f64> {
    sleep(Duration::from_secs(3)).await;
    server.resident()
}

/// The value below which this share of the others lies.
pub(crate) fn at(sorted: &[Duration], share: f64) -> Option<Duration> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is a place, or one after the last"
    )]
    let place = (count(sorted.len()) * share) as usize;
    sorted.get(place.min(sorted.len().checked_sub(1)?)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL_CROWD: Crowd = Crowd {
        idle: 10_000,
        approvals: 2_000,
        streams: 2_000,
        turns: 200,
        seconds: 20,
    };

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let sorted: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        for (share, millis) in [(0.5, 51), (0.99, 100), (1.0, 100)] {
            assert_eq!(at(&sorted, share), Some(Duration::from_millis(millis)));
        }
        assert_eq!(at(&[], 0.5), None);
    }

    #[test]
    fn numbers_make_a_crowd() {
        let (crowd, kinds, rounds) =
            read(FULL_CROWD, &["--idle", "5", "--streams", "7", "translator"]).unwrap();
        assert_eq!((crowd.idle, crowd.streams, crowd.turns), (5, 7, 200));
        assert_eq!((kinds, rounds), (vec![Kind::Translator], 3));
        for words in [&["--idle"][..], &["--streams", "0"], &["apache"]] {
            assert!(read(FULL_CROWD, words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn as_many_sockets_are_idle_as_there_may_be() {
        for (files, idle) in [
            (1 << 20, Some(10_000..=10_000)),
            (20_000, Some(3_000..=9_000)),
            (1_024, None),
        ] {
            let fitting = FULL_CROWD.fitting(files);
            assert_eq!(fitting.is_ok(), idle.is_some(), "{files}");
            if let (Ok(crowd), Some(idle)) = (fitting, idle) {
                assert!(idle.contains(&crowd.idle), "{crowd:?}");
                assert!(crowd.files() <= files, "{crowd:?}");
            }
        }
    }

    #[test]
    fn what_is_full_bounds_a_crowd() {
        let seen = |cores, load_cores, delay| Seen {
            streams: 1,
            stream_kilobytes: 0.0,
            deltas_per_second: 30.0,
            peak: 0.0,
            cores,
            load_cores,
            delays: vec![Duration::from_millis(delay)],
            first_chunks: Vec::new(),
            refused: 0,
        };
        for (cores, load_cores, words) in [
            (0.99, 0.5, "the core of the server"),
            (0.5, 0.99, "the core of load and model"),
            (0.5, 0.5, "neither"),
        ] {
            assert!(seen(cores, load_cores, 60).bound().starts_with(words));
        }
        assert!(seen(1.0, 1.0, 49).holds() && !seen(1.0, 1.0, 50).holds());
    }
}
