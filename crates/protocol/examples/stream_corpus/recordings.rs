//! Every recording by itself: as `adk-bridge translate` shows it, joined late, read haltingly, stopped, and resumed.

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::reply::{Input, Mode, Why};

use crate::case::{Case, Result, fixtures, resumes, shown};
use crate::player::{EVERY_READER, Names, Player};

pub(crate) fn write(cases: &mut Vec<Case>) -> Result<()> {
    for recording in names()? {
        let mut player = begin(&recording, true);
        let events = player.run(&recording, &recording, None)?;
        player.end(cases);
        for dialect in [Dialect::Native, Dialect::Adk] {
            let message = shown(&player.reply, dialect);
            cases.extend(resumes(&recording, dialect, &message, false));
        }
        for until in [0, events / 2, events] {
            let name = format!("{recording}, stopped at event {until}");
            let mut player = begin(&name, false);
            player.run(&name, &recording, Some(until))?;
            player.feed(Input::Close(Why::Stopped));
            player.end(cases);
        }
    }
    Ok(())
}

fn begin(name: &str, stalling: bool) -> Player {
    let mut player = Player::new(Names::Recorded { made: 0 });
    for reader in EVERY_READER {
        player.seat(name, reader, None);
        if stalling {
            player.seat_stalling(name, reader, None);
        }
    }
    player.feed(Input::Begin(Mode::Http));
    player
}

/// The paths of all recordings, in order.
fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for folder in std::fs::read_dir(fixtures())? {
        let folder = folder?;
        if !folder.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension != "md") {
                names.push(path.strip_prefix(fixtures())?.display().to_string());
            }
        }
    }
    names.sort();
    Ok(names)
}
