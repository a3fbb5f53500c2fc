//! What a replica knows about the others and about itself, and what is wrong: for the log and for `/ready`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adk_bridge_protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{MAX_CLOCK_DIFFERENCE, Peer};

/// How the cluster looks from one replica. Anyone may ask for it, so addresses are only in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClusterState {
    pub replica: String,
    /// Whether its lease is held.
    #[serde(skip)]
    pub is_member: bool,
    #[serde(skip)]
    pub is_draining: bool,
    /// The names of the other living replicas that take chats.
    pub peers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// What may be wrong; a replica has each at most once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    Clock,
    NameTaken,
    /// The replica cannot be reached under its own address.
    OwnAddress,
    /// A replica of this name cannot be reached.
    Unreachable(String),
    /// The others do not find the files of this replica.
    OwnFiles,
    /// Another replica seals the audit with another key.
    AuditKey,
}

#[derive(Default)]
pub(super) struct States(Mutex<State>);

#[derive(Default)]
struct State {
    peers: Vec<Peer>,
    problems: BTreeMap<Problem, String>,
    has_own_files: bool,
    is_unheard: bool,
    clock_millis: i64,
}

impl States {
    pub(super) fn peers(&self) -> Vec<Peer> {
        self.lock().peers.clone()
    }

    pub(super) fn state(
        &self,
        replica: String,
        is_member: bool,
        is_draining: bool,
    ) -> ClusterState {
        let state = self.lock();
        ClusterState {
            replica,
            is_member,
            is_draining,
            peers: state.peers.iter().map(|peer| peer.name.clone()).collect(),
            problems: state.problems.values().cloned().collect(),
        }
    }

    pub(super) fn note_peers(&self, peers: Vec<Peer>) {
        let mut state = self.lock();
        state.problems.retain(|problem, _| match problem {
            Problem::Unreachable(name) => peers.iter().any(|peer| peer.name == *name),
            _ => true,
        });
        state.peers = peers;
        let is_apart = state.has_own_files && !state.peers.is_empty();
        drop(state);
        match is_apart {
            true => self.report(
                Problem::OwnFiles,
                "files are in the data directory of this replica, where no other one finds them; set files.url to a bucket \
                 or a directory that all of them reach"
                    .to_owned(),
            ),
            false => self.solved(Problem::OwnFiles),
        }
    }

    /// Whether files are where no other replica finds them.
    pub(super) fn note_own_files(&self, own: bool) {
        self.lock().has_own_files = own;
    }

    /// Whether somebody else seals the audit with another key.
    pub(super) fn note_audit_key(&self, differs: bool) {
        match differs {
            true => self.report(
                Problem::AuditKey,
                "another replica seals the audit with another audit.key, or without one: nobody can verify all seals; set the \
                 same one everywhere"
                    .to_owned(),
            ),
            false => self.solved(Problem::AuditKey),
        }
    }

    /// Whether the database has just answered.
    pub(super) fn note_heard(&self, heard: bool) {
        let mut state = self.lock();
        if state.is_unheard && heard {
            tracing::info!("the database answers again");
        }
        state.is_unheard = !heard;
    }

    /// Compares the clocks: the database said its time between two moments of ours.
    pub(super) fn note_clock(&self, before: Timestamp, theirs: Timestamp, after: Timestamp) {
        let [before, theirs, after] =
            [before, theirs, after].map(|at| i64::try_from(at.as_millis()).unwrap_or(i64::MAX));
        // Between the two it may have been at any moment.
        let off = match theirs {
            early if early < before => early - before,
            late if late > after => late - after,
            _ => 0,
        };
        self.lock().clock_millis = off;
        if Duration::from_millis(off.unsigned_abs()) <= MAX_CLOCK_DIFFERENCE {
            return self.solved(Problem::Clock);
        }
        let (seconds, side) = (
            off.unsigned_abs() / 1_000,
            if off > 0 { "behind" } else { "ahead of" },
        );
        let bound = MAX_CLOCK_DIFFERENCE.as_secs();
        self.report(
            Problem::Clock,
            format!(
                "the clock of this machine is {seconds} seconds {side} the database's, and questions expire at the wrong \
                 time; more than {bound} seconds are too many: synchronise the clocks"
            ),
        );
    }

    /// How far the clock of the database is from ours.
    pub(super) fn clock_millis(&self) -> i64 {
        self.lock().clock_millis
    }

    /// Notes what is wrong. The log says so once.
    pub(super) fn report(&self, problem: Problem, words: String) {
        let mut state = self.lock();
        let is_known = (state.problems)
            .insert(problem.clone(), words.clone())
            .is_some();
        match problem {
            _ if is_known => {}
            // It may be on its way down, or up.
            Problem::Unreachable(_) => tracing::warn!("{words}"),
            // Whoever uses no files misses none.
            Problem::OwnFiles => tracing::warn!("{words}"),
            _ => tracing::error!("{words}"),
        }
    }

    pub(super) fn solved(&self, problem: Problem) {
        let solved = self.lock().problems.remove(&problem);
        if let Some(words) = solved {
            tracing::info!("this is over: {words}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Poisoning is ignored: no critical section can leave the state inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_wrong_when_no_moment_of_the_question_explains_it() {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
        for (before, theirs, after, wrong) in [
            (100, 100, 100, None),
            (100, 104, 105, None),
            (100, 98, 100, None),
            (100, 97, 100, Some("3 seconds ahead of")),
            (100, 103, 100, Some("3 seconds behind")),
            (100, 108, 105, Some("3 seconds behind")),
        ] {
            let states = States::default();
            states.note_clock(at(before), at(theirs), at(after));
            let problems = states.state(String::new(), true, false).problems;
            match wrong {
                None => assert!(problems.is_empty(), "{problems:?}"),
                Some(words) => assert!(problems[0].contains(words), "{problems:?}"),
            }
            states.note_clock(at(1), at(1), at(1));
            assert!(states.state(String::new(), true, false).problems.is_empty());
        }
    }

    #[test]
    fn own_files_are_a_problem_only_beside_others() {
        let problems = |states: &States| states.state(String::new(), true, false).problems;
        let other = Peer {
            name: "other".to_owned(),
            address: "http://other:8080".parse().unwrap(),
        };
        let states = States::default();
        states.note_peers(vec![other.clone()]);
        assert!(problems(&states).is_empty());
        states.note_own_files(true);
        states.note_peers(Vec::new());
        assert!(problems(&states).is_empty());
        states.note_peers(vec![other]);
        assert!(problems(&states)[0].contains("files.url"));
        states.note_peers(Vec::new());
        assert!(problems(&states).is_empty());
    }
}
