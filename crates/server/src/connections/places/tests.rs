//! The rules for places, by example and for random sequences of connections.

use proptest::prelude::*;

use super::*;

fn places(in_use: usize, per_user: Option<usize>) -> Places {
    Places::new(Arc::new(Current::new(Bounds { in_use, per_user })))
}

fn entered(places: &mut Places, now: Instant) -> Id {
    match places.enter(now) {
        Entrance::Entered(id) => id,
        other => panic!("{other:?}"),
    }
}

/// Has a user send requests over separate connections until one is refused; returns how many it has.
fn take_all(places: &mut Places, user: &str, now: Instant) -> usize {
    for held in 0.. {
        let id = entered(places, now);
        places.begin(id, false).unwrap();
        if let Err(refused) = places.claim(id, &user.into()) {
            assert_eq!(refused.held, held);
            places.leave(id);
            return held;
        }
    }
    unreachable!("nobody may have endlessly many")
}

#[test]
fn one_user_has_half_and_the_next_half_of_the_rest() {
    let now = Instant::now();
    let mut many = places(300, Some(2_000));
    assert_eq!(many.bounds().of_one_user(), 150);
    let taken = ["a", "b", "c", "d"].map(|user| take_all(&mut many, user, now));
    assert_eq!(taken, [150, 75, 38, 19]);
    let mut few = places(300, Some(10));
    assert_eq!(take_all(&mut few, "a", now), 10);
    assert_eq!(few.bounds().of_one_user(), 10);
}

#[test]
fn the_only_user_may_have_all() {
    let now = Instant::now();
    let mut places = places(3, None);
    for _ in 0..3 {
        let id = entered(&mut places, now);
        assert_eq!(places.begin(id, false), Ok(()));
        assert_eq!(places.claim(id, &UserId::literal("local")), Ok(()));
        assert!(places.is_claimed(id));
    }
    let fourth = entered(&mut places, now);
    assert_eq!(places.begin(fourth, false), Err(NotBegun::Full));
    assert_eq!(places.begin(fourth, true), Ok(()), "how the server is");
    places.wait(fourth, now);
    assert_eq!(places.begin(fourth, false), Err(NotBegun::Full));
}

#[test]
fn in_a_rush_nobody_is_asked_to_leave_before_it_could_ask() {
    let mut places = places(2, None);
    let now = Instant::now();
    let first = entered(&mut places, now);
    for _ in 1..2 + LOBBY - GOING {
        entered(&mut places, now);
        assert_eq!(places.make_room(now), None);
    }
    let ripe = now + PATIENCE;
    assert_eq!(places.enter(now), Entrance::Crowded(Some(ripe)));
    assert_eq!(places.enter(ripe), Entrance::Cut(first));
    assert_eq!(
        places.begin(first, false),
        Err(NotBegun::Parting),
        "what goes begins nothing"
    );
    entered(&mut places, ripe);
    // Connections that were cut leave at some point.
    let later = ripe + PATIENCE;
    for _ in 1..GOING {
        assert!(matches!(places.enter(later), Entrance::Cut(_)));
        entered(&mut places, later);
    }
    assert_eq!(places.enter(later), Entrance::Crowded(None));
    places.leave(first);
    assert!(matches!(places.enter(later), Entrance::Cut(_)));
}

/// A newcomer waits only briefly in total, however many connections are idle.
#[test]
fn silent_connections_use_up_the_patience() {
    let mut places = places(2, None);
    let start = Instant::now();
    let mut now = start;
    for _ in 0..10_000 {
        loop {
            match places.enter(now) {
                Entrance::Entered(_) => break,
                Entrance::Cut(id) => places.leave(id),
                Entrance::Crowded(until) => now = until.unwrap(),
            }
        }
        if let Some(id) = places.make_room(now) {
            assert!(matches!(places.stages[&id], Stage::Parting { .. }));
        }
    }
    assert!(now - start <= 2 * PATIENCE, "{:?}", now - start);
    assert_eq!(places.patience, Duration::ZERO);
    places
        .stages
        .keys()
        .copied()
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|id| places.leave(id));
    entered(&mut places, now + CALM);
    assert_eq!(places.patience, PATIENCE);
}

#[test]
fn refused_sockets_go_first_and_are_few_for_each_address() {
    let now = Instant::now();
    let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let mut places = places(100, Some(100));
    let waits = entered(&mut places, now);
    let mut parting = Vec::new();
    for _ in 0..REFUSED_PER_ADDRESS {
        let id = entered(&mut places, now);
        places.begin(id, false).unwrap();
        assert!(places.part_refused(id, one));
        parting.push(id);
    }
    let id = entered(&mut places, now);
    places.begin(id, false).unwrap();
    assert!(!places.part_refused(id, one));
    assert!(places.part_refused(id, other));
    assert_eq!(places.busy, 0);
    while places.stages.len() < 100 + LOBBY - GOING {
        entered(&mut places, now);
    }
    let later = now + 2 * PATIENCE;
    for id in parting {
        assert_eq!(places.enter(later), Entrance::Cut(id));
        places.leave(id);
        entered(&mut places, later);
    }
    assert!(!places.refused.contains_key(&one));
    assert_eq!(places.enter(later), Entrance::Cut(id));
    places.leave(id);
    entered(&mut places, later);
    assert_eq!(places.enter(later), Entrance::Cut(waits));
}

#[derive(Debug, Clone)]
enum Step {
    Enter,
    Begin(usize, bool),
    Claim(usize, u8),
    Wait(usize),
    Refuse(usize, u8),
    Part(usize),
    Leave(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Enter),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(at, informed)| Step::Begin(at, informed)),
        4 => (any::<usize>(), 0..4_u8).prop_map(|(at, user)| Step::Claim(at, user)),
        2 => any::<usize>().prop_map(Step::Wait),
        1 => (any::<usize>(), 0..2_u8).prop_map(|(at, address)| Step::Refuse(at, address)),
        1 => any::<usize>().prop_map(Step::Part),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => (0..400_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// After every step: open and busy connections stay within their limits, no busy connection is closed, the one that
    /// has waited longest goes first, a user with none in use is not refused because of others, and every count matches
    /// the connections.
    #[test]
    fn the_rule_holds_however_connections_come_and_go(
        steps in proptest::collection::vec(step(), 0..400),
        in_use in 1..12_usize,
        per_user in proptest::option::of(1..8_usize),
    ) {
        let mut places = places(in_use, per_user);
        let mut now = Instant::now();
        let mut open: Vec<Id> = Vec::new();
        for step in steps {
            let pick = |at: usize| open.get(at % open.len().max(1)).copied().unwrap_or(Id::MAX);
            match step {
                Step::Enter => {
                    let oldest = places.waiting.values().next().copied();
                    match places.enter(now) {
                        Entrance::Entered(id) => {
                            open.push(id);
                            let oldest = places.waiting.values().next().copied();
                            if let Some(asked) = places.make_room(now) {
                                prop_assert_eq!(Some(asked), oldest.map(|(id, _)| id));
                            }
                        }
                        Entrance::Cut(id) => {
                            let is_parting = matches!(places.stages[&id], Stage::Parting { .. });
                            prop_assert!(is_parting);
                        }
                        // It does not have to wait for connections that are leaving, nor for one that may be asked to
                        // leave.
                        Entrance::Crowded(None) if places.stages.len() == in_use + LOBBY => {}
                        Entrance::Crowded(until) => {
                            prop_assert_eq!(until.is_some(), oldest.is_some());
                            prop_assert!(until.is_none_or(|until| until > now));
                            prop_assert!(places.parting.is_empty());
                        }
                    }
                }
                Step::Begin(at, informed) => {
                    let begun = places.begin(pick(at), informed);
                    prop_assert!(!(informed && begun == Err(NotBegun::Full)));
                }
                Step::Claim(at, user) => {
                    let user = format!("user{user}").into();
                    let held = places.users.get(&user).copied().unwrap_or_default();
                    let free = in_use - places.busy;
                    let claimed = places.claim(pick(at), &user);
                    prop_assert!(claimed.is_ok() || held > 0);
                    prop_assert!(claimed.is_ok() || held > free || Some(held) >= per_user);
                }
                Step::Wait(at) => places.wait(pick(at), now),
                Step::Refuse(at, address) => {
                    places.part_refused(pick(at), IpAddr::from([192, 0, 2, address]));
                }
                Step::Part(at) => places.part(pick(at)),
                Step::Leave(at) => {
                    let id = pick(at);
                    places.leave(id);
                    open.retain(|it| *it != id);
                }
                Step::Pass(milliseconds) => now += Duration::from_millis(milliseconds),
            }
            check(&places, &open)?;
        }
        for id in open {
            places.leave(id);
        }
        check(&places, &[])?;
        prop_assert!(places.users.is_empty() && places.refused.is_empty());
    }
}

fn check(places: &Places, open: &[Id]) -> Result<(), TestCaseError> {
    let count = |is: fn(&Stage) -> bool| places.stages.values().filter(|it| is(it)).count();
    prop_assert!(places.stages.len() <= places.bounds().in_use + LOBBY);
    prop_assert!(open.iter().all(|id| places.stages.contains_key(id)));
    prop_assert_eq!(open.len(), places.stages.len());
    let busy = count(|it| matches!(it, Stage::Busy { .. }));
    prop_assert_eq!(busy, places.busy);
    prop_assert!(busy <= places.bounds().in_use);
    let waiting = count(|it| matches!(it, Stage::Waiting { .. }));
    prop_assert_eq!(waiting, places.waiting.len());
    let parting = count(|it| matches!(it, Stage::Parting { .. }));
    prop_assert_eq!(parting, places.leaving);
    let claimed = count(|it| matches!(it, Stage::Busy { user: Some(_) }));
    prop_assert_eq!(claimed, places.users.values().sum::<usize>());
    prop_assert!(places.users.values().all(|held| *held > 0));
    let per_user = places.bounds().per_user.unwrap_or(usize::MAX);
    prop_assert!(places.users.values().all(|held| *held <= per_user));
    prop_assert!(places.refused.values().all(|it| *it <= REFUSED_PER_ADDRESS));
    Ok(())
}
