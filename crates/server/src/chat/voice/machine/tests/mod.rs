//! The machine by hand, as a table of endings, and at random.

mod endings;
mod walk;
mod world;

use std::time::{Duration, Instant};

use super::input_queue::{InputQueue, MAX_AUDIO_BYTES, MAX_ITEMS, MAX_PICTURES};
use super::{KEPT, MemoryModel, NOTICED, UserInput};
use world::{Act, Said, World};

const WORD: Act = Act::Audio {
    bytes: 640,
    loud: true,
};
const OPEN: Act = Act::Open {
    answers_history: false,
};

/// What is done when these things happen.
fn performed(world: &mut World, acts: &[Act]) -> String {
    let before = world.performed.len();
    for act in acts {
        world.act(act.clone());
    }
    world.performed[before..].join(" ")
}

#[test]
fn a_spoken_turn() {
    let mut world = World::new(MemoryModel::Stateless);
    let opens = performed(&mut world, &[WORD, OPEN]);
    assert_eq!(opens, "Connect SendInput");
    let begins = performed(&mut world, &[Act::Say(Said::Heard)]);
    assert_eq!(begins, "BeginTurn Feed Checkpoint");
    let ends = performed(&mut world, &[Act::Say(Said::SpokeAndCompleted)]);
    assert_eq!(ends, "Feed EndRun");
    assert_eq!(world.machine.state_name(), "Listening");
    world.come_to_rest();
}

/// A sentence is under way from its first sound until the agent has begun to answer it, or ignores it.
#[test]
fn who_speaks_is_noticed() {
    let quiet = Act::Audio {
        bytes: 640,
        loud: false,
    };
    let is_spoken_to = |world: &World| world.machine.is_spoken_to(world.now);
    let mut world = World::new(MemoryModel::Stateless);
    performed(&mut world, &[quiet.clone(), OPEN, quiet.clone()]);
    assert!(!is_spoken_to(&world));
    performed(&mut world, &[WORD, quiet.clone()]);
    assert!(is_spoken_to(&world));
    performed(
        &mut world,
        &[Act::Say(Said::Heard), Act::Say(Said::SpokeAndCompleted)],
    );
    assert!(!is_spoken_to(&world));
    // A sound that means nothing.
    performed(&mut world, &[WORD, Act::Wait(NOTICED)]);
    assert!(!is_spoken_to(&world));
    // Pauses with the key held do not matter.
    performed(&mut world, &[Act::KeyDown, OPEN, WORD, Act::Wait(NOTICED)]);
    assert!(is_spoken_to(&world));
    performed(&mut world, &[Act::KeyUp]);
    assert!(is_spoken_to(&world));
    performed(&mut world, &[Act::Wait(NOTICED)]);
    assert!(!is_spoken_to(&world));

    // Words that wait for a connection have not been heard by anybody.
    let mut world = World::new(MemoryModel::Stateless);
    performed(&mut world, &[WORD, Act::Wait(NOTICED)]);
    assert!(is_spoken_to(&world));
    performed(&mut world, &[OPEN]);
    assert!(is_spoken_to(&world));
    performed(&mut world, &[Act::Wait(NOTICED)]);
    assert!(!is_spoken_to(&world));
}

/// The results of another run are sent before the user's next speech, all of them and once.
#[test]
fn news_come_before_words() {
    let mut world = World::new(MemoryModel::Stateless);
    performed(&mut world, &[WORD, OPEN, Act::WriteOverHttp]);
    let meanwhile = performed(&mut world, &[WORD, WORD]);
    assert_eq!(meanwhile, "SendNews SendInput SendInput");
    let after = performed(&mut world, &[Act::OtherEnds, WORD, WORD]);
    assert_eq!(after, "SendNews SendInput SendInput");
}

#[test]
fn a_turn_waits_until_the_chat_is_free() {
    let mut world = World::new(MemoryModel::Stateless);
    performed(&mut world, &[WORD, OPEN, Act::WriteOverHttp]);
    let waits = performed(&mut world, &[Act::Say(Said::Heard)]);
    assert_eq!(waits, "BeginTurn");
    assert_eq!(world.machine.state_name(), "Deferred");
    let begins = performed(&mut world, &[Act::OtherEnds]);
    assert_eq!(begins, "Feed Checkpoint");
    assert_eq!(world.machine.state_name(), "Answering");
}

/// A session has one writer: who speaks while a run has it is heard when the run is over.
#[test]
fn a_connection_waits_for_a_run() {
    let mut world = World::new(MemoryModel::Session);
    let waits = performed(&mut world, &[WORD, Act::WriteOverHttp, WORD, WORD]);
    assert_eq!(waits, "Connect Close");
    assert_eq!(world.machine.state_name(), "Queued");
    let opens = performed(&mut world, &[Act::OtherEnds, OPEN]);
    assert_eq!(opens, "Connect SendInput");
}

/// A model that never stays is given up, with pauses that grow.
#[test]
fn a_question_that_breaks_every_connection_is_given_up() {
    let mut world = World::new(MemoryModel::Stateless);
    performed(&mut world, &[WORD, OPEN, Act::Write]);
    let began = world.now;
    while world.machine.has_run() {
        performed(&mut world, &[Act::Lose(1011), Act::Refuse(None)]);
        if let Some(due) = world.machine.deadline() {
            let pause = due - world.now;
            performed(&mut world, &[Act::Wait(pause)]);
        }
    }
    assert_eq!(world.performed.last().unwrap(), "FailRun");
    let connects = world.performed.iter().filter(|it| *it == "Connect");
    assert_eq!(connects.count(), 5);
    assert_eq!(world.now - began, Duration::from_millis(3_500));
    assert_eq!(world.machine.state_name(), "Off");
}

#[test]
fn the_end_of_what_was_said_with_a_key_is_no_new_speech() {
    let mut world = World::new(MemoryModel::Stateless);
    performed(&mut world, &[Act::KeyDown, OPEN, WORD, Act::KeyUp]);
    assert_eq!(performed(&mut world, &[WORD, WORD]), "");
    let half_a_second = Act::Audio {
        bytes: 16_000,
        loud: true,
    };
    let hands_free = performed(&mut world, &[half_a_second]);
    assert_eq!(hands_free, "Close Connect");
}

#[test]
fn pictures_do_not_wait_where_nobody_listens() {
    let mut world = World::new(MemoryModel::Stateless);
    performed(&mut world, &[Act::Picture, Act::Detach, Act::Refuse(None)]);
    assert_eq!(world.machine.queue.size(), (1, 0));
    performed(&mut world, &[Act::Wait(KEPT)]);
    assert_eq!(world.machine.state_name(), "Off");
    assert_eq!(world.machine.queue.size(), (0, 0));
}

#[test]
fn what_waits_is_bounded_and_the_oldest_audio_goes_first() {
    let mut queue = InputQueue::default();
    queue.push(UserInput::ActivityStart);
    for number in 0..2_000_u16 {
        queue.push(UserInput::Audio(number.to_le_bytes().repeat(320).into()));
        queue.push(UserInput::Picture {
            data: vec![0].into(),
            media_type: String::new(),
        });
        let (items, audio) = queue.size();
        assert!(items <= MAX_ITEMS && audio <= MAX_AUDIO_BYTES);
    }
    assert_eq!(queue.pop(), Some(UserInput::ActivityStart));
    let mut rest = std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>();
    assert_eq!(
        rest.extract_if(.., |it| matches!(it, UserInput::Picture { .. }))
            .count(),
        MAX_PICTURES
    );
    let newest = UserInput::Audio(1_999_u16.to_le_bytes().repeat(320).into());
    assert_eq!(rest.last(), Some(&newest));
    for _ in 0..2_000 {
        queue.push(UserInput::ActivityEnd);
    }
    assert_eq!(queue.size(), (MAX_ITEMS, 0));
}

#[test]
fn what_means_nothing_is_reported() {
    let mut machine = super::VoiceMachine::new(MemoryModel::Stateless, false);
    let effects = machine.handle(super::VoiceInput::TurnGranted, Instant::now());
    let effects: Vec<_> = effects.into_iter().map(|it| format!("{it:?}")).collect();
    assert_eq!(
        effects,
        [r#"Ignored { input: "TurnGranted", state: "Off" }"#]
    );
}

/// Time is an argument, and whoever drives the machine waits and talks.
#[test]
fn the_machine_does_no_io() {
    let sources = [
        include_str!("../../machine.rs"),
        include_str!("../connection.rs"),
        include_str!("../input_queue.rs"),
        include_str!("../knowledge.rs"),
        include_str!("../port.rs"),
        include_str!("../state.rs"),
        include_str!("../user.rs"),
    ];
    for source in sources {
        for word in ["tokio", "async", ".await", "Instant::now", "tracing"] {
            assert!(!source.contains(word), "{word}");
        }
    }
}
