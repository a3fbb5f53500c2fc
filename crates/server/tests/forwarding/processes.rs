//! Real processes on a real database: what replicas in one process cannot show.

use adk_bridge_testkit::fleet::Fleet;
use adk_bridge_testkit::{folded, text_of, words};

/// A process that is stopped keeps its connections, and says nothing.
#[tokio::test]
async fn a_reader_is_cut_off_from_an_owner_that_is_stopped_and_finds_the_next() {
    let fleet = Fleet::start_with(2, "", |_, command| {
        command.env("ADK_BRIDGE__DEMO__PACE", "20ms");
    });
    let mut owned = fleet.at(0).ask("c", "long 60").await;
    let mut through = fleet.at(1).resume("c").await;
    assert_eq!(through.status, 200);
    through.events_until("word10").await;
    owned.event().await.unwrap();
    fleet.pause(0);
    assert!(through.breaks_off().await);
    let mut again = fleet.resumed(1, "c").await;
    let message = folded(&again.events().await);
    assert_eq!(text_of(&message), words(60));
    fleet.wake(0);
    // The one that slept learns that it is not the owner any more, and passes on what comes to it.
    let stored = fleet.at(0).settled_message("c").await;
    assert_eq!(text_of(&stored), words(60));
}
