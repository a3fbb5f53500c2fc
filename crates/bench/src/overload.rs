//! Four times more clients than a server may answer at once: whether those that it takes are served as if there were no others.
//!
//! First as many clients ask again and again as there may be turns, then four times as many, each for a minute. The rest must
//! be refused, with the name of the limit and when to come back; they come back far earlier. Fails if an answer is not whole, if
//! a refusal is another, if first chunks take more than twice as long, or if memory passes its ceiling.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep};

use crate::crowd::at;
use crate::load::{Load, Size, count, verify};
use crate::reader::{Attempt, Reader, Refused};
use crate::server::{Kind, Server};
use crate::stand_in::{Answer, Pace};
use crate::words::Tally;

const USAGE: &str = "usage: bench overload [--turns N] [--seconds N]

  --turns N    how many turns are allowed (32): so many clients at first, then four times as many
  --seconds N  how long each of both lasts (60)";

const TIMES: usize = 4;
/// How much longer first chunks may take among the others.
const MOST: f64 = 2.0;
/// Megabytes at which no turn begins: several times what so few turns need.
const CEILING: u32 = 256;
/// Two thirds of a second, at 30 deltas a second.
const ANSWER: Answer = Answer {
    deltas: 20,
    pace: Pace::AtOnceThen(Duration::from_micros(33_333)),
};
/// How long whoever is refused waits: much less than the refusal says.
const IMPATIENCE: Duration = Duration::from_millis(250);
/// Answers that do not count: connections, statements and memory are created on first use.
const FIRST_SECONDS: usize = 3;

/// What clients have seen who asked again and again.
#[derive(Default)]
struct Seen {
    first_chunks: Vec<Duration>,
    refused: usize,
    /// Of the server, in cores.
    cpu: f64,
}

pub(crate) async fn run(words: &[&str]) -> anyhow::Result<()> {
    let (turns, seconds) = read(words)?;
    let load = Load::new(Size::QUICK).await?;
    load.script.set(ANSWER);
    let ceiling = u64::from(CEILING) * 1024 * 1024;
    let limits = [
        ("LIMITS__TURNS", turns.to_string()),
        ("LIMITS__MEMORY_BYTES", ceiling.to_string()),
    ];
    let server = Server::start_configured(&Kind::Bridge, load.stand_in, &limits)?;
    ask(&load, &server, turns, (turns, FIRST_SECONDS)).await?;
    println!(
        "{turns} clients for {seconds} seconds, then {}",
        TIMES * turns
    );
    let alone = ask(&load, &server, turns, (turns, seconds)).await?;
    let crowded = ask(&load, &server, turns, (TIMES * turns, seconds)).await?;
    let peak = server.peak()?;
    println!(
        "\nEvery answer was whole. First chunks in ms; CPU of the server in ms per second.\n\n\
         | clients | turns | refused | first chunk, median | p95 | p99 | CPU |\n\
         |--:|--:|--:|--:|--:|--:|--:|"
    );
    for (clients, seen) in [(turns, &alone), (TIMES * turns, &crowded)] {
        let [median, p95, p99] = [0.5, 0.95, 0.99].map(|share| seen.millis(share));
        println!(
            "| {clients} | {} | {} | {median:.1} | {p95:.1} | {p99:.1} | {:.0} |",
            seen.first_chunks.len(),
            seen.refused,
            seen.cpu * 1e3
        );
    }
    let ratios = [0.5, 0.95].map(|share| crowded.millis(share) / alone.millis(share));
    println!(
        "\nratio of the medians {:.2}, of p95 {:.2}; peak {peak:.0} MB of {CEILING} MB",
        ratios[0], ratios[1]
    );
    ensure!(
        alone.refused == 0,
        "as many clients as are allowed were refused"
    );
    ensure!(
        crowded.refused > 0,
        "nobody was refused, so nothing was overloaded"
    );
    ensure!(
        ratios.iter().all(|ratio| *ratio <= MOST),
        "first chunks take more than {MOST} times as long among the others"
    );
    ensure!(
        peak < f64::from(CEILING),
        "the memory of the server has passed its ceiling"
    );
    Ok(())
}

fn read(words: &[&str]) -> anyhow::Result<(usize, usize)> {
    let (mut turns, mut seconds) = (32, 60);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let number = words.next().and_then(|number| number.parse().ok());
        match *word {
            "--turns" => turns = number.context(USAGE)?,
            "--seconds" => seconds = number.context(USAGE)?,
            _ => anyhow::bail!(USAGE),
        }
    }
    ensure!(turns > 0 && seconds > 0, USAGE);
    Ok((turns, seconds))
}

/// Has clients ask again and again, and finish what they have begun.
async fn ask(
    load: &Load,
    server: &Server,
    allowed: usize,
    (clients, seconds): (usize, usize),
) -> anyhow::Result<Seen> {
    let (cpu, began) = (server.cpu()?, Instant::now());
    let end = began + Duration::from_secs(seconds as u64);
    let seen = Rc::new(RefCell::new(Seen::default()));
    try_join_all((0..clients).map(|number| {
        let seen = seen.clone();
        async move {
            // Start at different times, as users do.
            let part = u32::try_from(number)? * 1_000 / u32::try_from(clients)?;
            sleep(Duration::from_millis(part.into())).await;
            while Instant::now() < end {
                let asked = Instant::now();
                let first = Rc::new(RefCell::new(None));
                let noted = first.clone();
                let reader = Reader::connect(server.address, server.shape, false).await?;
                let mut reader = reader.telling(move |deltas| {
                    if deltas > 0 {
                        noted.borrow_mut().get_or_insert_with(|| asked.elapsed());
                    }
                });
                let body = load.post_question(server.shape, &load.id(), 0, "Tell me something.");
                match reader.attempt(&body, None).await? {
                    Attempt::Answered(tally) => {
                        verify(tally, Tally::expected(ANSWER.deltas))?;
                        let first = first.take().context("an answer without a delta")?;
                        seen.borrow_mut().first_chunks.push(first);
                    }
                    Attempt::Refused(refused) => {
                        check(&refused, allowed)?;
                        seen.borrow_mut().refused += 1;
                        sleep(IMPATIENCE).await;
                    }
                }
            }
            anyhow::Ok(())
        }
    }))
    .await?;
    let mut seen = seen.take();
    seen.first_chunks.sort_unstable();
    seen.cpu = (server.cpu()? - cpu) / 1e6 / began.elapsed().as_secs_f64();
    Ok(seen)
}

/// A refusal says which limit it is, and when to come back.
fn check(refused: &Refused, allowed: usize) -> anyhow::Result<()> {
    let names_limit = refused.text.contains(&format!("limits.turns = {allowed}"));
    ensure!(
        refused.status == 503 && names_limit && refused.retry_after.is_some_and(|it| it > 0),
        "not how a turn too many is refused: {refused:?}"
    );
    Ok(())
}

impl Seen {
    fn millis(&self, share: f64) -> f64 {
        at(&self.first_chunks, share).map_or(count(0), |it| it.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_refusal_is_one() {
        let refused = |status, retry_after, text: &str| Refused {
            status,
            retry_after,
            text: text.to_owned(),
        };
        assert!(check(&refused(503, Some(2), "busy (limits.turns = 8)"), 8).is_ok());
        for wrong in [
            refused(500, Some(2), "busy (limits.turns = 8)"),
            refused(503, None, "busy (limits.turns = 8)"),
            refused(503, Some(0), "busy (limits.turns = 8)"),
            refused(503, Some(2), "busy"),
        ] {
            assert!(check(&wrong, 8).is_err(), "{wrong:?}");
        }
    }
}
