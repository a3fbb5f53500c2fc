//! What was cut and comes back, and what no client has had.

use adk_bridge::store::{Cut, Opening};
use adk_bridge_protocol::id::MessageId;

use super::*;

pub(crate) async fn come_back_to_what_was_cut(home: &impl Home) {
    let store = with_chat(home).await;
    let add = async |id: &str, cut: Cut<'_>| {
        store
            .append(CHAT, &[user(id, id)], cut, at(1))
            .await
            .unwrap();
    };
    add("m1", Cut::Nothing).await;
    add("m2", Cut::Nothing).await;
    add("m3", Cut::After(M1)).await;
    // An edit: the same id once more.
    add("m3", Cut::From(M3)).await;
    let outline = store.outline(CHAT).await.unwrap();
    let ids: Vec<_> = outline
        .iter()
        .map(|it| (it.id.as_str(), it.cut_in, it.is_reply))
        .collect();
    assert_eq!(
        ids,
        [
            ("m1", None, false),
            ("m2", Some(1), false),
            ("m3", Some(2), false),
            ("m3", None, false)
        ]
    );
    assert!(outline.is_sorted_by_key(|it| it.place));
    let places: Vec<u64> = outline.iter().map(|it| it.place).collect();
    assert_eq!(
        store.message_at(CHAT, places[1]).await.unwrap(),
        Some(user("m2", "m2"))
    );
    assert_eq!(store.message_at(CHAT, u64::MAX).await.unwrap(), None);
    missing(store.outline(FOREIGN).await);
    missing(store.message_at(FOREIGN, places[1]).await);

    let generation = async || store.chat(CHAT).await.unwrap().unwrap().generation;
    let before = generation().await;
    for (wanted, ids, cuts) in [
        (&[0, 1][..], &["m1", "m2", "n0"][..], 1),
        (&[0, 2], &["m1", "m3", "n1"], 2),
        // What is shown already, before messages that an agent with a session does not know.
        (&[0, 2, 5], &["m1", "m3", "n1", "n2"], 3),
        (&[], &["n3"], 4),
        (&[0, 1, 3], &["m1", "m2", "m3", "n4"], 5),
    ] {
        let outline = store.outline(CHAT).await.unwrap();
        let wanted: Vec<u64> = wanted
            .iter()
            .map(|index: &usize| outline[*index].place)
            .collect();
        let id = format!("n{}", outline.len() - 4);
        let cut = Cut::AllBut(&wanted);
        store
            .append(CHAT, &[user(&id, "")], cut, at(2))
            .await
            .unwrap();
        assert_eq!(shown(&*store).await, ids);
        assert_eq!(generation().await, before + cuts);
    }

    // A reply in the making is closed first.
    store
        .commit(CHAT, &reply("r", ""), &[], at(3))
        .await
        .unwrap();
    let cut = Cut::AllBut(&places[..1]);
    conflict(store.append(CHAT, &[], cut, at(4)).await);
}

pub(crate) async fn know_what_was_never_seen(home: &impl Home) {
    let store = with_chat(home).await;
    let unseen = async || {
        let stored = store.messages(CHAT).await.unwrap();
        let outline = store.outline(CHAT).await.unwrap();
        let of_outline: Vec<_> = outline
            .into_iter()
            .filter(|it| !it.seen)
            .map(|it| it.id)
            .collect();
        let ids = stored
            .into_iter()
            .filter(|it| !it.seen)
            .map(|it| it.message.id);
        let ids: Vec<MessageId> = ids.collect();
        assert_eq!(ids, of_outline);
        ids
    };
    for (number, heard) in [(1, false), (2, true)] {
        let messages = [user(&format!("m{number}"), "x")];
        let opening = Opening {
            messages: &messages,
            cut: Cut::Nothing,
            heard,
            agent: None,
        };
        let record = finished(&format!("r{number}"), "y");
        store
            .begin(CHAT, opening, &record, &[], at(1))
            .await
            .unwrap();
    }
    store
        .commit(CHAT, &finished("r3", "z"), &[], at(2))
        .await
        .unwrap();
    assert_eq!(unseen().await, ["r1", "m2", "r2", "r3"]);
    let outline = store.outline(CHAT).await.unwrap();
    let replies = outline.iter().filter(|it| it.is_reply);
    let replies: Vec<&str> = replies.map(|it| it.id.as_str()).collect();
    assert_eq!(replies, ["r1", "r2", "r3"]);
    missing(store.mark_seen(FOREIGN, &["r1".into()]).await);
    let ids = ["r1", "m2", "none"].map(MessageId::from);
    store.mark_seen(CHAT, &ids).await.unwrap();
    assert_eq!(unseen().await, ["r2", "r3"]);
    store
        .commit(CHAT, &finished("r1", "more"), &[], at(3))
        .await
        .unwrap();
    store.delete_chat(CHAT).await.unwrap();
    store.create_chat(CHAT, at(4)).await.unwrap();
    assert_eq!(unseen().await, [""; 0]);
}
