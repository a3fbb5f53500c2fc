//! Every way in which a connection ends, at every moment of a conversation.

use std::time::Duration;

use adk_bridge_agents::live;

use super::super::{KEPT, MemoryModel};
use super::world::{Act, Said, World};

/// What the agent is doing.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Connecting,
    Listening,
    /// It has begun a turn while a tool runs.
    Deferred,
    Asked,
    Speaking,
    /// It waits for the result of a call.
    Called,
    /// It has been given the result, and has said nothing about it.
    Answered,
}

/// How its connection ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Refused,
    Lost,
    /// With nobody there who listens.
    LostAlone,
    /// Without a word.
    Broken,
    Warned,
    Modality,
    Stopped,
    OtherRun,
    Silence,
    Edited,
}

use Ending::{
    Broken, Edited, Lost, LostAlone, Modality, OtherRun, Refused, Silence, Stopped, Warned,
};
use Moment::{Answered, Asked, Called, Connecting, Deferred, Listening, Speaking};

const MOMENTS: [Moment; 7] = [
    Connecting, Listening, Deferred, Asked, Speaking, Called, Answered,
];
const ENDINGS: [Ending; 10] = [
    Refused, Lost, LostAlone, Broken, Warned, Modality, Stopped, OtherRun, Silence, Edited,
];

/// The moment, the ending, what is done, and the state that follows. A deferred connection is not read: that it is lost
/// shows when something is sent. One that speaks when it is warned is heard to its end.
const STATELESS: &str = "
    Connecting Refused   | Connect                                            | Connecting
    Connecting Modality  | Close Connect ModalityChanged                      | Connecting
    Connecting OtherRun  |                                                    | Connecting
    Connecting Silence   | Close                                              | Off
    Connecting Edited    | Close DropRecording                                | Off
    Listening  Lost      | Close Connect                                      | Connecting
    Listening  LostAlone | Close                                              | Off
    Listening  Warned    | Feed Close Connect                                 | Connecting
    Listening  Modality  | Close Connect ModalityChanged                      | Connecting
    Listening  Stopped   |                                                    | Listening
    Listening  OtherRun  |                                                    | Listening
    Listening  Silence   | Close                                              | Off
    Listening  Edited    | Close DropRecording                                | Off
    Deferred   Broken    | SendInput Close Connect                            | Connecting
    Deferred   Modality  | Close Connect ModalityChanged                      | Connecting
    Deferred   Stopped   |                                                    | Deferred
    Deferred   OtherRun  |                                                    | Deferred
    Deferred   Silence   |                                                    | Deferred
    Asked      Lost      | Close Connect                                      | Connecting
    Asked      LostAlone | Close Connect                                      | Connecting
    Asked      Warned    | Feed Checkpoint Close Connect                      | Connecting
    Asked      Broken    | SendInput Close Connect                            | Connecting
    Asked      Modality  | Close Connect ModalityChanged                      | Connecting
    Asked      Stopped   | Close DropRecording                                | Stopped
    Asked      OtherRun  | Close DropRecording                                | Stopped
    Asked      Silence   |                                                    | Answering
    Speaking   Lost      | Close EndRun Connect                               | Connecting
    Speaking   LostAlone | Close EndRun                                       | Off
    Speaking   Warned    | Feed Checkpoint                                    | Answering
    Speaking   Broken    | SendInput Close EndRun Connect                     | Connecting
    Speaking   Modality  | Interrupted Close EndRun Connect ModalityChanged   | Connecting
    Speaking   Stopped   | Close DropRecording                                | Stopped
    Speaking   OtherRun  | Close DropRecording                                | Stopped
    Speaking   Silence   |                                                    | Answering
    Called     Lost      | Close Connect                                      | Connecting
    Called     LostAlone | Close                                              | Off
    Called     Warned    | Feed Close Connect                                 | Connecting
    Called     Modality  | Close Connect ModalityChanged                      | Connecting
    Called     OtherRun  |                                                    | Listening
    Called     Silence   | Close                                              | Off
    Answered   Lost      | Close Connect                                      | Connecting
";

/// Where an agent with a session differs: it has one writer, and a connection that did not make a call does not know it.
const SESSION: &str = "
    Connecting Refused   | Connect                                            | Connecting
    Connecting OtherRun  | Close                                              | Off
    Connecting Silence   | Close                                              | Off
    Listening  Lost      | Close Connect                                      | Connecting
    Listening  LostAlone | Close                                              | Off
    Listening  OtherRun  | Close                                              | Off
    Deferred   OtherRun  | Close                                              | Off
    Asked      Lost      | Close Connect                                      | Connecting
    Asked      LostAlone | Close Connect                                      | Connecting
    Asked      Stopped   | Close DropRecording                                | Off
    Asked      OtherRun  | Close DropRecording                                | Off
    Speaking   Lost      | Close EndRun Connect                               | Connecting
    Speaking   Stopped   | Close DropRecording                                | Off
    Called     OtherRun  | Close                                              | Off
    Answered   Lost      | Close AskByRun                                     | Off
";

#[test]
fn an_agent_that_is_sent_everything_again() {
    check(MemoryModel::Stateless, STATELESS);
}

#[test]
fn an_agent_with_a_session() {
    check(MemoryModel::Session, SESSION);
}

fn check(memory: MemoryModel, table: &str) {
    for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [case, performed, state] = cells[..] else {
            panic!("{row}");
        };
        let (moment, ending) = case.split_once(' ').unwrap();
        let (moment, ending) = (named(&MOMENTS, moment), named(&ENDINGS, ending.trim()));
        let seen = end(memory, moment, ending);
        assert_eq!((seen.0.as_str(), seen.1), (performed, state), "{case}");
    }
}

fn named<T: Copy + std::fmt::Debug>(all: &[T], name: &str) -> T {
    let is_it = |it: &&T| format!("{it:?}") == name;
    *all.iter().find(is_it).unwrap_or_else(|| panic!("{name}"))
}

fn end(memory: MemoryModel, moment: Moment, ending: Ending) -> (String, &'static str) {
    let mut world = World::new(memory);
    let open = Act::Open {
        answers_history: false,
    };
    let word = Act::Audio {
        bytes: 640,
        loud: true,
    };
    world.act(word.clone());
    let acts = match moment {
        Connecting => vec![],
        Listening => vec![open],
        Deferred => vec![
            open,
            Act::Write,
            Act::Say(Said::CalledTool),
            Act::Say(Said::Spoke),
        ],
        Asked => vec![open, Act::Write],
        Speaking => vec![open, Act::Write, Act::Say(Said::Spoke)],
        Called => vec![open, Act::Write, Act::Say(Said::CalledTool)],
        Answered => vec![open, Act::Write, Act::Say(Said::CalledTool), Act::Answer],
    };
    for act in acts {
        world.act(act);
    }
    let before = world.performed.len();
    let acts = match ending {
        Refused => vec![Act::Refuse(None)],
        Lost => vec![Act::Lose(1011)],
        LostAlone => vec![Act::Detach, Act::Lose(1011)],
        Broken => vec![Act::Break, word],
        Warned => vec![
            Act::Say(Said::GoesAway(10)),
            Act::Wait(Duration::from_secs(8)),
        ],
        Modality => vec![Act::Modality(live::Modality::Text)],
        Stopped => vec![Act::Stop],
        OtherRun => vec![Act::WriteOverHttp],
        Silence => vec![Act::Detach, Act::Wait(KEPT)],
        Edited => vec![Act::Edit],
    };
    for act in acts {
        world.act(act);
    }
    (
        world.performed[before..].join(" "),
        world.machine.state_name(),
    )
}
