//! Files in buckets, with a real S3 server that `cargo xtask test buckets` sets up.
//!
//! Google Cloud Storage is the library's client of it with the same server: their interfaces are the same but for headers.

#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "buckets/hostile.rs"]
mod hostile;
#[path = "buckets/served.rs"]
mod served;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use adk_bridge::config::Files as FilesConfig;
use adk_bridge::files::{Copied, FileDescription, FileError, FileRow, Files, Swept};
use adk_bridge::store::sqlite::SqliteStore;
use adk_bridge::store::{ChatRef, DataDir, Store, StoreError};
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use adk_bridge_testkit::process::Process;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tempfile::TempDir;

const ALICE: UserId = UserId::literal("alice");
const CHAT: ChatRef<'static> = ChatRef {
    user: &ALICE,
    id: &ChatId::literal("chat-1"),
};
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const MIB: usize = 1024 * 1024;
const LIMIT: u64 = 64 * MIB as u64;
const DAY: u64 = 24 * 60 * 60 * 1000;
const PLACES: [&str; 3] = ["directory", "s3", "gs"];

/// A server with the bucket `chats`.
struct Server {
    process: Process,
}

/// A data directory, and files somewhere.
struct Rig {
    place: &'static str,
    dir: TempDir,
    config: FilesConfig,
    store: Arc<dyn Store>,
    files: Files,
    endpoint: String,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let python = std::env::var_os("ADK_BRIDGE_TEST_BUCKETS");
        let python = python.expect("run these with `cargo xtask test buckets`");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/buckets.py");
        // It is named from the project's root.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(root.join(python));
        command.arg(script).arg("chats").args(options);
        let process = Process::start(command.stdin(Stdio::null()).stderr(Stdio::null()));
        Self {
            process: process.unwrap(),
        }
    }

    fn url(&self) -> &str {
        self.process.url()
    }
}

impl Rig {
    async fn new(place: &'static str, server: &Server) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (config, endpoint) = match place {
            "directory" => {
                let url = dir.path().join("elsewhere").display().to_string();
                let config = FilesConfig {
                    url: Some(url),
                    ..FilesConfig::default()
                };
                (config, String::new())
            }
            scheme => {
                let config = bucket(&format!("{scheme}://chats/{scheme}"), server.url());
                (config, server.url().to_owned())
            }
        };
        let data = Arc::new(DataDir::open(&dir.path().join("data")).unwrap());
        let store = SqliteStore::open(data.clone(), None).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        store.create_chat(CHAT, at(1)).await.unwrap();
        let files = Files::open_configured(&config, &data, store.clone(), LIMIT);
        Self {
            place,
            files: files.await.unwrap(),
            config,
            store,
            dir,
            endpoint,
        }
    }

    /// Another bridge with the same database and the same files.
    async fn second(&self) -> Files {
        let data = DataDir::open(&self.dir.path().join("second")).unwrap();
        let files = Files::open_configured(&self.config, &data, self.store.clone(), LIMIT);
        files.await.unwrap()
    }

    async fn save(&self, content: &[u8]) -> FileRow {
        let described = FileDescription::default();
        let saved = self.files.save(CHAT, described, pieces(content), at(5));
        saved.await.unwrap()
    }

    /// The names of all content, but for the id of the database.
    async fn names(&self, below: &str) -> Vec<String> {
        if self.place == "directory" {
            return below_directory(&self.dir.path().join("elsewhere").join(below));
        }
        let listing = format!(
            "{}/chats?list-type=2&prefix={}/{below}",
            self.endpoint, self.place
        );
        let listing = reqwest::get(listing).await.unwrap().text().await.unwrap();
        let keys = listing.split("<Key>").skip(1);
        let keys = keys.map(|rest| rest.split_once("</Key>").unwrap().0.to_owned());
        keys.filter(|key| !key.ends_with("database-id")).collect()
    }

    /// Puts content there, or deletes it, as nobody but an operator would.
    async fn tamper(&self, name: &str, content: Option<&[u8]>) {
        let (shelf, id) = name.split_at(name.len() - 32);
        let name = format!("{shelf}{}/{id}", &id[..2]);
        if self.place == "directory" {
            let path = self.dir.path().join("elsewhere").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content {
                Some(content) => std::fs::write(path, content).unwrap(),
                None => std::fs::remove_file(path).unwrap(),
            }
            return;
        }
        let url = format!("{}/chats/{}/{name}", self.endpoint, self.place);
        let client = reqwest::Client::new();
        let request = match content {
            Some(content) => client.put(url).body(content.to_vec()),
            None => client.delete(url),
        };
        let done = request.send().await.unwrap();
        assert!(done.status().is_success());
    }
}

#[tokio::test]
#[ignore = "needs an S3 server: cargo xtask test buckets"]
async fn content_goes_in_and_out_of_every_place() {
    let server = Server::start(&[]);
    for place in PLACES {
        let rig = Rig::new(place, &server).await;
        let mut rows = Vec::new();
        // Nothing, little, exactly one part, and several with a rest.
        for size in [0, 100, 8 * MIB, 20 * MIB + 1] {
            let content = content(size);
            let row = rig.save(&content).await;
            assert_eq!(row.bytes, size as u64, "{place}");
            let (_, read) = rig.files.content(&ALICE, &row.id).await.unwrap();
            assert!(read == content, "{place} {size}");
            rows.push(row);
        }
        assert_eq!(rig.names("files").await.len(), 4, "{place}");
        let (row, whole) = (&rows[3], content(20 * MIB + 1));
        for range in [0..1, 8 * MIB - 1..8 * MIB + 1, 20 * MIB..20 * MIB + 1] {
            let part = rig
                .files
                .read(row, range.start as u64..range.end as u64)
                .await;
            let part: Vec<Bytes> = part.unwrap().try_collect().await.unwrap();
            assert!(part.concat() == whole[range.clone()], "{place} {range:?}");
        }

        // What is cut off leaves nothing, neither an object nor parts of one.
        let cut = pieces(&whole).take(200).chain(stream::iter([gone()]));
        let described = FileDescription::default();
        let error = rig.files.save(CHAT, described, cut.boxed(), at(5)).await;
        assert!(
            matches!(error, Err(FileError::Incomplete(_))),
            "{place} {error:?}"
        );
        for tries in 0.. {
            let uploads = reqwest::get(format!("{}/chats?uploads", server.url())).await;
            if !uploads.unwrap().text().await.unwrap().contains("<Upload>") {
                break;
            }
            assert!(tries < 200, "{place}: parts are left");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(rig.names("files").await.len(), 4, "{place}");

        // Content that is gone is not found; a chat takes what is left along.
        let missing = format!("files/{}", rows[1].id);
        rig.tamper(&missing, None).await;
        let error = rig.files.content(&ALICE, &rows[1].id).await;
        let is_missing = matches!(error, Err(FileError::Store(StoreError::NotFound(_))));
        assert!(is_missing, "{place} {error:?}");
        rig.files.delete_chat(CHAT).await.unwrap();
        assert_eq!(rig.names("files").await, [""; 0], "{place}");
        assert_eq!(rig.store.deleted_files().await.unwrap(), [""; 0], "{place}");
    }
}

#[tokio::test]
#[ignore = "needs an S3 server: cargo xtask test buckets"]
async fn what_another_bridge_has_just_written_is_never_put_aside() {
    let server = Server::start(&[]);
    for place in ["s3", "gs"] {
        let rig = Rig::new(place, &server).await;
        let second = rig.second().await;
        let kept = rig.save(PNG).await;
        // Its row is not there yet, or never will be.
        let orphan = "0f".repeat(16);
        rig.tamper(&format!("files/{orphan}"), Some(PNG)).await;
        let other = ChatRef {
            user: &ALICE,
            id: &ChatId::literal("chat-2"),
        };
        rig.store.create_chat(other, at(1)).await.unwrap();
        let described = FileDescription::default();
        let deleted = second.save(other, described, pieces(PNG), at(1));
        let deleted = deleted.await.unwrap();
        rig.store.delete_chat(other).await.unwrap();

        let now = now();
        let swept = rig.files.sweep(now).await.unwrap();
        let expected = Swept {
            deleted: 1,
            ..Swept::default()
        };
        assert_eq!(swept, expected, "{place}");
        assert_eq!(rig.store.deleted_files().await.unwrap(), [""; 0]);
        let names = rig.names("files").await;
        assert_eq!(names.len(), 2, "{place} {names:?}");
        assert!(!names.iter().any(|name| name.ends_with(&deleted.id)));

        // A day later, whichever bridge looks first; both at once do the same.
        let later = Timestamp::from_millis(now.as_millis() + DAY + 1000);
        let (one, two) = tokio::join!(rig.files.sweep(later), second.sweep(later));
        assert!(one.unwrap().lost + two.unwrap().lost >= 1, "{place}");
        let aside = rig.names("lost-files").await;
        assert!(
            aside.len() == 1 && aside[0].ends_with(&orphan),
            "{place} {aside:?}"
        );
        let names = rig.names("files").await;
        assert!(
            names.len() == 1 && names[0].ends_with(&kept.id),
            "{place} {names:?}"
        );

        // A database that knows it has it back.
        let row = FileRow {
            id: orphan.clone(),
            ..kept
        };
        rig.store.add_file(&row).await.unwrap();
        assert_eq!(second.sweep(later).await.unwrap().found, 1, "{place}");
        assert_eq!(second.content(&ALICE, &orphan).await.unwrap().1, PNG);
        assert_eq!(rig.names("lost-files").await, [""; 0], "{place}");
    }
}

#[tokio::test]
#[ignore = "needs an S3 server: cargo xtask test buckets"]
async fn all_content_can_be_copied_and_that_can_be_repeated() {
    let server = Server::start(&[]);
    let from = Rig::new("directory", &server).await;
    let rows = [from.save(PNG).await, from.save(&content(9 * MIB)).await];
    let missing = from.save(PNG).await;
    from.tamper(&format!("files/{}", missing.id), None).await;
    for place in ["s3", "gs"] {
        let to = Rig::new(place, &server).await;
        // As an interrupted attempt, or somebody else, left it.
        to.tamper(&format!("files/{}", rows[0].id), Some(b"shorter"))
            .await;
        let expected = Copied {
            files: 2,
            bytes: rows.iter().map(|row| row.bytes).sum(),
            present: 0,
            missing: 1,
        };
        let copied = from.files.copy_all(&to.files).await.unwrap();
        assert_eq!(copied, expected, "{place}");
        let again = from.files.copy_all(&to.files).await.unwrap();
        assert_eq!((again.files, again.present), (0, 2), "{place}");
        for row in &rows {
            let read = to.files.read(row, 0..row.bytes).await.unwrap();
            let read: Vec<Bytes> = read.try_collect().await.unwrap();
            let (_, sent) = from.files.content(&ALICE, &row.id).await.unwrap();
            assert!(read.concat() == sent, "{place}");
        }
    }
}

fn bucket(url: &str, endpoint: &str) -> FilesConfig {
    FilesConfig {
        url: Some(url.to_owned()),
        endpoint: Some(endpoint.to_owned()),
        allow_http: true,
        ..FilesConfig::default()
    }
}

/// A picture of this size, whose bytes say where they are.
fn content(size: usize) -> Vec<u8> {
    let mut content: Vec<u8> = (0..size).map(|at| (at / 4099 + at) as u8).collect();
    let head = PNG.len().min(size);
    content[..head].copy_from_slice(&PNG[..head]);
    content
}

/// Content as it arrives.
fn pieces(content: &[u8]) -> BoxStream<'static, io::Result<Bytes>> {
    let pieces = content.chunks(60_000).map(Bytes::copy_from_slice).map(Ok);
    stream::iter(pieces.collect::<Vec<_>>()).boxed()
}

/// A sender that goes away.
fn gone() -> io::Result<Bytes> {
    Err(io::ErrorKind::ConnectionReset.into())
}

fn below_directory(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false if path.ends_with("database-id") => {}
                false => found.push(path.display().to_string()),
            }
        }
    }
    found
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn now() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    at(u64::try_from(now.unwrap().as_millis()).unwrap())
}
