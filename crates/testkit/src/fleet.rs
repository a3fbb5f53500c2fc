//! Several bridges on one PostgreSQL database, which can be killed, paused and stopped.

use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::bridge::{Bridge, command, within};
use crate::http::Answer;
use crate::postgres::{Postgres, database_of};

/// The shortest lease that is allowed, so that nobody waits long for a take-over.
pub const LEASE: Duration = Duration::from_secs(3);

/// Bridges on a database of their own.
pub struct Fleet {
    url: String,
    toml: String,
    replicas: Vec<Bridge>,
}

impl Fleet {
    /// Starts this many with the same configuration.
    pub fn start(count: usize, toml: &str) -> Self {
        Self::start_with(count, toml, |_, _| {})
    }

    /// The same; `change` gets the number of each, from 0.
    pub fn start_with(count: usize, toml: &str, change: impl Fn(usize, &mut Command)) -> Self {
        let mut fleet = Self {
            url: Postgres::shared().database(),
            toml: toml.to_owned(),
            replicas: Vec::new(),
        };
        for index in 0..count {
            let toml = fleet.toml_of(&name_of(index));
            let bridge = Bridge::with(&toml, |command| change(index, command));
            fleet.replicas.push(bridge);
        }
        fleet
    }

    /// The configuration of a replica with this name.
    pub fn toml_of(&self, name: &str) -> String {
        let (url, lease) = (&self.url, LEASE.as_secs());
        let toml = &self.toml;
        format!(
            "{toml}\n[store]\nurl = {url:?}\n[cluster]\nname = {name:?}\nlease = \"{lease}s\"\n"
        )
    }

    /// The command that starts one more.
    pub fn command(&self, directory: &TempDir, name: &str) -> Command {
        command(directory, &self.toml_of(name))
    }

    /// A replica, by its number.
    pub fn at(&self, index: usize) -> &Bridge {
        &self.replicas[index]
    }

    pub fn at_mut(&mut self, index: usize) -> &mut Bridge {
        &mut self.replicas[index]
    }

    /// Ends one at once, as a machine that loses power.
    pub fn kill(&mut self, index: usize) {
        self.replicas[index].kill();
    }

    /// Stops its process from running, and lets it go on with [`Fleet::wake`].
    pub fn pause(&self, index: usize) {
        self.replicas[index].signal("-STOP");
    }

    pub fn wake(&self, index: usize) {
        self.replicas[index].signal("-CONT");
    }

    /// Asks it to stop, as service managers do.
    pub fn stop(&self, index: usize) {
        self.replicas[index].signal("-TERM");
    }

    /// Resumes a chat at a replica, until there is something to read.
    pub async fn resumed(&self, index: usize, chat: &str) -> Answer {
        let wait = async {
            loop {
                let answer = self.at(index).resume(chat).await;
                if answer.status == 200 {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within(wait).await
    }

    /// Runs SQL in the database, as [`Postgres::sql`] does.
    pub fn sql(&self, sql: &str) -> String {
        Postgres::shared().sql(database_of(&self.url), sql)
    }

    /// A number of a replica's `/metrics`, by its name without `adk_bridge_`.
    pub async fn metric(&self, index: usize, name: &str) -> f64 {
        let metrics = self.at(index).get("/metrics").await;
        let text = String::from_utf8_lossy(&metrics.body);
        let line = text.lines().find_map(|line| {
            line.strip_prefix("adk_bridge_")?
                .strip_prefix(name)?
                .strip_prefix(' ')
        });
        let number = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        number.parse().unwrap()
    }

    /// Waits until `/ready` of a replica says this.
    pub async fn until_ready_says(&self, index: usize, words: &str) -> String {
        let wait = async {
            loop {
                let ready = self.at(index).get("/ready").await;
                let text = String::from_utf8_lossy(&ready.body).into_owned();
                if text.contains(words) {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within(wait).await
    }
}

/// What the replica with this number is called.
pub fn name_of(index: usize) -> String {
    format!("bridge-{}", index + 1)
}
