//! Live connections that do nothing.

use futures_util::future::join_all;

use crate::client::Client;
use crate::rig::{ALICE, Rig};

/// What is created on first use is there after these.
const FIRST: usize = 50;
const MORE: usize = 400;
/// How many are opened at once: what a rush of them takes for a moment is not what they take.
const AT_ONCE: usize = 20;
/// What one may take; a third of it is room for what else happens in the process.
const MOST: usize = 22_000;

async fn open(rig: &Rig, numbers: std::ops::Range<usize>) -> Vec<Client> {
    let mut opened = Vec::new();
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(AT_ONCE) {
        let some = some.iter().map(|number| async move {
            let path = format!("/live?chat=idle-{number}");
            let (head, mut client) = Client::try_open(&rig.bridge, &path, &[ALICE]).await;
            assert!(head.starts_with("HTTP/1.1 101"), "{head}");
            client.check_alive().await;
            client
        });
        opened.extend(join_all(some).await);
    }
    opened
}

#[tokio::test]
async fn a_live_connection_that_does_nothing_takes_little() {
    let rig = Rig::start("").await;
    let first = open(&rig, 0..FIRST).await;
    let before = rig.bridge.memory();
    let more = open(&rig, FIRST..FIRST + MORE).await;
    let each = rig.bridge.memory().saturating_sub(before) / MORE;
    assert!(each < MOST, "{each} bytes");
    drop((first, more));
}
