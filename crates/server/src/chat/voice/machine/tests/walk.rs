//! Random walks through the world, and through everything that could be said to the machine.

use std::time::{Duration, Instant};

use adk_bridge_agents::live::Modality;
use adk_bridge_protocol::outbox::Ask;
use adk_bridge_protocol::reply::RunEnd;
use bytes::Bytes;
use proptest::prelude::*;

use super::super::input_queue::{MAX_AUDIO_BYTES, MAX_ITEMS};
use super::super::{MemoryModel, Notice, VoiceEffect, VoiceInput, VoiceMachine};
use super::world::{Act, Said, World, some_error};

fn modality() -> impl Strategy<Value = Modality> {
    prop_oneof![Just(Modality::Audio), Just(Modality::Text)]
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        4 => Just(Said::Heard),
        4 => Just(Said::Spoke),
        3 => Just(Said::Completed),
        3 => Just(Said::SpokeAndCompleted),
        2 => Just(Said::Interrupted),
        2 => Just(Said::CalledHuman),
        1 => Just(Said::CalledTool),
        1 => Just(Said::CalledUnknown),
        1 => Just(Said::TooMuch),
        2 => prop::sample::select(vec![0, 1, 10, 60]).prop_map(Said::GoesAway),
        2 => Just(Said::Handle),
        1 => Just(Said::Unreadable),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let code = prop::sample::select(vec![1000_u16, 1006, 1007, 1008, 1011]);
    prop_oneof![
        8 => (prop::sample::select(vec![64_usize, 640, 3_200, 8_000]), prop::bool::weighted(0.8))
            .prop_map(|(bytes, loud)| Act::Audio { bytes, loud }),
        1 => Just(Act::Picture),
        2 => Just(Act::KeyDown),
        2 => Just(Act::KeyUp),
        2 => modality().prop_map(Act::Modality),
        2 => Just(Act::Attach),
        1 => Just(Act::Detach),
        3 => Just(Act::Write),
        2 => Just(Act::WriteOverHttp),
        1 => Just(Act::Stop),
        1 => Just(Act::Edit),
        3 => Just(Act::Answer),
        3 => Just(Act::OtherEnds),
        8 => any::<bool>().prop_map(|answers_history| Act::Open { answers_history }),
        2 => prop::option::of(code.clone()).prop_map(Act::Refuse),
        3 => code.prop_map(Act::Lose),
        1 => Just(Act::Break),
        14 => said().prop_map(Act::Say),
        2 => prop::sample::select(vec![10_u64, 500, 2_000, 10_000, 31_000])
            .prop_map(|millis| Act::Wait(Duration::from_millis(millis))),
        1 => Just(Act::RefuseTurn),
        1 => Just(Act::AskNothing),
    ]
}

/// Everything that could be said to the machine, whether or not a chat would.
fn input() -> impl Strategy<Value = VoiceInput> {
    let count = 0_usize..5;
    prop_oneof![
        (0_usize..6_000).prop_map(|samples| VoiceInput::Audio(vec![9; 2 * samples].into())),
        Just(()).prop_map(|()| VoiceInput::Picture {
            data: vec![1].into(),
            media_type: String::new()
        }),
        Just(()).prop_map(|()| VoiceInput::KeyDown),
        Just(()).prop_map(|()| VoiceInput::KeyUp),
        modality().prop_map(VoiceInput::Modality),
        any::<bool>().prop_map(VoiceInput::Listener),
        Just(()).prop_map(|()| VoiceInput::Asked(Ask::History)),
        Just(()).prop_map(|()| VoiceInput::RunCancelled),
        Just(()).prop_map(|()| VoiceInput::OtherRunBegan),
        Just(()).prop_map(|()| VoiceInput::OtherRunEnded),
        Just(()).prop_map(|()| VoiceInput::Written),
        Just(()).prop_map(|()| VoiceInput::HistoryCut),
        count.clone().prop_map(|removed| VoiceInput::TakenUp {
            unchanged: 0,
            removed
        }),
        Just(()).prop_map(|()| VoiceInput::TurnGranted),
        Just(()).prop_map(|()| VoiceInput::TurnBegun),
        Just(()).prop_map(|()| VoiceInput::TurnRefused),
        Just(()).prop_map(|()| VoiceInput::ModelDone(RunEnd::Done)),
        count
            .clone()
            .prop_map(|contents| VoiceInput::RunTaken { contents }),
        count.clone().prop_map(|contents| VoiceInput::Dialled {
            contents,
            confirmed: 0
        }),
        any::<bool>().prop_map(|answers_history| VoiceInput::Opened { answers_history }),
        any::<Option<u16>>().prop_map(|code| VoiceInput::Refused {
            code,
            error: some_error()
        }),
        any::<u16>().prop_map(|code| VoiceInput::Lost { code, error: None }),
        any::<bool>().prop_map(|begins_turn| VoiceInput::Message {
            message: Bytes::new(),
            begins_turn
        }),
        Just(()).prop_map(|()| VoiceInput::Spoke),
        any::<(bool, bool)>()
            .prop_map(|(progressed, called)| VoiceInput::MessageTaken { progressed, called }),
        any::<(u8, bool)>().prop_map(|(seconds, calls_open)| VoiceInput::Noticed {
            notices: vec![Notice::GoAway(Duration::from_secs(seconds.into()))],
            calls_open,
        }),
        count
            .clone()
            .prop_map(|contents| VoiceInput::Sent { contents }),
        count.prop_map(|contents| VoiceInput::ResultsSent { contents }),
        Just(()).prop_map(|()| VoiceInput::NothingToAsk),
        Just(()).prop_map(|()| VoiceInput::Tick),
    ]
}

proptest! {
    /// Nothing that the user said is lost, or said twice to one connection; no model is thought to know more than it
    /// was sent; there is one connection, and none during a run if a session has one writer; what waits is bounded;
    /// whatever begins ends, no time is missed, and silence ends in Off.
    #[test]
    fn whatever_happens_everything_holds(
        session in any::<bool>(),
        acts in prop::collection::vec(act(), 0..80),
    ) {
        let mut world = World::new(if session { MemoryModel::Session } else { MemoryModel::Stateless });
        for act in acts {
            world.act(act);
        }
        world.come_to_rest();
    }

    /// An input in the wrong state is reported, and nothing else happens.
    #[test]
    fn what_makes_no_sense_changes_nothing(
        session in any::<bool>(),
        inputs in prop::collection::vec(input(), 0..60),
    ) {
        let memory = if session { MemoryModel::Session } else { MemoryModel::Stateless };
        let mut machine = VoiceMachine::new(memory, false);
        let mut now = Instant::now();
        for input in inputs {
            now += Duration::from_millis(700);
            let before = machine.state_name();
            let effects: Vec<_> = machine.handle(input, now).into_iter().collect();
            let ignored = effects.iter().any(|it| matches!(it, VoiceEffect::Ignored { .. }));
            prop_assert!(!ignored || effects.len() == 1 && machine.state_name() == before);
            let (items, audio) = machine.queue.size();
            prop_assert!(items <= MAX_ITEMS && audio <= MAX_AUDIO_BYTES);
            if machine.setup().is_some() {
                let dialled = VoiceInput::Dialled { contents: 0, confirmed: 0 };
                prop_assert_eq!(machine.handle(dialled, now).into_iter().count(), 0);
            }
        }
    }
}
