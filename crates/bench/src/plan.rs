//! The plan of a run, read from the command line: which servers are measured, with how much load, and how often.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::load::Size;
use crate::server::Kind;

const USAGE: &str = "usage: bench [--quick] [--rounds N] [--also PATH]... [SERVER]..., or bench voice

  SERVER       nginx, translator, adk-bridge, adk-bridge-postgres (its chats in PostgreSQL), adk-bridge-hop (a replica that
               passes requests on to the owner of their chat), node-ai-6, node-ai-7 (servers with the AI SDK), google-adk; all of
               them if none is named

  --quick      ask less, and leave the large answers out
  --rounds N   measure every server N times, in turns, and print the median of each column
  --also PATH  measure another build of adk-bridge as well, such as that of an earlier version";

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) size: Size,
    pub(crate) rounds: usize,
    pub(crate) servers: Vec<Kind>,
}

impl Plan {
    /// Without names, all known servers.
    pub(crate) fn read(words: &[&str]) -> anyhow::Result<Self> {
        let mut size = Size::FULL;
        let mut rounds = 1;
        let mut named = Vec::new();
        let mut others = Vec::new();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--quick" => size = Size::QUICK,
                "--rounds" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    rounds = number.filter(|number| *number > 0).context(USAGE)?;
                }
                "--also" => others.push(Kind::Other(PathBuf::from(words.next().context(USAGE)?))),
                flag if flag.starts_with('-') => bail!(USAGE),
                name => named.push(name),
            }
        }
        for name in &named {
            if Kind::KNOWN.iter().all(|kind| kind.name() != *name) {
                let known = Kind::KNOWN.map(|kind| kind.name()).join(", ");
                bail!("there is no server named {name:?}; name some of {known}");
            }
        }
        let chosen = |kind: &Kind| named.is_empty() || named.contains(&kind.name().as_str());
        let servers = Kind::KNOWN.into_iter().filter(chosen).chain(others);
        Ok(Self {
            size,
            rounds,
            servers: servers.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        let plan = Plan::read(words).unwrap();
        plan.servers.iter().map(Kind::name).collect()
    }

    #[test]
    fn another_build_is_one_more_server() {
        assert_eq!(names(&[]), Kind::KNOWN.map(|kind| kind.name()));
        assert_eq!(names(&["adk-bridge"]), ["adk-bridge"]);
        assert_eq!(
            names(&["adk-bridge", "--also", "old/adk-bridge"]),
            ["adk-bridge", "old/adk-bridge"]
        );
    }

    #[test]
    fn every_round_is_as_large() {
        let plan = Plan::read(&["--rounds", "3", "--quick"]).unwrap();
        assert_eq!((plan.rounds, plan.size), (3, Size::QUICK));
        let plan = Plan::read(&[]).unwrap();
        assert_eq!((plan.rounds, plan.size), (1, Size::FULL));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for words in [
            &["--fast"][..],
            &["--rounds"],
            &["--rounds", "0"],
            &["--rounds", "many"],
            &["--also"],
            &["apache"],
        ] {
            assert!(Plan::read(words).is_err(), "{words:?}");
        }
    }
}
