//! Files on disk: whole or not there, their owner's only, and never deleted by a start.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adk_bridge::files::{FileDescription, FileError, FileRow, Files};
use adk_bridge::store::sqlite::SqliteStore;
use adk_bridge::store::{ChatRef, DataDir, Store, StoreError};
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tempfile::TempDir;

const CHAT: ChatRef<'static> = ChatRef {
    user: &UserId::literal("alice"),
    id: &ChatId::literal("chat-1"),
};
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const LIMIT: u64 = 100_000;

struct Place {
    dir: TempDir,
}

struct Opened {
    files: Files,
    store: Arc<dyn Store>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    async fn open(&self) -> Opened {
        let data_dir = Arc::new(DataDir::open(self.dir.path()).unwrap());
        let store = SqliteStore::open(data_dir.clone(), None).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        store.create_chat(CHAT, at(1)).await.unwrap();
        let files = Files::open(&data_dir, store.clone(), LIMIT).await.unwrap();
        Opened { files, store }
    }

    /// Everything that lies on disk, but for the id of the database.
    fn on_disk(&self) -> BTreeSet<PathBuf> {
        self.in_dir("files")
    }

    fn in_dir(&self, name: &str) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut dirs = vec![self.dir.path().join(name)];
        while let Some(dir) = dirs.pop() {
            let Ok(entries) = std::fs::read_dir(dir) else {
                continue;
            };
            for entry in entries {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if !path.ends_with("database-id") {
                    found.insert(path);
                }
            }
        }
        found
    }
}

#[tokio::test]
async fn what_is_saved_is_read_by_its_owner() {
    let place = Place::new();
    let Opened { files, .. } = place.open().await;
    let content = [PNG, &vec![7; LIMIT as usize - PNG.len()]].concat();
    let described = FileDescription {
        media_type: Some("text/html"),
        name: Some("../cat.png"),
    };
    let sent = pieces(&content);
    let row = files.save(CHAT, described, sent, at(5)).await.unwrap();
    assert_eq!(row.bytes, LIMIT);
    assert_eq!(
        (row.media_type.as_str(), row.name.as_deref()),
        ("image/png", Some("cat.png"))
    );
    assert_eq!(
        (row.user.as_str(), row.chat_id.as_str(), row.created),
        ("alice", "chat-1", at(5))
    );

    let (found, read) = files
        .content(&UserId::literal("alice"), &row.id)
        .await
        .unwrap();
    assert!(found == row && read == content);
    let expected = place
        .dir
        .path()
        .join("files")
        .join(&row.id[..2])
        .join(&row.id);
    assert_eq!(place.on_disk(), [expected].into());

    for (user, id) in [
        ("mallory", row.id.as_str()),
        ("alice", "../lock"),
        ("alice", ""),
    ] {
        let refused = files.content(&user.into(), id).await;
        assert!(
            matches!(refused, Err(FileError::Store(StoreError::NotFound(_)))),
            "{id}"
        );
    }
}

#[tokio::test]
async fn what_is_refused_leaves_nothing() {
    let place = Place::new();
    let Opened { files, store } = place.open().await;
    let save = async |chat, media_type, content: BoxStream<'static, io::Result<Bytes>>| {
        let described = FileDescription {
            media_type: Some(media_type),
            name: None,
        };
        files
            .save(chat, described, content, at(5))
            .await
            .unwrap_err()
    };
    let foreign = ChatRef {
        user: &UserId::literal("mallory"),
        id: &ChatId::literal("chat-1"),
    };

    let error = save(
        CHAT,
        "image/png",
        pieces(&[PNG, &vec![7; LIMIT as usize]].concat()),
    )
    .await;
    assert!(
        matches!(error, FileError::TooLarge { limit: LIMIT }),
        "{error:?}"
    );
    let error = save(CHAT, "image/svg+xml", pieces(b"<svg/>")).await;
    assert!(
        matches!(&error, FileError::MediaType { found } if found == "image/svg+xml"),
        "{error:?}"
    );
    let error = save(foreign, "image/png", pieces(PNG)).await;
    assert!(
        matches!(error, FileError::Store(StoreError::NotFound(_))),
        "{error:?}"
    );
    // The sender goes away after the head, and before it.
    for sent in [0, 50_000] {
        let head = [PNG, &vec![7; sent]].concat();
        let error = save(
            CHAT,
            "image/png",
            pieces(&head).chain(stream::iter([gone()])).boxed(),
        )
        .await;
        assert!(matches!(error, FileError::Incomplete(_)), "{error:?}");
    }
    assert_eq!(place.on_disk(), BTreeSet::new());
    assert_eq!(store.file_ids().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_deleted_chat_takes_its_files_along() {
    let place = Place::new();
    let Opened { files, store } = place.open().await;
    let other = ChatRef {
        user: &UserId::literal("alice"),
        id: &ChatId::literal("chat-2"),
    };
    store.create_chat(other, at(1)).await.unwrap();
    let mut ids = Vec::new();
    for chat in [CHAT, CHAT, other] {
        ids.push(
            files
                .save(chat, FileDescription::default(), pieces(PNG), at(1))
                .await
                .unwrap()
                .id,
        );
    }
    let foreign = ChatRef {
        user: &UserId::literal("mallory"),
        id: &ChatId::literal("chat-1"),
    };
    assert!(matches!(
        files.delete_chat(foreign).await,
        Err(StoreError::NotFound(_))
    ));
    assert_eq!(place.on_disk().len(), 3);
    files.delete_chat(CHAT).await.unwrap();
    assert_eq!(place.on_disk().len(), 1);
    files
        .content(&UserId::literal("alice"), &ids[2])
        .await
        .unwrap();
    files
        .content(&UserId::literal("alice"), &ids[0])
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_start_puts_aside_what_nobody_knows() {
    let place = Place::new();
    let Opened { files, store } = place.open().await;
    let kept = files
        .save(CHAT, FileDescription::default(), pieces(PNG), at(1))
        .await
        .unwrap();
    // A crash between content and row, one between row and content, one in the middle of an upload.
    let lost = files
        .save(CHAT, FileDescription::default(), pieces(PNG), at(1))
        .await
        .unwrap();
    let other = ChatRef {
        user: &UserId::literal("alice"),
        id: &ChatId::literal("chat-2"),
    };
    store.create_chat(other, at(1)).await.unwrap();
    let deleted = files
        .save(other, FileDescription::default(), pieces(PNG), at(1))
        .await
        .unwrap();
    store.delete_chat(other).await.unwrap();
    let root = place.dir.path().join("files");
    let orphan = root.join("0f").join(format!("0f{}", &lost.id[2..]));
    write(&orphan);
    write(&root.join("incoming/.tmphalf"));
    // Not of our making.
    let note = root.join("0f/README");
    write(&note);
    drop((files, store));

    let Opened { files, store } = place.open().await;
    let at = |id: &str| root.join(&id[..2]).join(id);
    assert_eq!(place.on_disk(), [at(&kept.id), at(&lost.id), note].into());
    // What a user deleted is gone, what nobody deleted is not.
    let aside = place
        .dir
        .path()
        .join("lost-files/0f")
        .join(orphan.file_name().unwrap());
    assert_eq!(place.in_dir("lost-files"), [aside.clone()].into());
    files
        .content(&UserId::literal("alice"), &kept.id)
        .await
        .unwrap();
    files
        .content(&UserId::literal("alice"), &deleted.id)
        .await
        .unwrap_err();
    assert_eq!(store.deleted_files().await.unwrap(), Vec::<String>::new());

    // A database that knows it has it back.
    let id = orphan.file_name().unwrap().to_str().unwrap().to_owned();
    store
        .add_file(&FileRow {
            id: id.clone(),
            ..kept
        })
        .await
        .unwrap();
    drop((files, store));
    let Opened { files, .. } = place.open().await;
    assert_eq!(place.in_dir("lost-files"), BTreeSet::new());
    files.content(&UserId::literal("alice"), &id).await.unwrap();
}

/// What a row names and nobody can find is not there; it is no failure of the store.
#[tokio::test]
async fn content_that_is_gone_is_not_found() {
    let place = Place::new();
    let Opened { files, .. } = place.open().await;
    let row = files
        .save(CHAT, FileDescription::default(), pieces(PNG), at(1))
        .await
        .unwrap();
    for path in place.on_disk() {
        std::fs::remove_file(path).unwrap();
    }
    let missing = files.content(&UserId::literal("alice"), &row.id).await;
    assert!(
        matches!(missing, Err(FileError::Store(StoreError::NotFound(_)))),
        "{missing:?}"
    );
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn write(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, PNG).unwrap();
}

/// Content as it arrives.
fn pieces(content: &[u8]) -> BoxStream<'static, io::Result<Bytes>> {
    let pieces = content.chunks(30_000).map(Bytes::copy_from_slice).map(Ok);
    stream::iter(pieces.collect::<Vec<_>>()).boxed()
}

/// A sender that goes away.
fn gone() -> io::Result<Bytes> {
    Err(io::ErrorKind::ConnectionReset.into())
}
