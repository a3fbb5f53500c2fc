//! Budgets over replicas: what one counts limits all of them.

use adk_bridge_testkit::text_of;

use crate::rig::Fleet;

#[tokio::test]
async fn what_is_used_at_one_replica_is_used_at_all() {
    let (fleet, a, b) = Fleet::pair("[budget]\ntokens_per_day = 1\n").await;
    let said = a.ask("here", "say hi").await.events().await;
    assert_eq!(text_of(&adk_bridge_testkit::folded(&said)), "hi");
    let states = [&a, &b].map(|replica| replica.send("GET", "/api/budget", ""));
    let [at_a, at_b] = states;
    let (at_a, at_b) = (at_a.await.json(), at_b.await.json());
    assert!(at_a["used"]["tokens"].as_u64() > Some(1), "{at_a}");
    assert_eq!(at_a["used"], at_b["used"]);
    // In a chat of its own, and in the one that the other replica owns.
    for chat in ["there", "here"] {
        let refused = b.ask(chat, "say more").await.whole().await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (429, "budget_exceeded")
        );
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(fleet.owners.owner_of("here"), Some(a.address));
    let after = b.send("GET", "/api/budget", "").await.json();
    assert_eq!(after["used"], at_a["used"]);
}
