//! A full disk, and a database that another process has locked: named, reported by `/ready`, and overcome.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use adk_bridge::store::sqlite::DATABASE;
use adk_bridge_testkit::process::binary;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;

use crate::served::{Bridge, PATIENCE, read, says};
use crate::{ALICE, BOB, FAST, keys, upload};

#[tokio::test]
async fn a_locked_database_is_reported() {
    let dir = TempDir::new().unwrap();
    let bridge = Bridge::serve(dir.path(), FAST);
    bridge.say("c", says("say hi"), "native").await;
    bridge.say("unread", says("say hi"), "native").await;
    assert_eq!(bridge.get("/ready").await.status(), 200);

    let database = dir.path().join("data").join(DATABASE);
    let url = format!("sqlite://{}", database.display());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap();
    ready_is(&bridge, 503, Some("locked")).await;
    let refused = ask(&bridge, "c", "say again").await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let body = read(refused).await;
    assert_eq!(body["error"]["code"], "locked", "{body}");
    // Reading goes on, and waits for no note that it was read.
    let asked = Instant::now();
    assert_eq!(bridge.get("/api/chats/unread").await.status(), 200);
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");

    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    ready_is(&bridge, 200, None).await;
    assert_eq!(ask(&bridge, "c", "say again").await.status(), 200);
}

/// A health check shows what is wrong, but not where the files are.
#[tokio::test]
async fn the_reason_for_not_being_ready_is_reported_without_paths() {
    let dir = TempDir::new().unwrap();
    let bridge = Bridge::serve(dir.path(), FAST);
    let incoming = dir.path().join("data/files/incoming");
    std::fs::remove_dir(&incoming).unwrap();
    let shown = bridge.get("/ready").await;
    assert_eq!(shown.status(), 503);
    let shown = shown.text().await.unwrap();
    assert!(shown.contains("writing a file failed"), "{shown}");
    let place = dir.path().to_str().unwrap();
    assert!(!shown.contains(place), "{shown}");
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains(incoming.to_str().unwrap()), "{log}");
}

/// On a small disk of its own, where this machine lets a test have one.
#[tokio::test]
async fn a_full_disk_is_reported_and_chats_can_be_deleted() {
    let dir = TempDir::new().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path()) else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let bridge = disk.serve(FAST);
    for chat in ["long", "files"] {
        bridge.say(chat, says("say hi"), "native").await;
    }
    let url = upload(&bridge, "files").await;
    for number in 0..40 {
        let text = format!("say {number} {}", "x".repeat(10_000));
        assert_eq!(ask(&bridge, "long", &text).await.status(), 200);
    }
    assert_eq!(bridge.get("/ready").await.status(), 200);

    disk.fill();
    ready_is(&bridge, 503, Some("disk_full")).await;
    // The log of the database may have some room left.
    let refused = refused(&bridge).await;
    assert_eq!(refused["error"]["code"], "disk_full", "{refused}");
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("the disk is full")
    );
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains("the disk is full"), "{log}");

    for chat in ["long", "files"] {
        let path = format!("/api/chats/{chat}");
        let deleted = bridge.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(
            deleted.status(),
            204,
            "{chat}: {}",
            deleted.text().await.unwrap()
        );
        assert_eq!(bridge.get(&path).await.status(), 404);
    }
    assert_eq!(bridge.get(&url).await.status(), 404);
    assert_eq!(crate::count(&disk.inside), 0);

    disk.make_room();
    ready_is(&bridge, 200, None).await;
    assert_eq!(ask(&bridge, "long", "say again").await.status(), 200);
    let list = bridge.json("/api/chats").await;
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .any(|chat| chat["id"] == "long"),
        "{list}"
    );
}

/// However often somebody else writes into what a deletion leaves free, the next deletion has its room.
#[tokio::test]
async fn chats_can_be_deleted_again_and_again() {
    let dir = TempDir::new().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path()) else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let mut bridge = disk.serve(&keys());
    bridge.with_key(ALICE);
    let chats: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    for chat in &chats {
        bridge.say(chat, says("say hi"), "native").await;
    }
    disk.fill_but(2 * 1024 * 1024);
    for chat in &chats {
        bridge.with_key(BOB);
        while writes(&bridge).await {}
        bridge.with_key(ALICE);
        delete(&bridge, chat).await;
    }
}

/// A bridge that was ended on a full disk starts on it, with the room that is kept for deletions.
#[tokio::test]
async fn a_start_on_a_full_disk() {
    for signal in ["-TERM", "-KILL"] {
        let dir = TempDir::new().unwrap();
        let Some(disk) = SmallDisk::mount(dir.path()) else {
            eprintln!("skipped: no file system can be mounted here");
            return;
        };
        let bridge = disk.serve(FAST);
        for chat in ["a", "b"] {
            bridge.say(chat, says("say hi"), "native").await;
        }
        disk.fill();
        while writes(&bridge).await {}
        bridge.signal(signal);
        bridge.wait().await;
        disk.fill();
        let bridge = disk.serve(FAST);
        assert_eq!(bridge.get("/api/chats/a").await.status(), 200, "{signal}");
        disk.fill();
        while writes(&bridge).await {}
        for chat in ["a", "b"] {
            delete(&bridge, chat).await;
        }
    }
}

/// Writes a chat of its own; whether that was possible.
async fn writes(bridge: &Bridge) -> bool {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let chat = format!("more-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    // What is stored and costs the model nothing.
    let metadata = json!({"note": "y".repeat(20_000)});
    let message = json!({"role": "user", "metadata": metadata, "parts": says("say hi")});
    let body = json!({"id": chat, "messages": [message]});
    let answer = bridge.post("/api/chat", &body).await;
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert!(status == 200 || status == 507, "{status}: {text}");
    status == 200
}

async fn delete(bridge: &Bridge, chat: &str) {
    let path = format!("/api/chats/{chat}");
    let deleted = bridge.request(Method::DELETE, &path).send().await.unwrap();
    let status = deleted.status();
    assert_eq!(status, 204, "{chat}: {}", deleted.text().await.unwrap());
}

/// A file system of a few megabytes, which only the bridges in it see. It goes with this.
struct SmallDisk {
    dir: PathBuf,
    /// The data directory, seen from outside.
    inside: PathBuf,
    /// How to get in.
    enter: &'static [&'static str],
    holder: Child,
}

const MOUNT: &str = "mount -t tmpfs -o size=8m none \"$0\" && echo mounted && exec sleep infinity";
const GO_ON: &str = "cd \"$0\" && exec \"$@\"";

impl SmallDisk {
    /// Mounts it where the data of a bridge in this directory lies, if that can be done.
    fn mount(dir: &Path) -> Option<Self> {
        let data = dir.join("data");
        std::fs::create_dir(&data).unwrap();
        let ways: [(&[&str], &[&str]); 2] = [
            (&["--mount"], &["--mount"]),
            (
                &["--user", "--map-root-user", "--mount"],
                &["--user", "--preserve-credentials", "--mount"],
            ),
        ];
        ways.into_iter().find_map(|(leave, enter)| {
            let mut holder = Command::new("unshare")
                .args(leave)
                .args(["sh", "-c", MOUNT])
                .arg(&data)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let mut line = String::new();
            let mut said = BufReader::new(holder.stdout.take()?);
            said.read_line(&mut line).unwrap();
            if line != "mounted\n" {
                let _ = holder.wait();
                return None;
            }
            let root = PathBuf::from(format!("/proc/{}/root", holder.id()));
            Some(Self {
                dir: dir.to_owned(),
                inside: root.join(data.strip_prefix("/").unwrap()),
                enter,
                holder,
            })
        })
    }

    /// Starts a bridge on it.
    fn serve(&self, config: &str) -> Bridge {
        std::fs::write(self.dir.join("bridge.toml"), config).unwrap();
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.holder.id()))
            .args(self.enter)
            .args(["sh", "-c", GO_ON])
            .arg(&self.dir)
            .arg(binary())
            .args(["serve", "--config", "bridge.toml"])
            .args(["--listen", "127.0.0.1:0", "--data-dir", "data"]);
        Bridge::start(&self.dir, &mut command)
    }

    fn fill(&self) {
        let filler = self.inside.join("filler");
        let mut filler = OpenOptions::new()
            .create(true)
            .append(true)
            .open(filler)
            .unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
    }

    /// Leaves so many bytes.
    fn fill_but(&self, bytes: u64) {
        self.fill();
        let filler = self.inside.join("filler");
        let filler = OpenOptions::new().write(true).open(filler).unwrap();
        let length = filler.metadata().unwrap().len();
        filler.set_len(length - bytes).unwrap();
    }

    fn make_room(&self) {
        std::fs::remove_file(self.inside.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

async fn ask(bridge: &Bridge, chat: &str, text: &str) -> Response {
    let message = json!({"role": "user", "parts": [{"type": "text", "text": text}]});
    let body = json!({"id": chat, "messages": [message]});
    bridge.post("/api/chat", &body).await
}

/// Asks until a question is refused because it cannot be stored.
async fn refused(bridge: &Bridge) -> Value {
    for number in 0..100 {
        let text = format!("say {}", "x".repeat(100_000));
        let answer = ask(bridge, &format!("more-{number}"), &text).await;
        if answer.status() == 507 {
            return read(answer).await;
        }
        assert_eq!(answer.status(), 200);
        answer.text().await.unwrap();
    }
    panic!("everything was taken");
}

/// Waits until `/ready` says so; what it says holds for a moment.
async fn ready_is(bridge: &Bridge, status: u16, code: Option<&str>) {
    let wait = async {
        loop {
            let answer = bridge.get("/ready").await;
            if answer.status() == status {
                let body = read(answer).await;
                assert_eq!(body["error"]["code"].as_str(), code, "{body}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}
