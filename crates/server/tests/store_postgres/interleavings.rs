//! What replicas may do, in any order, and what must come of it.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    Take,
    Release,
    Write,
    Beat,
    /// Paused for longer than its lease.
    Die,
    Leave,
    /// A new life under the old name.
    Join,
}

/// One replica as it sees itself, and as it really is.
struct Life {
    replica: Replica,
    alive: bool,
    epoch: Option<Epoch>,
}

const REPLICAS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        4 => Just(Step::Take),
        2 => Just(Step::Release),
        4 => Just(Step::Write),
        1 => Just(Step::Beat),
        2 => Just(Step::Die),
        1 => Just(Step::Leave),
        3 => Just(Step::Join),
    ];
    proptest::collection::vec((0..REPLICAS, step), 1..40)
}

#[test]
fn are_those_of_one_owner() {
    for (home, cases) in [(Shared::new(), 16), (Shared::pooled(), 8)] {
        walk_often(&home, cases);
    }
}

fn walk_often(home: &Shared, cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(open(&home.url)).unwrap();
    let walks = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let walked = runner.run(&steps(), |steps| {
        walks.set(walks.get() + 1);
        runtime.block_on(walk(&home.url, &store, walks.get(), steps));
        Ok(())
    });
    walked.unwrap();
}

async fn walk(url: &str, store: &Arc<PostgresStore>, walk: u32, steps: Vec<(usize, Step)>) {
    let id = ChatId::from(format!("chat-{walk}"));
    let chat = ChatRef { id: &id, ..CHAT };
    store.create_chat(chat, at(1)).await.unwrap();
    let name = |index: usize| format!("w{walk}-{index}");
    let mut lives: Vec<Life> = Vec::new();
    for index in 0..REPLICAS {
        let replica = joined(store, &name(index)).await;
        lives.push(Life {
            replica,
            alive: true,
            epoch: None,
        });
    }
    // Who may write, and how often it was written.
    let mut owner: Option<(usize, Epoch)> = None;
    let mut written = 0u64;
    for (index, step) in steps {
        let held_by = owner;
        let life = &mut lives[index];
        let place = format!("{step:?} of {index}, owner {owner:?}");
        match step {
            Step::Take => {
                let claim = store.take(chat, &life.replica).await;
                match (life.alive, held_by) {
                    (false, _) => assert!(
                        matches!(claim, Err(StoreError::Fenced)),
                        "{place}: {claim:?}"
                    ),
                    (true, Some((other, _))) if other != index && lives[other].alive => {
                        let peer = lives[other].replica.peer.clone();
                        assert_eq!(claim.unwrap(), Claim::OwnedBy(peer), "{place}");
                    }
                    (true, before) => {
                        let Ok(Claim::Mine { epoch, .. }) = claim else {
                            panic!("{place}: {claim:?}")
                        };
                        assert!(before.is_none_or(|(_, before)| epoch > before), "{place}");
                        lives[index].epoch = Some(epoch);
                        owner = Some((index, epoch));
                    }
                }
            }
            Step::Release => {
                if let Some(epoch) = life.epoch {
                    store.release(chat, epoch, &life.replica).await.unwrap();
                    owner = owner.filter(|owner| *owner != (index, epoch));
                }
            }
            Step::Write => {
                if let Some(epoch) = life.epoch {
                    let fenced = store.clone().fenced(chat, epoch);
                    let add = fenced.update_state(
                        chat,
                        "n",
                        Box::new(|n| {
                            let next = n.and_then(|n| n.as_u64()).unwrap_or(0) + 1;
                            (Some(json!(next)), json!(next))
                        }),
                    );
                    match (add.await, owner == Some((index, epoch))) {
                        (Ok(value), true) => {
                            written += 1;
                            assert_eq!(value, json!(written), "{place}");
                        }
                        (Err(StoreError::Fenced), false) => {}
                        (other, _) => panic!("{place}: {other:?}"),
                    }
                }
            }
            Step::Beat => {
                let beat = store.heartbeat(&life.replica, false).await.unwrap();
                assert_eq!(
                    matches!(beat, Heartbeat::Alive { .. }),
                    life.alive,
                    "{place}"
                );
            }
            Step::Die => {
                bury(url, &life.replica);
                life.alive = false;
            }
            Step::Leave => {
                store.leave(&life.replica).await.unwrap();
                life.alive = false;
                owner = owner.filter(|(owner, _)| *owner != index);
            }
            Step::Join => {
                let fresh = replica(&name(index));
                let outcome = store.join(&fresh).await.unwrap();
                assert_eq!(
                    matches!(outcome, Joined::Member { .. }),
                    !life.alive,
                    "{place}"
                );
                if !life.alive {
                    // The old life keeps what it believes to have: its epoch.
                    life.replica = fresh;
                    life.alive = true;
                    // A dead life's chats are nobody's when its row is replaced.
                    owner = owner.filter(|(owner, _)| *owner != index);
                }
            }
        }
    }
    for life in lives {
        store.leave(&life.replica).await.unwrap();
    }
}
