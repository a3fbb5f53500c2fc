//! `backup`: what it copies while users write and delete is a data directory that the bridge could have stopped with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adk_bridge_testkit::bridge::Bridge;
use adk_bridge_testkit::{JSON, asking};
use serde_json::Value;
use tempfile::TempDir;

use super::{run, said};

/// A picture of one pixel.
const PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Begins a chat with a file.
async fn chat_with_file(bridge: &Bridge, chat: &str) {
    let mut body = asking(chat, "say hi");
    let parts = body["messages"][0]["parts"].as_array_mut().unwrap();
    parts.push(serde_json::json!({"type": "file", "mediaType": "image/png", "url": PICTURE}));
    let asked = bridge
        .send("POST", "/api/chat", &[JSON], body.to_string())
        .await;
    assert_eq!(asked.status, 200, "{}", asked.message());
}

/// How many chats a bridge on a copy of this data directory has, all of whose files can be read.
async fn whole_chats(backup: &std::path::Path) -> usize {
    let bridge = Bridge::with("", |command| {
        let copy = backup.with_extension("restored");
        copy_all(backup, &copy);
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut restored = std::process::Command::new(command.get_program());
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--data-dir" {
                arguments.next();
                restored.arg("--data-dir").arg(&copy);
            } else {
                restored.arg(argument);
            }
        }
        let directory = command.get_current_dir().unwrap().to_owned();
        restored
            .stderr(std::fs::File::create(directory.join("log")).unwrap())
            .stdin(std::process::Stdio::null())
            .current_dir(directory)
            .env("ADK_BRIDGE__DEMO__PACE", "0ms");
        *command = restored;
    });
    let listed = bridge.get("/api/chats").await.json();
    let chats = listed.as_array().unwrap().clone();
    for chat in &chats {
        let id = chat["id"].as_str().unwrap();
        let chat = bridge.get(&format!("/api/chats/{id}")).await.json();
        let messages = chat["messages"].as_array().unwrap().iter();
        let parts = messages.flat_map(|message| message["parts"].as_array().unwrap());
        for part in parts.filter(|part| part["type"] == "file") {
            let url = part["url"].as_str().unwrap();
            let path = &url[url.find("/api/files/").unwrap()..];
            let file = bridge.get(path).await;
            assert_eq!(file.status, 200, "{url}");
            assert_eq!(&file.body[1..4], b"PNG");
        }
    }
    assert!(!bridge.log().contains("lost-files"), "{}", bridge.log());
    chats.len()
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_all(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_busy_bridge_has_every_file_that_it_knows() {
    let bridge = Arc::new(Bridge::start());
    for number in 0..5 {
        chat_with_file(&bridge, &format!("first-{number}")).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (writer, stopped) = (bridge.clone(), stop.clone());
    let writing = tokio::spawn(async move {
        let mut number = 0;
        // As many as one page lists.
        while number < 40 && !stopped.load(Ordering::Relaxed) {
            chat_with_file(&writer, &format!("busy-{number}")).await;
            if number % 2 == 1 {
                let path = format!("/api/chats/busy-{}", number - 1);
                let deleted = writer.send("DELETE", &path, &[], "").await;
                assert!(deleted.status < 300, "{}", deleted.status);
            }
            number += 1;
        }
        number
    });
    let place = TempDir::new().unwrap();
    let target = place.path().join("backup");
    let data = bridge.directory.path().join("data");
    let back_up = || {
        let (target, data) = (target.clone(), data.clone());
        tokio::task::spawn_blocking(move || {
            let (target, data) = (target.to_str().unwrap(), data.to_str().unwrap());
            run(
                std::path::Path::new("/"),
                &["backup", target, "--data-dir", data],
                &[],
            )
        })
    };
    let first = back_up().await.unwrap();
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    assert!(said(&first).contains("the database is sound"));
    assert!(whole_chats(&target).await >= 5);
    // Again, in the same place: what is gone goes, what has come is added.
    for number in 0..5 {
        let path = format!("/api/chats/first-{number}");
        assert!(bridge.send("DELETE", &path, &[], "").await.status < 300);
    }
    let second = back_up().await.unwrap();
    assert_eq!(second.status.code(), Some(0), "{}", said(&second));
    stop.store(true, Ordering::Relaxed);
    let written = writing.await.unwrap();
    assert!(written > 0);
    let third = back_up().await.unwrap();
    assert_eq!(third.status.code(), Some(0), "{}", said(&third));
    let listed: Value = bridge.get("/api/chats").await.json();
    let there = listed.as_array().unwrap().len();
    assert_eq!(whole_chats(&target).await, there);
    // Nothing is left of files that are gone.
    assert_eq!(
        count_files(&target.join("files")),
        there,
        "{}",
        said(&third)
    );
    // Others may not read it.
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(target.join("adk-bridge.db")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o077, 0);
}

fn count_files(directory: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let shelves = entries.filter(|entry| entry.path().is_dir());
    let shelves = shelves.filter(|entry| entry.file_name().len() == 2);
    shelves
        .map(|shelf| std::fs::read_dir(shelf.path()).unwrap().count())
        .sum()
}

#[tokio::test]
async fn what_is_no_place_for_a_backup_is_refused() {
    let bridge = Bridge::start();
    chat_with_file(&bridge, "a").await;
    let data = bridge.directory.path().join("data");
    let place = TempDir::new().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("full")).unwrap();
    std::fs::write(at("full/mine"), "mine").unwrap();
    std::fs::write(at("file"), "").unwrap();
    let other = Bridge::start();
    let other_data = other.directory.path().join("data");
    let made = run(
        place.path(),
        &["backup", "good", "--data-dir", data.to_str().unwrap()],
        &[],
    );
    assert_eq!(made.status.code(), Some(0), "{}", said(&made));
    let inside = data.join("backup").to_str().unwrap().to_owned();
    for (target, source, word) in [
        (at("full"), &data, "not empty and no backup"),
        (at("file"), &data, "is a file"),
        (at("good"), &other_data, "of another database"),
        (inside, &data, "in the data directory"),
        (
            at("new"),
            &place.path().join("nothing"),
            "there is no database",
        ),
    ] {
        let source = source.to_str().unwrap();
        let refused = run(
            place.path(),
            &["backup", &target, "--data-dir", source],
            &[],
        );
        assert_eq!(refused.status.code(), Some(1), "{target}");
        assert!(said(&refused).contains(word), "{}", said(&refused));
    }
    assert!(std::path::Path::new(&at("full/mine")).exists());
    let postgres = run(
        place.path(),
        &["backup", "new"],
        &[(
            "ADK_BRIDGE__STORE__URL",
            "postgres://u:PLANTED-0123@127.0.0.1:9/d",
        )],
    );
    assert_eq!(postgres.status.code(), Some(1));
    let said = said(&postgres);
    assert!(said.contains("pg_dump") && said.contains("files"), "{said}");
    assert!(!said.contains("PLANTED"), "{said}");
}
