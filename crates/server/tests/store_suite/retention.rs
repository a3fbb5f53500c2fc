//! What is too old is found by its age, and nothing else is.

use adk_bridge::store::{DeletedFile, FileRow, OldFiles};

use super::*;

const BEFORE: u64 = 10_000;

pub(crate) async fn finds_chats_by_their_last_change(home: &impl Home) {
    let store = home.open().await.unwrap();
    let (alice, bob) = (UserId::literal("alice"), UserId::literal("bob\0"));
    let chats = [
        (&alice, "old", BEFORE - 1),
        (&alice, "young", BEFORE),
        (&bob, "old", 1),
        (&bob, "waits", 2),
        (&bob, "grows", 3),
        (&alice, "told", 4),
    ];
    for (user, id, changed) in chats {
        let id = ChatId::from(id);
        let chat = ChatRef { user, id: &id };
        store.create_chat(chat, at(changed)).await.unwrap();
        let said = match id.as_str() {
            "waits" => asking("m1", &["pay"]),
            "grows" => reply("m1", "so far"),
            "told" => finished("m1", "all"),
            _ => continue,
        };
        store.commit(chat, &said, &[], at(changed)).await.unwrap();
    }
    let mut expected = vec![("alice", "old"), ("alice", "told"), ("bob\0", "old")];
    for limit in [1, 2, 10] {
        let (mut found, mut last) = (Vec::new(), 0);
        loop {
            let some = store.old_chats(at(BEFORE), last, limit).await.unwrap();
            assert!(some.len() <= limit as usize);
            let Some(end) = some.last() else { break };
            assert!(end.row > last);
            last = end.row;
            found.extend(some);
        }
        let mut found: Vec<_> = (found.iter())
            .map(|chat| (chat.user.as_str(), chat.chat_id.as_str()))
            .collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
    // One that is used again is not old.
    let told = ChatId::literal("told");
    let chat = ChatRef {
        user: &alice,
        id: &told,
    };
    store
        .append(chat, &[user("m2", "more")], Cut::Nothing, at(BEFORE))
        .await
        .unwrap();
    let old = store.old_chats(at(BEFORE), 0, 10).await.unwrap();
    assert!(old.iter().all(|chat| chat.chat_id != told), "{old:?}");
}

pub(crate) async fn forgets_files_by_their_age(home: &impl Home) {
    let store = with_chat(home).await;
    let files = [
        ("spoken", "audio/wav", Some("speech.wav"), 1),
        ("unnamed", "audio/wav", None, 2),
        ("song", "audio/wav", Some("song.wav"), 3),
        ("picture", "image/png", Some("speech.wav"), BEFORE - 1),
        ("young picture", "image/png", None, BEFORE),
        ("young", "audio/wav", None, BEFORE),
    ];
    for (id, media_type, name, created) in files {
        let file = FileRow {
            id: id.to_owned(),
            chat_id: CHAT.id.clone(),
            user: CHAT.user.clone(),
            media_type: media_type.to_owned(),
            bytes: 7,
            name: name.map(str::to_owned),
            created: at(created),
        };
        store.add_file(&file).await.unwrap();
    }
    let deleted = async |which, limit| {
        let gone = store.delete_old_files(at(BEFORE), which, limit).await;
        let gone: Vec<DeletedFile> = gone.unwrap();
        assert!(gone.iter().all(|file| file.user == *CHAT.user), "{gone:?}");
        let mut ids: Vec<String> = gone.into_iter().map(|file| file.id).collect();
        ids.sort();
        ids
    };
    let noted = async || {
        let mut ids = store.deleted_files().await.unwrap();
        ids.sort();
        ids
    };
    assert_eq!(deleted(OldFiles::Recordings, 1).await.len(), 1);
    assert_eq!(deleted(OldFiles::Recordings, 10).await.len(), 1);
    assert_eq!(noted().await, ["spoken", "unnamed"]);
    assert!(deleted(OldFiles::Recordings, 10).await.is_empty());
    assert_eq!(deleted(OldFiles::All, 10).await, ["picture", "song"]);
    assert!(deleted(OldFiles::All, 10).await.is_empty());
    assert_eq!(noted().await, ["picture", "song", "spoken", "unnamed"]);
    let mut left = store.file_ids().await.unwrap();
    left.sort();
    assert_eq!(left, ["young", "young picture"]);
}

pub(crate) async fn is_one_processs_job_if_there_are_several(home: &impl Home) {
    const LONG: Duration = Duration::from_secs(3_600);
    let one = home.open().await.unwrap();
    if !one.is_shared() {
        // There is one process.
        assert!(one.begin_job("sweep", LONG).await.unwrap());
        return;
    }
    let two = home.open().await.unwrap();
    let (first, second) = tokio::join!(one.begin_job("sweep", LONG), two.begin_job("sweep", LONG));
    assert_ne!(first.unwrap(), second.unwrap());
    assert!(!one.begin_job("sweep", LONG).await.unwrap());
    // Another one is nobody's yet, and somebody else's when it is over.
    assert!(one.begin_job("other", Duration::ZERO).await.unwrap());
    assert!(two.begin_job("other", LONG).await.unwrap());
    assert!(!one.begin_job("other", LONG).await.unwrap());
}
