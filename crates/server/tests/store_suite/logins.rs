//! Logins with the page: found by their id, ended one by one or all at once, and never without end.

use adk_bridge::store::{LoginRow, MAX_LOGINS};
use adk_bridge_protocol::id::UserId;

use super::*;

const HOUR: u64 = 3_600_000;

fn login(user: &str, id: &str, created: u64) -> LoginRow {
    LoginRow {
        id: id.to_owned(),
        user: UserId::from(user.to_owned()),
        body: json!({"of": user, "text": "a\u{0}b 日本"}).to_string(),
        created: at(created),
        seen: at(created),
        ends: at(created + 10 * HOUR),
    }
}

async fn ids(store: &dyn Store, all: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for id in all {
        found.extend(store.login(id).await.unwrap().map(|it| it.id));
    }
    found
}

pub(crate) async fn are_found_until_they_are_ended(home: &impl Home) {
    let store = home.open().await.unwrap();
    let all = ["a1", "a2", "b1"];
    assert_eq!(store.login("a1").await.unwrap(), None);
    for (user, id) in [("alice", "a1"), ("alice", "a2"), ("bob", "b1")] {
        store
            .add_login(&login(user, id, HOUR), at(0))
            .await
            .unwrap();
    }
    assert_eq!(
        store.login("a1").await.unwrap(),
        Some(login("alice", "a1", HOUR))
    );
    store.see_login("a1", at(2 * HOUR)).await.unwrap();
    // Of two replicas, one may be late.
    store.see_login("a1", at(HOUR + 1)).await.unwrap();
    store.see_login("nobody's", at(HOUR)).await.unwrap();
    assert_eq!(store.login("a1").await.unwrap().unwrap().seen, at(2 * HOUR));
    store.end_login("a1").await.unwrap();
    store.end_login("a1").await.unwrap();
    assert_eq!(ids(&*store, &all).await, ["a2", "b1"]);
    store
        .add_login(&login("alice", "a3", HOUR + 1), at(0))
        .await
        .unwrap();
    let alice = UserId::literal("alice");
    let hers = store.logins_of(&alice).await.unwrap();
    assert_eq!(
        hers.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(),
        ["a3", "a2"]
    );
    assert_eq!(hers[1], login("alice", "a2", HOUR));
    assert_eq!(store.end_logins_of(&alice).await.unwrap(), 2);
    assert_eq!(store.end_logins_of(&alice).await.unwrap(), 0);
    assert_eq!(store.logins_of(&alice).await.unwrap(), []);
    assert_eq!(ids(&*store, &["a1", "a2", "a3", "b1"]).await, ["b1"]);
}

pub(crate) async fn are_removed_when_they_are_over(home: &impl Home) {
    let store = home.open().await.unwrap();
    let mut short = login("alice", "short", HOUR);
    short.ends = at(2 * HOUR);
    store.add_login(&short, at(0)).await.unwrap();
    store
        .add_login(&login("alice", "unused", HOUR), at(0))
        .await
        .unwrap();
    store
        .add_login(&login("alice", "used", HOUR), at(0))
        .await
        .unwrap();
    store.see_login("used", at(3 * HOUR)).await.unwrap();
    // Whoever logs in removes those of everybody.
    store
        .add_login(&login("bob", "new", 4 * HOUR), at(2 * HOUR))
        .await
        .unwrap();
    let all = ["short", "unused", "used", "new"];
    assert_eq!(ids(&*store, &all).await, ["used", "new"]);
}

pub(crate) async fn of_one_user_are_bounded(home: &impl Home) {
    let store = home.open().await.unwrap();
    let names: Vec<_> = (0..=u64::from(MAX_LOGINS))
        .map(|it| format!("n{it}"))
        .collect();
    store
        .add_login(&login("bob", "his", 1), at(0))
        .await
        .unwrap();
    for (created, name) in (1..).zip(&names) {
        store
            .add_login(&login("alice", name, created), at(0))
            .await
            .unwrap();
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(ids(&*store, &all).await, all[1..]);
    assert_eq!(ids(&*store, &["his"]).await, ["his"]);
}
