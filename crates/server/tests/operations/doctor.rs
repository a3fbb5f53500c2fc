//! `doctor`: a healthy installation is called healthy, and each ailment is named with its remedy.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::net::TcpListener;

use adk_bridge_testkit::bridge::Bridge;
use tempfile::TempDir;

use super::{printed, run};

const ROOM: (&str, &str) = ("ADK_BRIDGE__LIMITS__STORED_BYTES", "1000000");

#[tokio::test]
async fn a_bridge_that_runs_is_healthy() {
    let bridge =
        Bridge::configured("[limits]\nconnections = 100\nturns = 50\nmemory_bytes = 524288000");
    let asked = bridge.ask("a", "say hi").await.whole().await;
    assert_eq!(asked.status, 200);
    let listen = bridge.address.to_string();
    let arguments = [
        "doctor",
        "--config",
        "test.toml",
        "--data-dir",
        "data",
        "--listen",
        &listen,
    ];
    let looked = run(bridge.directory.path(), &arguments, &[ROOM]);
    let printed = printed(&looked);
    for words in [
        "ok       version: adk-bridge ",
        "ok       configuration: ",
        "ok       open files: ",
        "no turn begins beyond 500 MiB (limits.memory_bytes)",
        "ok       clock: ",
        "is sound",
        "its schema is up to date",
        "ok       port: a bridge answers at ",
        "ok       agent demo: ",
    ] {
        assert!(printed.contains(words), "{words} in {printed}");
    }
    assert!(!printed.contains("problem "), "{printed}");
}

#[test]
fn every_ailment_is_named_with_what_to_do() {
    let directory = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(
        data.join("adk-bridge.db"),
        "this is no database, however long it is",
    )
    .unwrap();
    let toml = "[[auth.api_keys]]\nkey = \"PLANTED-0123456789\"\nuser = \"a\"\n[limits]\nloaded_bytes = 1000000000000000";
    std::fs::write(directory.path().join("a.toml"), toml).unwrap();
    let arguments = ["doctor", "--config", "a.toml", "--listen", &listen];
    let looked = run(directory.path(), &arguments, &[]);
    let printed = printed(&looked);
    assert_eq!(looked.status.code(), Some(2), "{printed}");
    for (line, remedy) in [
        ("problem  port: another program has ", "server.listen"),
        ("problem  database: ", "backup"),
        (
            "warning  data directory: others may look into ",
            "chmod 700",
        ),
        ("warning  memory: ", "limits.loaded_bytes"),
    ] {
        let found = printed.lines().find(|it| it.starts_with(line));
        assert!(
            found.is_some_and(|it| it.contains(remedy)),
            "{line} in {printed}"
        );
    }
    assert!(!printed.contains("PLANTED"), "{printed}");
}

#[tokio::test]
async fn a_damaged_database_is_found_by_reading_all_of_it() {
    let mut bridge = Bridge::start();
    for number in 0..20 {
        let asked = bridge.ask(&format!("chat-{number}"), "long 300").await;
        assert_eq!(asked.whole().await.status, 200);
    }
    bridge.signal("-TERM");
    while bridge.is_alive() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let path = bridge.directory.path().join("data/adk-bridge.db");
    let mut database = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let pages = database.metadata().unwrap().len() / 4096;
    assert!(pages > 20, "{pages}");
    // Not the first pages: the schema stays readable.
    for page in pages / 2..pages {
        database.seek(SeekFrom::Start(page * 4096)).unwrap();
        database.write_all(&[0xAB; 512]).unwrap();
    }
    drop(database);
    let looked = run(
        bridge.directory.path(),
        &["doctor", "--data-dir", "data", "--listen", "127.0.0.1:0"],
        &[ROOM],
    );
    let printed = printed(&looked);
    assert_eq!(looked.status.code(), Some(2), "{printed}");
    let line = printed
        .lines()
        .find(|it| it.starts_with("problem  database: "));
    assert!(line.is_some_and(|it| it.contains("restore")), "{printed}");
}
