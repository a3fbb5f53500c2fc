//! A crowd in one process: idle live sockets, chats that stream at pace, and short turns beside them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::future::{join_all, try_join_all};
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::load::{Load, Size, count, verify};
use crate::reader::Reader;
use crate::server::{Kind, Server, allow_open_files, open_live};
use crate::stand_in::{Answer, Pace, lock};
use crate::words::Tally;

const USAGE: &str =
    "usage: bench crowd [--idle N] [--streams N] [--turns N] [--seconds N] [SERVER]...

  SERVER       adk-bridge by default; nginx and translator have no idle sockets
  --idle N     idle live sockets (10,000)
  --streams N  chats that stream 30 deltas a second (2,000)
  --turns N    short turns a second in addition (200)
  --seconds N  how long the streams last (20)";

/// 30 deltas per second.
const PACE: Duration = Duration::from_micros(33_333);
const SHORT_DELTAS: usize = 20;
/// How many sockets are opened at once: fewer than wait in the queue of a listening socket.
const OPENED_AT_ONCE: usize = 64;
/// The first deltas of a stream come while others begin.
const BEGINNING: usize = 30;
/// Descriptors besides those of the crowd.
const OTHER_FILES: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Crowd {
    idle: usize,
    streams: usize,
    turns: usize,
    seconds: usize,
}

/// What a crowd took, and how long its members waited.
struct Seen {
    idle_kilobytes: Option<f64>,
    stream_kilobytes: f64,
    peak: f64,
    cores: f64,
    delays: Vec<Duration>,
    first_chunks: Vec<Duration>,
}

pub(crate) async fn run(words: &[&str]) -> anyhow::Result<()> {
    let (crowd, kinds) = read(words)?;
    // A stream has two connections, and this process has the other ends of both, and those of the idle sockets.
    let files = crowd.idle + 2 * (crowd.streams + crowd.turns) + OTHER_FILES;
    let allowed = allow_open_files(files)?;
    ensure!(
        allowed >= files,
        "{files} open files are needed, and {allowed} are allowed: raise `ulimit -n`, or ask for less"
    );
    println!(
        "\n{} idle live sockets, {} streams of 30 deltas a second, {} short turns a second; every answer was compared.\n\n\
         | server | kB per idle socket | kB per stream | peak RSS, MB | cores | delay of a delta, ms: p50 | p99 | worst | \
         first chunk of a short turn, ms: p50 | p99 | turns |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        crowd.idle, crowd.streams, crowd.turns
    );
    for kind in kinds {
        if let Some(obstacle) = kind.obstacle() {
            bail!("{}: {obstacle}", kind.name());
        }
        let load = Rc::new(Load::new(Size::QUICK).await?);
        let mut seen = LocalSet::new()
            .run_until(gather(load, &kind, crowd))
            .await?;
        println!("{}", line(&kind.name(), &mut seen));
    }
    Ok(())
}

fn read(words: &[&str]) -> anyhow::Result<(Crowd, Vec<Kind>)> {
    let mut crowd = Crowd {
        idle: 10_000,
        streams: 2_000,
        turns: 200,
        seconds: 20,
    };
    let mut kinds = Vec::new();
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut number = || {
            let number = words.next().and_then(|number| number.parse().ok());
            number.context(USAGE)
        };
        match word {
            "--idle" => crowd.idle = number()?,
            "--streams" => crowd.streams = number()?,
            "--turns" => crowd.turns = number()?,
            "--seconds" => crowd.seconds = number()?,
            "--also" => kinds.push(Kind::Other(words.next().context(USAGE)?.into())),
            name => {
                let kind = Kind::KNOWN.into_iter().find(|kind| kind.name() == name);
                kinds.push(kind.context(USAGE)?);
            }
        }
    }
    ensure!(crowd.streams > 0 && crowd.seconds > 1, USAGE);
    if kinds.is_empty() {
        kinds.push(Kind::Bridge);
    }
    Ok((crowd, kinds))
}

async fn gather(load: Rc<Load>, kind: &Kind, crowd: Crowd) -> anyhow::Result<Seen> {
    let server = Rc::new(Server::start(kind, load.stand_in)?);
    load.flood(SHORT_DELTAS);
    // Connections, statements and memory are created on first use.
    for _ in 0..10 {
        turn(&load, &server).await?;
    }
    let empty = settled(&server).await?;
    let has_sockets = !matches!(kind, Kind::Nginx | Kind::Translator);
    let mut sockets = Vec::new();
    if has_sockets {
        for first in (0..crowd.idle).step_by(OPENED_AT_ONCE) {
            let numbers = first..crowd.idle.min(first + OPENED_AT_ONCE);
            let opened = numbers.map(|number| {
                let address = server.address;
                async move { open_live(address, &format!("idle-{number}")).await }
            });
            sockets.extend(try_join_all(opened).await?);
        }
    }
    let with_sockets = settled(&server).await?;
    let delays = Rc::new(RefCell::new(Vec::new()));
    let streams: Vec<_> = (0..crowd.streams)
        .map(|number| {
            let stream = stream(load.clone(), server.clone(), crowd, number, delays.clone());
            tokio::task::spawn_local(stream)
        })
        .collect();
    // All of them have begun after a second.
    sleep(Duration::from_secs(2)).await;
    let with_streams = server.resident()?;
    let (cpu, began) = (server.cpu()?, Instant::now());
    let end =
        began + Duration::from_secs(crowd.seconds as u64).saturating_sub(Duration::from_secs(2));
    let mut turns = Vec::new();
    if crowd.turns > 0 {
        let mut ticks = interval(Duration::from_secs(1) / u32::try_from(crowd.turns)?);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while ticks.tick().await < end {
            let (load, server) = (load.clone(), server.clone());
            turns.push(tokio::task::spawn_local(async move {
                turn(&load, &server).await
            }));
        }
    } else {
        tokio::time::sleep_until(end).await;
    }
    let cores = (server.cpu()? - cpu) / 1e6 / began.elapsed().as_secs_f64();
    for stream in join_all(streams).await {
        stream??;
    }
    let mut first_chunks = Vec::new();
    for turn in join_all(turns).await {
        first_chunks.push(turn??);
    }
    for mut socket in sockets {
        // An idle socket that was closed would have cost nothing.
        socket
            .close(None)
            .await
            .context("an idle socket was lost")?;
    }
    let per = |more: f64, number: usize| more.max(0.0) * 1024.0 / count(number.max(1));
    Ok(Seen {
        idle_kilobytes: (has_sockets && crowd.idle > 0)
            .then(|| per(with_sockets - empty, crowd.idle)),
        stream_kilobytes: per(with_streams - with_sockets, crowd.streams),
        peak: server.peak()?,
        cores,
        delays: delays.take(),
        first_chunks,
    })
}

/// One chat that streams at pace; adds how long each of its later deltas took from the model to the reader.
async fn stream(
    load: Rc<Load>,
    server: Rc<Server>,
    crowd: Crowd,
    number: usize,
    delays: Rc<RefCell<Vec<Duration>>>,
) -> anyhow::Result<()> {
    let part = u32::try_from(number)? % 1_000;
    // Start at different times, as users do.
    sleep(Duration::from_millis(part.into())).await;
    let answer = Answer {
        deltas: crowd.seconds * 30,
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
        .turn(&load.post_question(&chat, 0, &question), None)
        .await?;
    verify(tally, Tally::expected(answer.deltas))
}

/// A short turn in a new chat, by a client that has no connection yet; returns how long its first chunk took.
async fn turn(load: &Load, server: &Server) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let first = Arc::new(std::sync::Mutex::new(None));
    let reader = Reader::connect(server.address, server.shape, false).await?;
    let noted = first.clone();
    let mut reader = reader.telling(move |deltas| {
        if deltas > 0 {
            lock(&noted).get_or_insert_with(|| began.elapsed());
        }
    });
    let chat = load.id();
    let body = load.post_question(&chat, 0, "Tell me something.");
    verify(
        reader.turn(&body, None).await?,
        Tally::expected(SHORT_DELTAS),
    )?;
    let first = lock(&first).take();
    first.context("an answer without a delta")
}

/// The memory of a server that has nothing to do.
async fn settled(server: &Server) -> anyhow::Result<f64> {
    sleep(Duration::from_secs(3)).await;
    server.resident()
}

fn line(name: &str, seen: &mut Seen) -> String {
    seen.delays.sort_unstable();
    seen.first_chunks.sort_unstable();
    let idle = seen
        .idle_kilobytes
        .map_or("-".to_owned(), |it| format!("{it:.1}"));
    let millis = |sorted: &[Duration], share| match at(sorted, share) {
        Some(delay) => format!("{:.1}", delay.as_secs_f64() * 1e3),
        None => "-".to_owned(),
    };
    format!(
        "| {name} | {idle} | {:.1} | {:.0} | {:.2} | {} | {} | {} | {} | {} | {} |",
        seen.stream_kilobytes,
        seen.peak,
        seen.cores,
        millis(&seen.delays, 0.5),
        millis(&seen.delays, 0.99),
        millis(&seen.delays, 1.0),
        millis(&seen.first_chunks, 0.5),
        millis(&seen.first_chunks, 0.99),
        seen.first_chunks.len(),
    )
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
        let (crowd, kinds) = read(&["--idle", "5", "--streams", "7", "nginx"]).unwrap();
        assert_eq!((crowd.idle, crowd.streams, crowd.turns), (5, 7, 200));
        assert_eq!(kinds, [Kind::Nginx]);
        for words in [&["--idle"][..], &["--streams", "0"], &["apache"]] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
