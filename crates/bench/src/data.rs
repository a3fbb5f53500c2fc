//! Start, lists and chats of a bridge with much in its store, next to one with a tenth of it: what is not asked for may not cost.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use futures_util::future::try_join_all;
use serde_json::Value;

use crate::load::{Load, Size, count, rest, verify};
use crate::reader::Reader;
use crate::server::{Kept, Kind, Server};
use crate::words::Tally;

const USAGE: &str = "usage: bench data [--chats N] [SERVER]...

  SERVER     adk-bridge and adk-bridge-postgres by default
  --chats N  how many chats of 100 messages the user of the larger store has (10,000)";

/// How much larger the larger store is.
const TIMES: usize = 10;
/// With the question and its answer.
const MESSAGES_PER_CHAT: usize = 100;
/// One chat of the larger store has this part of its number of chats as messages.
const LONG_CHAT: usize = 2;
/// How many ask at once while a store is filled.
const CLIENTS: usize = 8;
/// How often everything is asked for, and a server started.
const REQUESTS: usize = 40;
const STARTS: usize = 5;
/// How much more it may take to get the same from the larger store.
const MOST: f64 = 2.0;

/// The chats that are asked for by name.
const LONG: &str = "long";
const USUAL: &str = "usual";

/// What something takes.
struct Taken {
    what: &'static str,
    cpu_micros: f64,
    millis: f64,
}

/// What a store of one size takes.
struct Seen {
    messages: usize,
    taken: Vec<Taken>,
    read_megabytes: f64,
    resident: f64,
}

pub(crate) async fn run(words: &[&str]) -> anyhow::Result<()> {
    let (chats, kinds) = read(words)?;
    let load = Load::new(Size::QUICK).await?;
    let mut problems = Vec::new();
    for kind in kinds {
        if let Some(obstacle) = kind.obstacle() {
            println!("\n{}: not run: {obstacle}", kind.name());
            continue;
        }
        let small = measure(&load, &kind, chats / TIMES).await?;
        let large = measure(&load, &kind, chats).await?;
        println!("\n{}", table(&kind.name(), &small, &large));
        problems.extend(
            grown(&small, &large)
                .into_iter()
                .map(|what| format!("{}: {what}", kind.name())),
        );
    }
    ensure!(
        problems.is_empty(),
        "more than {MOST} times as much from {TIMES} times the data: {}",
        problems.join("; ")
    );
    Ok(())
}

fn read(words: &[&str]) -> anyhow::Result<(usize, Vec<Kind>)> {
    let mut chats = 10_000;
    let mut kinds = Vec::new();
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--chats" => {
                let number = words.next().and_then(|number| number.parse().ok());
                chats = number.context(USAGE)?;
            }
            "--also" => kinds.push(Kind::Other(words.next().context(USAGE)?.into())),
            name => match [Kind::Bridge, Kind::Postgres]
                .into_iter()
                .find(|kind| kind.name() == name)
            {
                Some(kind) => kinds.push(kind),
                None => bail!(USAGE),
            },
        }
    }
    // The list of the smaller store has a second page.
    ensure!(
        chats >= 500 * TIMES,
        "ask for {} chats or more",
        500 * TIMES
    );
    if kinds.is_empty() {
        kinds.extend([Kind::Bridge, Kind::Postgres]);
    }
    Ok((chats, kinds))
}

async fn measure(load: &Load, kind: &Kind, chats: usize) -> anyhow::Result<Seen> {
    let began = Instant::now();
    let server = Server::start(kind, load.stand_in)?;
    let messages = fill(load, &server, chats).await?;
    rest(&server).await?;
    println!(
        "{}: {messages} messages were stored in {:.0} s",
        kind.name(),
        began.elapsed().as_secs_f64()
    );
    let mut kept = server.end();
    let mut starts = Vec::new();
    for _ in 1..STARTS {
        let (server, taken) = start(load, kind, kept)?;
        starts.push(taken);
        kept = server.end();
    }
    let (server, last) = start(load, kind, kept)?;
    starts.push(last);
    starts.sort_by(|a, b| a.cpu_micros.total_cmp(&b.cpu_micros));
    let (read_megabytes, resident) = (server.read_megabytes()?, server.resident()?);
    let mut taken = vec![starts.swap_remove(STARTS / 2)];
    let client = Client {
        server: &server,
        http: reqwest::Client::new(),
    };
    let next = client.next_page().await?;
    for (what, path) in [
        ("first page of the list", Some("/api/chats".to_owned())),
        ("next page of the list", Some(next)),
        ("search for one title", client.search().await?),
        (
            "a chat of 100 messages",
            Some(format!("/api/chats/{USUAL}")),
        ),
    ] {
        if let Some(path) = path {
            taken.push(client.takes(what, &path, 1).await?);
        }
    }
    let (long, length) = (format!("/api/chats/{LONG}"), long_chat(chats));
    let of_long = client.takes("a message of a long chat", &long, length);
    taken.push(of_long.await?);
    taken.push(turns(load, &server).await?);
    Ok(Seen {
        messages,
        taken,
        read_megabytes,
        resident,
    })
}

/// How many messages the longest chat has.
fn long_chat(chats: usize) -> usize {
    chats / LONG_CHAT
}

/// Has the bridge take over conversations that it does not know. Returns the number of messages.
async fn fill(load: &Load, server: &Server, chats: usize) -> anyhow::Result<usize> {
    load.flood(1);
    let ask = async |reader: &mut Reader, chat: &str, messages: usize, title: &str| {
        let body = load.post_question(server.shape, chat, messages - 2, title);
        verify(reader.turn(&body, None).await?, Tally::expected(1))
    };
    let clients = (0..CLIENTS).map(|client| async move {
        let mut reader = Reader::connect(server.address, server.shape, false).await?;
        for number in (client..chats).step_by(CLIENTS) {
            let chat = format!("{chats}-{number}");
            ask(&mut reader, &chat, MESSAGES_PER_CHAT, "And then?").await?;
        }
        anyhow::Ok(())
    });
    try_join_all(clients).await?;
    let mut reader = Reader::connect(server.address, server.shape, false).await?;
    ask(&mut reader, USUAL, MESSAGES_PER_CHAT, "And then?").await?;
    ask(&mut reader, LONG, long_chat(chats), "And then?").await?;
    // Only this one has a title of its own.
    ask(&mut reader, "titled", 2, TITLE).await?;
    Ok(chats * MESSAGES_PER_CHAT + MESSAGES_PER_CHAT + long_chat(chats) + 2)
}

/// The title of one chat.
const TITLE: &str = "Where is the Firth of Forth?";

/// Starts a bridge on a store, and says what that took until it listened.
fn start(load: &Load, kind: &Kind, kept: Kept) -> anyhow::Result<(Server, Taken)> {
    let began = Instant::now();
    let server = Server::start_on(kind, load.stand_in, kept)?;
    let taken = Taken {
        what: "start",
        millis: began.elapsed().as_secs_f64() * 1e3,
        cpu_micros: server.cpu()?,
    };
    Ok((server, taken))
}

/// New chats on a store with many.
async fn turns(load: &Load, server: &Server) -> anyhow::Result<Taken> {
    load.flood(20);
    let mut reader = Reader::connect(server.address, server.shape, false).await?;
    let mut times = Vec::new();
    let before = server.cpu()?;
    for _ in 0..REQUESTS {
        let began = Instant::now();
        let body = load.post_question(server.shape, &load.id(), 0, "Tell me something.");
        verify(reader.turn(&body, None).await?, Tally::expected(20))?;
        times.push(began.elapsed());
    }
    rest(server).await?;
    Ok(Taken {
        what: "a turn in a new chat",
        cpu_micros: (server.cpu()? - before) / count(REQUESTS),
        millis: middle(times).as_secs_f64() * 1e3,
    })
}

struct Client<'s> {
    server: &'s Server,
    http: reqwest::Client,
}

impl Client<'_> {
    async fn get(&self, path: &str) -> anyhow::Result<(Option<String>, String)> {
        let url = format!("http://{}{path}", self.server.address);
        let response = self.http.get(url).send().await?.error_for_status()?;
        let link = response.headers().get("link");
        let link = link.and_then(|link| link.to_str().ok()).map(str::to_owned);
        Ok((link, response.text().await?))
    }

    async fn next_page(&self) -> anyhow::Result<String> {
        let (link, _) = self.get("/api/chats").await?;
        let link = link.context("the list of chats has one page")?;
        let path = link
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'));
        Ok(path.context("a link without an address")?.0.to_owned())
    }

    /// Where chats are searched by title, if they can be.
    async fn search(&self) -> anyhow::Result<Option<String>> {
        let path = "/api/chats?q=Firth%20of%20Forth";
        let (_, found) = self.get(path).await?;
        let found: Value = serde_json::from_str(&found)?;
        Ok((found.as_array().map(Vec::len) == Some(1)).then(|| path.to_owned()))
    }

    /// What a request takes, divided by how much it asks for.
    async fn takes(&self, what: &'static str, path: &str, of: usize) -> anyhow::Result<Taken> {
        self.get(path).await?;
        rest(self.server).await?;
        let mut times = Vec::new();
        let before = self.server.cpu()?;
        for _ in 0..REQUESTS {
            let began = Instant::now();
            self.get(path).await?;
            times.push(began.elapsed());
        }
        Ok(Taken {
            what,
            cpu_micros: (self.server.cpu()? - before) / count(REQUESTS * of),
            millis: middle(times).as_secs_f64() * 1e3 / count(of),
        })
    }
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn table(name: &str, small: &Seen, large: &Seen) -> String {
    let mut lines = vec![
        format!(
            "| {name} | {} messages: CPU µs | ms | {}: CPU µs | ms | ratio of the CPU |",
            small.messages, large.messages
        ),
        "|---|--:|--:|--:|--:|--:|".to_owned(),
    ];
    for (small, large) in small.taken.iter().zip(&large.taken) {
        lines.push(format!(
            "| {} | {:.0} | {:.2} | {:.0} | {:.2} | {:.2} |",
            small.what,
            small.cpu_micros,
            small.millis,
            large.cpu_micros,
            large.millis,
            large.cpu_micros / small.cpu_micros
        ));
    }
    for (what, number) in [
        (
            "MB read by a start",
            Seen::read_megabytes as fn(&Seen) -> f64,
        ),
        ("RSS of a start, MB", Seen::resident),
    ] {
        let (small, large) = (number(small), number(large));
        lines.push(format!(
            "| {what} | {small:.1} | | {large:.1} | | {:.2} |",
            large / small
        ));
    }
    lines.join("\n")
}

impl Seen {
    fn read_megabytes(&self) -> f64 {
        self.read_megabytes
    }

    fn resident(&self) -> f64 {
        self.resident
    }
}

/// What takes too much more of the larger store.
fn grown(small: &Seen, large: &Seen) -> Vec<&'static str> {
    let both = small.taken.iter().zip(&large.taken);
    both.filter(|(small, large)| large.cpu_micros > small.cpu_micros * MOST)
        .map(|(small, _)| small.what)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_with_the_data_is_named() {
        let seen = |start, list| Seen {
            messages: 1,
            taken: [("start", start), ("list", list)]
                .map(|(what, cpu_micros)| Taken {
                    what,
                    cpu_micros,
                    millis: 1.0,
                })
                .into(),
            read_megabytes: 1.0,
            resident: 1.0,
        };
        assert_eq!(grown(&seen(10.0, 10.0), &seen(19.0, 20.0)), [""; 0]);
        assert_eq!(grown(&seen(10.0, 10.0), &seen(19.0, 100.0)), ["list"]);
    }

    #[test]
    fn few_chats_are_refused() {
        assert!(read(&[]).is_ok_and(|(chats, kinds)| chats == 10_000 && kinds.len() == 2));
        for words in [&["--chats"][..], &["--chats", "100"], &["nginx"]] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
