//! How many files and sockets the process may have open, and how they are divided.
//!
//! An accepted turn needs a connection to its agent, so clients may never use all of them.

use crate::connections::LOBBY;

/// The database, the log, files that are being read: everything that does not grow with the number of clients.
const OWN: usize = 48;
/// What is set aside before connections and turns get their shares.
const RESERVED: usize = OWN + LOBBY * PER_CONNECTION;
/// A connection may have a file open in addition to its socket.
const PER_CONNECTION: usize = 2;
/// One in this many of the rest is for agents.
const AGENTS_SHARE: usize = 3;
/// Answers may use a quarter more turns than messages may.
const WITH_ANSWERS: (usize, usize) = (5, 4);
/// Less than this is of no use: it is better to run out of files now and then.
const LEAST: Shares = Shares {
    connections: 8,
    turns: 2,
};

/// How many of each there may be at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    pub connections: usize,
    pub turns: usize,
}

/// Raises the limit as far as the operating system allows, and returns it, if there is one.
#[cfg(unix)]
pub fn raise() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    // Some systems name no maximum and accept none: then the limit stays as it was.
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised,
        Err(_) => before,
    };
    now.current
        .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
pub fn raise() -> Option<usize> {
    None
}

/// As many of the wanted connections and turns as the limit allows; `per_turn` is how many files one turn needs to reach its
/// agent.
pub fn shares(limit: usize, wanted: Shares, per_turn: usize) -> Shares {
    let (more, of) = WITH_ANSWERS;
    let for_turns = |turns: usize| turns.saturating_mul(per_turn).saturating_mul(more) / of;
    let left = limit.saturating_sub(RESERVED);
    let all = (wanted.connections)
        .saturating_mul(PER_CONNECTION)
        .saturating_add(for_turns(wanted.turns));
    if all <= left {
        return wanted;
    }
    let turns = (left / AGENTS_SHARE * of / more / per_turn)
        .max(LEAST.turns)
        .min(wanted.turns);
    let connections = (left.saturating_sub(for_turns(turns)) / PER_CONNECTION)
        .max(LEAST.connections)
        .min(wanted.connections);
    Shares { connections, turns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_out_is_there() {
        let wanted = Shares {
            connections: 10_000,
            turns: 1_000,
        };
        assert_eq!(shares(1 << 20, wanted, 2), wanted);
        for limit in [0, 24, 100, 256, 1_024, 4_096, 20_000, 23_000] {
            for per_turn in [1, 2] {
                let Shares { connections, turns } = shares(limit, wanted, per_turn);
                let used = RESERVED + connections * PER_CONNECTION + turns * per_turn * 5 / 4;
                let is_least = (connections, turns) == (LEAST.connections, LEAST.turns);
                assert!(used <= limit || is_least, "{limit}: {connections}, {turns}");
                assert!(connections <= wanted.connections && turns <= wanted.turns);
            }
        }
        let many = shares(1_024, wanted, 1);
        assert!(many.connections > 200 && many.turns > 200, "{many:?}");
    }

    #[test]
    fn nobody_gets_more_than_was_wanted() {
        let few_turns = Shares {
            connections: 10_000,
            turns: 1,
        };
        let few_connections = Shares {
            connections: 4,
            turns: 100_000,
        };
        for limit in [0, 1_024, 20_000] {
            assert_eq!(shares(limit, few_turns, 1).turns, 1);
            assert_eq!(shares(limit, few_connections, 1).connections, 4);
        }
    }
}
