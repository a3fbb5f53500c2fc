//! Every recording separately: as `adk-bridge translate` shows it, joined late, read by a lagging reader, stopped, and
//! resumed.

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::reply::{Audience, CloseReason, Input};
use adk_bridge_testkit::fixtures::{self, RECORDED, recordings_in};
use anyhow::Result;

use super::case::{Case, resumes, shown};
use super::player::{EVERY_READER, Names, Player};

pub(crate) fn write(cases: &mut Vec<Case>) -> Result<()> {
    for recording in names()? {
        let mut player = begin(&recording, true);
        let events = player.run(&recording, &recording, None)?;
        player.end(cases);
        for &dialect in Dialect::ALL {
            let message = shown(player.driver.reply(), dialect);
            cases.extend(resumes(&recording, dialect, &message, false));
        }
        for until in [0, events / 2, events] {
            let name = format!("{recording}, stopped at event {until}");
            let mut player = begin(&name, false);
            player.run(&name, &recording, Some(until))?;
            player.feed(Input::Close(CloseReason::Stopped));
            player.end(cases);
        }
    }
    Ok(())
}

fn begin(name: &str, stalling: bool) -> Player {
    let mut player = Player::new(Names::Recorded { made: 0 });
    for reader in EVERY_READER {
        player.attach(name, reader, None);
        if stalling {
            player.attach_stalling(name, reader, None);
        }
    }
    player.feed(Input::Begin(Audience::Request));
    player
}

/// The paths of all recordings, in order.
fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for path in RECORDED.iter().flat_map(|folder| recordings_in(folder)) {
        let path = path.strip_prefix(fixtures::recordings())?;
        names.push(path.display().to_string());
    }
    names.sort();
    Ok(names)
}
