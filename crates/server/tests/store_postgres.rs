//! The store in PostgreSQL: the suite of all stores, directly and through pgbouncer, and what only a shared database can
//! show.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "store_postgres/interleavings.rs"]
mod interleavings;
#[macro_use]
mod store_suite;

use std::sync::Arc;
use std::time::Duration;

use adk_bridge::cluster::{
    Claim, Epoch, Heartbeat, Instance, Joined, Ownership as _, Peer, Replica,
};
use adk_bridge::store::postgres::{PostgresConfig, PostgresStore};
use adk_bridge::store::{
    AuditPage, ChatRef, Cut, FileRow, GrownReply, Opening, Pending, ReplyUsage, Store, StoreError,
    TokenPrice, Tokens,
};
use adk_bridge_protocol::id::ChatId;
use adk_bridge_protocol::message::Extent;
use adk_bridge_protocol::outbox::AuditKind;
use adk_bridge_testkit::postgres::{Pgbouncer, Postgres, database_of};
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};
use store_suite::{CHAT, Home, M1, M2, at, audit, finished, reply, user};

mod direct {
    use super::*;

    store_suite!(Shared::new());
}

mod pooled {
    use super::*;

    store_suite!(Shared::pooled());
}

/// A database of the server that all tests share.
struct Shared {
    url: String,
}

impl Shared {
    fn new() -> Self {
        Self {
            url: Postgres::shared().database(),
        }
    }

    /// The same through pgbouncer.
    fn pooled() -> Self {
        let direct = Self::new();
        Self {
            url: Pgbouncer::shared().url(database_of(&direct.url)),
        }
    }
}

impl Home for Shared {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(open(&self.url).await? as Arc<dyn Store>) })
    }
}

async fn open(url: &str) -> Result<Arc<PostgresStore>, StoreError> {
    let config = PostgresConfig {
        url,
        connections: 8,
        prepared_statements: None,
    };
    Ok(Arc::new(PostgresStore::open(config).await?))
}

/// A replica whose lease never runs out while a test runs: tests make it dead.
fn replica(name: &str) -> Replica {
    Replica {
        peer: Peer {
            name: name.to_owned(),
            address: format!("http://{name}:8080").parse().unwrap(),
        },
        instance: Instance::new(),
        lease: Duration::from_secs(3_600),
    }
}

/// Makes a replica dead to the others, whatever its process does.
fn bury(url: &str, replica: &Replica) {
    let sql = format!(
        "UPDATE adk_bridge.replicas SET heartbeat = heartbeat - interval '2 hours' WHERE instance = '{}'",
        replica.instance.as_str()
    );
    Postgres::shared().sql(database_of(url), &sql);
}

async fn joined(store: &PostgresStore, name: &str) -> Replica {
    let replica = replica(name);
    let joined = store.join(&replica).await.unwrap();
    assert!(matches!(joined, Joined::Member { .. }), "{joined:?}");
    replica
}

#[tokio::test]
async fn a_chat_has_one_owner() {
    let home = Shared::new();
    let (one, two) = (
        open(&home.url).await.unwrap(),
        open(&home.url).await.unwrap(),
    );
    let (a, b) = (joined(&one, "a").await, joined(&two, "b").await);
    // Two processes with one name are a mistake.
    let twin = two.join(&replica("a")).await.unwrap();
    assert!(
        matches!(&twin, Joined::NameTaken { by, .. } if *by == a.peer),
        "{twin:?}"
    );

    let mine = |claim| match claim {
        Claim::Mine { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    };
    let first = mine(one.take(CHAT, &a).await.unwrap());
    assert_eq!(
        two.take(CHAT, &b).await.unwrap(),
        Claim::OwnedBy(a.peer.clone())
    );
    assert_eq!(two.owner(CHAT).await.unwrap(), Some(a.peer.clone()));
    let again = mine(one.take(CHAT, &a).await.unwrap());
    assert!(again > first);
    // Only the epoch that holds it gives it back.
    one.release(CHAT, first, &a).await.unwrap();
    assert_eq!(
        two.take(CHAT, &b).await.unwrap(),
        Claim::OwnedBy(a.peer.clone())
    );
    one.release(CHAT, again, &a).await.unwrap();
    assert_eq!(two.owner(CHAT).await.unwrap(), None);
    let third = mine(two.take(CHAT, &b).await.unwrap());
    assert!(third > again);

    // A dead owner is none, and cannot come back.
    bury(&home.url, &b);
    assert_eq!(one.owner(CHAT).await.unwrap(), None);
    assert_eq!(two.heartbeat(&b, false).await.unwrap(), Heartbeat::Dead);
    assert!(matches!(two.take(CHAT, &b).await, Err(StoreError::Fenced)));
    assert!(mine(one.take(CHAT, &a).await.unwrap()) > third);

    // Its name is free, and what it owned is not its successor's.
    let other = ChatRef {
        id: &ChatId::literal("chat-2"),
        ..CHAT
    };
    let c = joined(&two, "b").await;
    mine(two.take(other, &c).await.unwrap());
    match one.heartbeat(&a, false).await.unwrap() {
        Heartbeat::Alive { peers, .. } => assert_eq!(peers, std::slice::from_ref(&c.peer)),
        dead => panic!("{dead:?}"),
    }
    two.heartbeat(&c, true).await.unwrap();
    match one.heartbeat(&a, false).await.unwrap() {
        Heartbeat::Alive { peers, .. } => assert_eq!(peers, [], "one that drains takes no chats"),
        dead => panic!("{dead:?}"),
    }
    two.leave(&c).await.unwrap();
    mine(one.take(other, &a).await.unwrap());
}

#[tokio::test]
async fn chats_without_an_owner_are_found() {
    let home = Shared::new();
    let store = open(&home.url).await.unwrap();
    let (a, b) = (joined(&store, "a").await, joined(&store, "b").await);
    let orphans = async || {
        let found = store.orphans(10).await.unwrap();
        let mut ids: Vec<_> = found
            .iter()
            .map(|orphan| orphan.chat_id.to_string())
            .collect();
        ids.sort();
        ids
    };
    for (id, ended) in [("waits", false), ("runs", false), ("done", true)] {
        let chat = ChatRef {
            id: &id.into(),
            ..CHAT
        };
        store.create_chat(chat, at(1)).await.unwrap();
        let record = match ended {
            true => finished("m1", "done"),
            false => reply("m1", "going on"),
        };
        store.take(chat, &a).await.unwrap();
        store.commit(chat, &record, &[], at(1)).await.unwrap();
    }
    assert!(orphans().await.is_empty());
    bury(&home.url, &a);
    assert_eq!(orphans().await, ["runs", "waits"]);
    let runs = ChatRef {
        id: &"runs".into(),
        ..CHAT
    };
    let Claim::Mine { epoch, .. } = store.take(runs, &b).await.unwrap() else {
        panic!("it has an owner");
    };
    assert_eq!(orphans().await, ["waits"]);
    store.release(runs, epoch, &b).await.unwrap();
    assert_eq!(orphans().await, ["runs", "waits"]);
    // What a dead one leaves of chats that need nobody is forgotten.
    let held = "SELECT count(*) FROM adk_bridge.ownership WHERE chat_id = 'done'";
    assert_eq!(Postgres::shared().sql(database_of(&home.url), held), "0\n");
}

#[tokio::test]
async fn a_replica_looks_through_its_chats() {
    let home = Shared::new();
    let store = open(&home.url).await.unwrap();
    let (a, b) = (joined(&store, "a").await, joined(&store, "b").await);
    for (id, owner) in [("1", &a), ("2", &b), ("3", &a), ("4", &a)] {
        let chat = ChatRef {
            id: &id.into(),
            ..CHAT
        };
        store.take(chat, owner).await.unwrap();
    }
    let (mut seen, mut after) = (Vec::new(), Epoch::FIRST);
    loop {
        let owned = store.owned(&a, after, 2).await.unwrap();
        let Some(last) = owned.last() else { break };
        after = last.epoch;
        seen.extend(owned.iter().map(|chat| chat.chat_id.to_string()));
    }
    assert_eq!(seen, ["1", "3", "4"]);
}

/// While a new lease replaces an old one, replicas differ in it; each counts on its own.
#[tokio::test]
async fn a_replica_is_dead_after_its_own_lease() {
    let home = Shared::new();
    let store = open(&home.url).await.unwrap();
    let patient = joined(&store, "patient").await;
    let hasty = Replica {
        lease: Duration::from_secs(3),
        ..replica("hasty")
    };
    store.join(&hasty).await.unwrap();
    let both = [("of-patient", &patient), ("of-hasty", &hasty)];
    for (id, owner) in both {
        let chat = ChatRef {
            id: &id.into(),
            ..CHAT
        };
        store.create_chat(chat, at(1)).await.unwrap();
        store.take(chat, owner).await.unwrap();
        let record = reply("m1", "going on");
        store.commit(chat, &record, &[], at(1)).await.unwrap();
    }
    let [of_patient, of_hasty] = both.map(|(id, _)| ChatId::from(id));
    let of_patient = ChatRef {
        id: &of_patient,
        ..CHAT
    };
    let of_hasty = ChatRef {
        id: &of_hasty,
        ..CHAT
    };
    Postgres::shared().sql(
        database_of(&home.url),
        "UPDATE adk_bridge.replicas SET heartbeat = heartbeat - interval '30 seconds' WHERE name = 'patient'",
    );
    assert_eq!(
        store.owner(of_patient).await.unwrap(),
        Some(patient.peer.clone())
    );
    assert_eq!(
        store.take(of_patient, &hasty).await.unwrap(),
        Claim::OwnedBy(patient.peer.clone())
    );
    assert_eq!(store.orphans(10).await.unwrap(), []);
    match store.heartbeat(&hasty, false).await.unwrap() {
        Heartbeat::Alive { peers, .. } => assert_eq!(peers, std::slice::from_ref(&patient.peer)),
        dead => panic!("{dead:?}"),
    }

    Postgres::shared().sql(
        database_of(&home.url),
        "UPDATE adk_bridge.replicas SET heartbeat = heartbeat - interval '30 seconds' WHERE name = 'hasty'",
    );
    assert_eq!(store.owner(of_hasty).await.unwrap(), None);
    let orphans = store.orphans(10).await.unwrap();
    let orphans: Vec<_> = orphans.iter().map(|orphan| &orphan.chat_id).collect();
    assert_eq!(orphans, [of_hasty.id]);
    assert_eq!(
        store.heartbeat(&hasty, false).await.unwrap(),
        Heartbeat::Dead
    );
    let taken = store.take(of_hasty, &patient).await.unwrap();
    let silent = |taken: &Claim| match taken {
        Claim::Mine { silent, .. } => *silent,
        Claim::OwnedBy(_) => panic!("{taken:?}"),
    };
    let lately = Duration::from_secs(30)..Duration::from_secs(300);
    assert!(
        silent(&taken).is_some_and(|silent| lately.contains(&silent)),
        "{taken:?}"
    );
    // Its own chat is not taken over.
    let again = store.take(of_hasty, &patient).await.unwrap();
    assert_eq!(silent(&again), None);
}

/// Whoever was paused and goes on is refused everywhere, and changes nothing.
#[tokio::test]
async fn an_owner_of_before_stores_nothing() {
    for home in [Shared::new(), Shared::pooled()] {
        a_zombie_changes_nothing(&home).await;
    }
}

async fn a_zombie_changes_nothing(home: &Shared) {
    let (one, two) = (
        open(&home.url).await.unwrap(),
        open(&home.url).await.unwrap(),
    );
    let (a, b) = (joined(&one, "a").await, joined(&two, "b").await);
    let Claim::Mine { epoch, .. } = one.take(CHAT, &a).await.unwrap() else {
        panic!("it has an owner");
    };
    let zombie = one.clone().fenced(CHAT, epoch);
    zombie.create_chat(CHAT, at(1)).await.unwrap();
    zombie
        .append(CHAT, &[user("m1", "hi")], Cut::Nothing, at(1))
        .await
        .unwrap();
    zombie
        .commit(CHAT, &reply("m2", "so far"), &[], at(1))
        .await
        .unwrap();

    bury(&home.url, &a);
    let Claim::Mine { epoch: next, .. } = two.take(CHAT, &b).await.unwrap() else {
        panic!("a dead one has it");
    };
    let owner = two.clone().fenced(CHAT, next);
    let before = (
        owner.messages(CHAT).await.unwrap(),
        owner.overview(CHAT).await.unwrap(),
    );
    let (record, entry) = (reply("m2", "more"), [audit(AuditKind::ToolStarted, "")]);
    let question = [user("m3", "again")];
    let opening = Opening {
        messages: &question,
        cut: Cut::Nothing,
        heard: false,
        agent: None,
    };
    let new = reply("m4", "new");
    let file = FileRow {
        id: "0a".to_owned(),
        chat_id: CHAT.id.clone(),
        user: CHAT.user.clone(),
        media_type: "text/plain".to_owned(),
        bytes: 1,
        name: None,
        created: at(1),
    };
    let usage = ReplyUsage {
        message_id: M2,
        agent: "a",
        day: 1,
        so_far: Tokens {
            input: 1,
            ..Tokens::default()
        },
        price: TokenPrice::default(),
    };
    let refused = [
        ("create", zombie.create_chat(CHAT, at(2)).await.map(|_| ())),
        ("title", zombie.set_title(CHAT, "mine").await),
        ("delete", zombie.delete_chat(CHAT).await.map(|_| ())),
        (
            "seen",
            zombie.mark_seen(CHAT, std::slice::from_ref(M2)).await,
        ),
        (
            "append",
            zombie
                .append(CHAT, &question, Cut::Nothing, at(2))
                .await
                .map(|_| ()),
        ),
        (
            "begin",
            zombie
                .begin(CHAT, opening, &new, &[], at(2))
                .await
                .map(|_| ()),
        ),
        ("revise", zombie.revise(CHAT, &user("m1", "ho")).await),
        (
            "commit",
            zombie.commit(CHAT, &record, &[], at(2)).await.map(|_| ()),
        ),
        (
            "lasting commit",
            zombie
                .commit(CHAT, &record, &entry, at(2))
                .await
                .map(|_| ()),
        ),
        ("checkpoint", zombie.checkpoint(CHAT, &record).await),
        ("audit", zombie.append_audit(CHAT, &entry).await),
        (
            "state",
            zombie
                .update_state(CHAT, "k", Box::new(|_| panic!("asked")))
                .await
                .map(|_| ()),
        ),
        (
            "events",
            zombie
                .append_events(CHAT, 0, M2, vec!["{}".to_owned()])
                .await,
        ),
        ("file", zombie.add_file(&file).await),
        ("usage", zombie.count_usage(CHAT, usage).await.map(|_| ())),
    ];
    for (what, result) in refused {
        assert!(
            matches!(result, Err(StoreError::Fenced)),
            "{what}: {result:?}"
        );
    }
    // Nobody is told of growth that comes late, and nothing of it is there.
    let open = owner.open_replies_of(CHAT).await.unwrap();
    let grown = |epoch| GrownReply {
        user: CHAT.user.clone(),
        chat_id: CHAT.id.clone(),
        epoch: Some(epoch),
        message_id: M2.clone(),
        texts: Extent::of(&open[0].message)
            .grow(&reply("m2", "so far and more").message)
            .unwrap(),
    };
    zombie.grow_replies(&[grown(epoch)]).await.unwrap();
    assert_eq!(owner.open_replies_of(CHAT).await.unwrap(), open);
    let after = (
        owner.messages(CHAT).await.unwrap(),
        owner.overview(CHAT).await.unwrap(),
    );
    assert_eq!(after, before);
    owner.grow_replies(&[grown(next)]).await.unwrap();
    assert_ne!(owner.open_replies_of(CHAT).await.unwrap(), open);
    assert_eq!(owner.audit(CHAT, AuditPage::default()).await.unwrap(), []);
    assert_eq!(owner.usage_of_day(CHAT.user, 1).await.unwrap(), []);
    // Another chat is not its business, and reading is free.
    let other = ChatRef {
        id: &ChatId::literal("chat-2"),
        ..CHAT
    };
    zombie.create_chat(other, at(2)).await.unwrap();
    zombie.messages(CHAT).await.unwrap();
    owner.commit(CHAT, &record, &entry, at(2)).await.unwrap();

    // One that gave the chat back is no owner either.
    two.release(CHAT, next, &b).await.unwrap();
    assert!(matches!(
        owner.checkpoint(CHAT, &record).await,
        Err(StoreError::Fenced)
    ));
}

/// What a gathered checkpoint has for chats that are being deleted, taken over or stored whole is left out without waiting, and
/// the caller learns of it. What an owner of before brings later belongs to nobody.
#[tokio::test]
async fn growth_is_stored_for_the_owner_of_an_open_reply_only() {
    for home in [Shared::new(), Shared::pooled()] {
        growth_is_stored_for_the_owner(&home).await;
    }
}

async fn growth_is_stored_for_the_owner(home: &Shared) {
    let store = open(&home.url).await.unwrap();
    let (a, b) = (joined(&store, "a").await, joined(&store, "b").await);
    let names = ["deleted", "taken", "ending", "other"].map(ChatId::literal);
    let chats = names.each_ref().map(|id| ChatRef { id, ..CHAT });
    let [_, _, _, other] = chats;
    let mut pieces = Vec::new();
    for chat in [CHAT].into_iter().chain(chats) {
        let Claim::Mine { epoch, .. } = store.take(chat, &a).await.unwrap() else {
            panic!("it has an owner");
        };
        let owner = store.clone().fenced(chat, epoch);
        owner.create_chat(chat, at(1)).await.unwrap();
        owner
            .commit(chat, &reply("m1", "so"), &[], at(1))
            .await
            .unwrap();
        let mut extent = Extent::of(&reply("m1", "so").message);
        let texts = extent.grow(&reply("m1", "so far").message).unwrap();
        pieces.push(GrownReply {
            user: chat.user.clone(),
            chat_id: chat.id.clone(),
            epoch: Some(epoch),
            message_id: M1.clone(),
            texts,
        });
    }
    let late = pieces.remove(0);
    let direct = Postgres::shared().url(database_of(&home.url));
    let mut others = PgConnection::connect(&direct).await.unwrap();
    let mut others = others.begin().await.unwrap();
    for change in [
        "DELETE FROM adk_bridge.chats WHERE id = 'deleted'",
        "UPDATE adk_bridge.ownership SET epoch = epoch + 1 WHERE chat_id = 'taken'",
        "UPDATE adk_bridge.messages SET open = false WHERE chat = (SELECT key FROM adk_bridge.chats WHERE id = 'ending')",
    ] {
        others.execute(change).await.unwrap();
    }
    let mut left_out = store.grow_replies(&pieces).await.unwrap();
    left_out.sort_unstable();
    assert_eq!(left_out, [0, 1, 2]);
    others.commit().await.unwrap();
    let rows = "SELECT string_agg(c.id, ' ') FROM adk_bridge.grown_texts g
                JOIN adk_bridge.messages m ON m.seq = g.message JOIN adk_bridge.chats c ON c.key = m.chat";
    let database = database_of(&home.url);
    assert_eq!(Postgres::shared().sql(database, rows), "other\n");
    let open = store.open_replies_of(other).await.unwrap();
    assert_eq!(open, [reply("m1", "so far")]);
    // Nothing is being written now, so that nobody has to store more than that.
    assert!(store.grow_replies(&pieces).await.unwrap().is_empty());
    assert_eq!(Postgres::shared().sql(database, rows), "other\n");

    bury(&home.url, &a);
    let Claim::Mine { epoch: next, .. } = store.take(CHAT, &b).await.unwrap() else {
        panic!("a dead one has it");
    };
    let owner = store.clone().fenced(CHAT, next);
    // As an owner writes that asks for the step again, and has got the same words so far.
    owner.checkpoint(CHAT, &reply("m1", "so")).await.unwrap();
    store
        .grow_replies(std::slice::from_ref(&late))
        .await
        .unwrap();
    let open = owner.open_replies_of(CHAT).await.unwrap();
    assert_eq!(open, [reply("m1", "so")]);
    let mut extent = Extent::of(&reply("m1", "so").message);
    let mine = GrownReply {
        epoch: Some(next),
        texts: extent.grow(&reply("m1", "so what").message).unwrap(),
        ..late
    };
    store.grow_replies(&[mine]).await.unwrap();
    let open = owner.open_replies_of(CHAT).await.unwrap();
    assert_eq!(open, [reply("m1", "so what")]);
    owner
        .checkpoint(CHAT, &reply("m1", "so what"))
        .await
        .unwrap();
    assert_eq!(
        Postgres::shared().sql(database, rows),
        "other\n",
        "pieces of a message that is stored whole"
    );
}

/// A write that was given up and repeated may still arrive, after others that were asked for later.
#[tokio::test]
async fn a_write_that_comes_late_is_refused() {
    for home in [Shared::new(), Shared::pooled()] {
        a_late_write_is_refused(&home).await;
    }
}

async fn a_late_write_is_refused(home: &Shared) {
    let store = open(&home.url).await.unwrap();
    let a = joined(&store, "a").await;
    let Claim::Mine { epoch, .. } = store.take(CHAT, &a).await.unwrap() else {
        panic!("it has an owner");
    };
    let owner = store.clone().fenced(CHAT, epoch);
    owner.create_chat(CHAT, at(1)).await.unwrap();
    for text in ["one", "two"] {
        owner
            .commit(CHAT, &reply("m1", text), &[], at(1))
            .await
            .unwrap();
    }
    let (question, entry) = (user("m2", "hi"), [audit(AuditKind::ToolStarted, "")]);
    owner
        .append(CHAT, std::slice::from_ref(&question), Cut::Nothing, at(1))
        .await
        .unwrap();
    owner.append_audit(CHAT, &entry).await.unwrap();
    let said = vec!["{}".to_owned()];
    owner.append_events(CHAT, 0, M2, said).await.unwrap();
    owner.revise(CHAT, &question).await.unwrap();
    let stored = async || {
        (
            owner.messages(CHAT).await.unwrap(),
            owner.open_replies_of(CHAT).await.unwrap(),
            owner.audit(CHAT, AuditPage::default()).await.unwrap(),
            owner.events(CHAT, 0).await.unwrap(),
        )
    };
    let before = stored().await;
    // The first write of the process has the number 1, and no later one has its name.
    let late = [
        "checkpoint_reply('alice', 'chat-1', EPOCH, 1, 'm1', 'running', true, '{}', '{}', '{}')",
        "commit_reply('alice', 'chat-1', EPOCH, NAME, 1, 2, 'm1', 'running', true, '{}', '{}', '{}')",
        "append_messages('alice', 'chat-1', EPOCH, NAME, 1, 2, '{}', '{}', null, 0, 'after', 'm1', '{}')",
        "revise_message('alice', 'chat-1', EPOCH, 1, 'm2', '{}', null, null)",
        "append_events('alice', 'chat-1', EPOCH, NAME, 1, 0, 'm2', '{late}')",
        "append_audit('alice', 'chat-1', EPOCH, NAME, 1, '{1}', '{null}', '{null}', '{tool.started}', '{null}',
             '{null}', '{null}', '{null}', '{null}', '{null}', '{null}', '{null}')",
    ];
    for late in late {
        let late = late
            .replace("EPOCH", &epoch.get().to_string())
            .replace("NAME", "gen_random_uuid()");
        let late = format!(
            "DO $$ BEGIN
                 PERFORM adk_bridge.{late};
                 RAISE 'stored';
             EXCEPTION WHEN SQLSTATE 'ZB001' THEN NULL; END $$"
        );
        Postgres::shared().sql(database_of(&home.url), &late);
    }
    assert_eq!(stored().await, before);
    assert_eq!(before.1, [reply("m1", "two")]);
}

/// A take-over waits for a write that is under way, and not longer than a stopped process may hold it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_waits_for_a_write() {
    let home = Shared::new();
    let store = open(&home.url).await.unwrap();
    let (a, b) = (joined(&store, "a").await, joined(&store, "b").await);
    let Claim::Mine { epoch, .. } = store.take(CHAT, &a).await.unwrap() else {
        panic!("it has an owner");
    };
    store.create_chat(CHAT, at(1)).await.unwrap();
    let owner = store.clone().fenced(CHAT, epoch);
    let (begun, in_progress) = std::sync::mpsc::channel();
    let (go_on, going_on) = std::sync::mpsc::channel::<()>();
    // The transaction is open while the tool decides.
    let writing = tokio::task::spawn_blocking(move || {
        let change = move |_| {
            begun.send(()).unwrap();
            going_on.recv().unwrap();
            (Some(json!(1)), json!("written"))
        };
        tokio::runtime::Handle::current().block_on(owner.update_state(CHAT, "k", Box::new(change)))
    });
    tokio::task::block_in_place(|| in_progress.recv().unwrap());
    bury(&home.url, &a);
    let taking = tokio::spawn({
        let (store, b) = (store.clone(), b.clone());
        async move { store.take(CHAT, &b).await }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%take_chat%'
                   AND datname = current_database()";
    while Postgres::shared().sql(database_of(&home.url), waiting) != "1\n" {
        assert!(!taking.is_finished(), "it has not waited");
        tokio::task::yield_now().await;
    }
    go_on.send(()).unwrap();
    // Whichever was first, the other knows.
    let written = writing.await.unwrap();
    let taken = taking.await.unwrap().unwrap();
    assert!(
        matches!(taken, Claim::Mine { epoch: next, .. } if next > epoch),
        "{taken:?}"
    );
    match written {
        Ok(value) => {
            assert_eq!(value, json!("written"));
            assert_eq!(store.state(CHAT, "k").await.unwrap(), Some(json!(1)));
        }
        // A busy machine took longer than the database lets a stopped process hold a lock.
        Err(error) => assert!(matches!(error, StoreError::Fenced), "{error:?}"),
    }
}

#[tokio::test]
async fn replicas_that_start_at_once_make_one_schema() {
    let home = Shared::pooled();
    let opening = (0..8).map(|_| open(&home.url));
    for opened in futures_util::future::join_all(opening).await {
        let store = opened.unwrap();
        store.create_chat(CHAT, at(1)).await.unwrap();
        assert!(!store.identity().await.unwrap().is_empty);
    }
    let server = Postgres::shared();
    let database = database_of(&home.url);
    let refusal = async || match open(&home.url).await {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    };
    server.sql(
        database,
        "INSERT INTO adk_bridge.migrations (version, checksum) VALUES (999, '')",
    );
    let error = refusal().await.to_string();
    assert!(error.contains("newer version (schema 999)"), "{error}");
    server.sql(
        database,
        "DELETE FROM adk_bridge.migrations WHERE version = 999;
                          UPDATE adk_bridge.migrations SET checksum = '' WHERE version = 1",
    );
    let error = refusal().await.to_string();
    assert!(error.starts_with("schema 1 of postgres://"), "{error}");
    server.sql(
        database,
        "DROP SCHEMA adk_bridge CASCADE; CREATE SCHEMA adk_bridge",
    );
    let error = refusal().await.to_string();
    assert!(error.contains("is not a database of adk-bridge"), "{error}");
}

/// A URL may hold a password, and what is wrong with it is said without it.
#[tokio::test]
async fn a_url_that_leads_nowhere_is_explained() {
    let nobody = Postgres::shared().url("nobody");
    for (url, words) in [
        (nobody.as_str(), "check store.url"),
        (
            "postgres://me:PLANTED@localhost/x?passwort=PLANTED",
            "a parameter that is not known",
        ),
        ("postgres://me:PLANTED@[", "reading store.url"),
        (
            "postgres://me:PLANTED@localhost/x?sslmode=PLANTED",
            "reading store.url",
        ),
    ] {
        let Err(error) = open(url).await else {
            panic!("{url} was opened");
        };
        let said = format!("{error} {error:?}");
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("PLANTED"), "{said}");
    }
}

/// Under way while the database is restarted: what is acknowledged is there, once and in order, and nobody notices.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_and_repeats_nothing() {
    const WRITERS: usize = 4;
    let server = Arc::new(Postgres::start());
    let url = server.database();
    let store = open(&url).await.unwrap();
    let restarting = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let writers = (0..WRITERS).map(|writer| {
        let (store, restarting) = (store.clone(), restarting.clone());
        tokio::spawn(async move {
            let id = ChatId::from(format!("chat-{writer}"));
            let chat = ChatRef { id: &id, ..CHAT };
            store.create_chat(chat, at(1)).await.unwrap();
            let mut written = 0;
            while restarting.load(std::sync::atomic::Ordering::Relaxed) {
                let entry = [audit(AuditKind::ToolStarted, &written.to_string())];
                let record = reply("m1", &written.to_string());
                store.commit(chat, &record, &entry, at(1)).await.unwrap();
                let put = store.update_state(
                    chat,
                    "count",
                    Box::new(|count| {
                        let next = count.and_then(|count| count.as_u64()).unwrap_or(0) + 1;
                        (Some(json!(next)), json!(next))
                    }),
                );
                written += 1;
                assert_eq!(put.await.unwrap(), json!(written));
            }
            written
        })
    });
    let writers: Vec<_> = writers.collect();
    for at_once in [false, true, false, true] {
        let server = server.clone();
        tokio::task::spawn_blocking(move || {
            server.stop(at_once);
            server.resume();
        })
        .await
        .unwrap();
        // Everybody has got on.
        store.try_write(at(1)).await.ok();
        store.create_chat(CHAT, at(1)).await.unwrap();
    }
    restarting.store(false, std::sync::atomic::Ordering::Relaxed);
    for (writer, task) in writers.into_iter().enumerate() {
        let written: u64 = task.await.unwrap();
        let id = ChatId::from(format!("chat-{writer}"));
        let chat = ChatRef { id: &id, ..CHAT };
        let (mut rows, mut page) = (Vec::new(), AuditPage::default());
        loop {
            let more = store.audit(chat, page).await.unwrap();
            let Some(last) = more.last() else { break };
            page.after = last.id;
            rows.extend(more.into_iter().map(|row| row.reason.unwrap()));
        }
        let expected: Vec<_> = (0..written).map(|number| number.to_string()).collect();
        assert_eq!(rows, expected);
    }
}

/// A crash of the database loses nothing that was acknowledged: a question, an answer, the output of a tool in the page, a
/// heartbeat.
#[tokio::test]
async fn a_crash_of_the_database_loses_no_commit() {
    let server = Postgres::start().forgetful();
    let url = server.database();
    let store = open(&url).await.unwrap();
    let question = [user("m1", "hi")];
    let opening = Opening {
        messages: &question,
        cut: Cut::Nothing,
        heard: false,
        agent: None,
    };
    let begun = reply("m2", "");
    store
        .begin(CHAT, opening, &begun, &[], at(1))
        .await
        .unwrap();
    server.crash();
    assert_eq!(store.messages(CHAT).await.unwrap().len(), 2);

    let ended = finished("m2", "done");
    store.commit(CHAT, &ended, &[], at(2)).await.unwrap();
    server.crash();
    assert_eq!(store.reply(CHAT, M2).await.unwrap(), Some(ended));

    let a = joined(&store, "a").await;
    server.sql(
        database_of(&url),
        "UPDATE adk_bridge.replicas SET heartbeat = heartbeat - interval '30 minutes'",
    );
    store.heartbeat(&a, false).await.unwrap();
    server.crash();
    let silent = "SELECT adk_bridge.silence(r) < 600000 FROM adk_bridge.replicas r";
    assert_eq!(server.sql(database_of(&url), silent), "t\n");

    // A checkpoint may be lost, and the next commit makes it last.
    let events = vec!["{}".to_owned()];
    store.append_events(CHAT, 0, M2, events).await.unwrap();
    let next = reply("m3", "more");
    store.commit(CHAT, &next, &[], at(3)).await.unwrap();
    server.crash();
    assert_eq!(store.events(CHAT, 0).await.unwrap().len(), 1);
}

/// The database answers nobody: errors come in time and say why.
#[tokio::test]
async fn a_database_that_is_away_is_reported() {
    let server = Postgres::start();
    let store = open(&server.database()).await.unwrap();
    store.try_write(at(1)).await.unwrap();
    server.stop(true);
    let error = store.try_write(at(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.starts_with("the database cannot be reached ("),
        "{said}"
    );
    server.resume();
    store.create_chat(CHAT, at(3)).await.unwrap();
    store.try_write(at(3)).await.unwrap();
}
