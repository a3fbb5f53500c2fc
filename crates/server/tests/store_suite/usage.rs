//! Usage of agents: counted once, whoever counts it and however often, for a user, an agent and a day.

use adk_bridge::store::{ReplyUsage, Spent, TokenPrice, Tokens, UsageRow};

use super::*;

const PRICE: TokenPrice = TokenPrice {
    input: 300_000,
    cached: 75_000,
    output: 2_500_000,
};

fn tokens(input: u64, cached: u64, output: u64) -> Tokens {
    Tokens {
        input,
        cached,
        output,
    }
}

fn usage(message_id: &MessageId, day: u64, so_far: Tokens) -> ReplyUsage<'_> {
    ReplyUsage {
        message_id,
        agent: "helper\u{0}1",
        day,
        so_far,
        price: PRICE,
    }
}

fn row(day: u64, agent: &str, tokens: Tokens, cost: u64) -> UsageRow {
    UsageRow {
        day,
        agent: agent.to_owned(),
        spent: Spent { tokens, cost },
    }
}

pub(crate) async fn is_counted_once(home: &impl Home) {
    let store = with_chat(home).await;
    let missing_reply = store.count_usage(CHAT, usage(M1, 7, tokens(1, 0, 1)));
    assert_eq!(missing(missing_reply.await), "no such message");
    store
        .commit(CHAT, &reply("m1", ""), &[], at(1))
        .await
        .unwrap();
    let new = store.count_usage(CHAT, usage(M1, 7, tokens(1_000, 400, 10)));
    let first = Spent {
        tokens: tokens(1_000, 400, 10),
        // 600 * 0.3 + 400 * 0.075 + 10 * 2.5, in millionths of the currency.
        cost: 235_000,
    };
    assert_eq!(new.await.unwrap(), first);
    // The same again, and what an owner before knew of the reply.
    for late in [tokens(1_000, 400, 10), tokens(900, 300, 9)] {
        let new = store.count_usage(CHAT, usage(M1, 7, late)).await.unwrap();
        assert_eq!(new, Spent::default());
    }
    store
        .commit(CHAT, &finished("m1", "done"), &[], at(2))
        .await
        .unwrap();
    let new = store.count_usage(CHAT, usage(M1, 8, tokens(1_500, 900, 11)));
    assert_eq!(new.await.unwrap().tokens, tokens(500, 500, 1));
    drop(store);

    let store = home.open().await.unwrap();
    let agent = "helper\u{0}1";
    assert_eq!(
        store.usage_of_day(CHAT.user, 7).await.unwrap(),
        [row(7, agent, tokens(1_000, 400, 10), 235_000)]
    );
    assert_eq!(
        store.usage_of_day(CHAT.user, 8).await.unwrap(),
        [row(8, agent, tokens(500, 500, 1), 40_000)]
    );
    assert_eq!(store.usage_of_day(FOREIGN.user, 7).await.unwrap(), []);
    let foreign = store.count_usage(FOREIGN, usage(M1, 7, tokens(2_000, 0, 0)));
    assert_eq!(missing(foreign.await), "no such chat");
    // It outlives its chat.
    store.delete_chat(CHAT).await.unwrap();
    assert_eq!(store.usage_of_day(CHAT.user, 7).await.unwrap().len(), 1);
}

/// Many replies of one user are counted at once, each of them twice; from two connections, if the store is shared.
pub(crate) async fn of_many_at_once_adds_up(home: &impl Home) {
    const REPLIES: u64 = 20;
    let one = home.open().await.unwrap();
    let two = match one.is_shared() {
        true => home.open().await.unwrap(),
        false => one.clone(),
    };
    let user = CHAT.user;
    let mut counting = Vec::new();
    for number in 0..REPLIES {
        let id = ChatId::from(format!("chat-{number}"));
        let chat = ChatRef { user, id: &id };
        one.create_chat(chat, at(1)).await.unwrap();
        one.commit(chat, &reply("m1", ""), &[], at(1))
            .await
            .unwrap();
        for store in [&one, &two] {
            let (store, id) = (store.clone(), id.clone());
            counting.push(tokio::spawn(async move {
                for step in 1..=3 {
                    let so_far = tokens(10 * step, 0, step);
                    let chat = ChatRef { user, id: &id };
                    store.count_usage(chat, usage(M1, 7, so_far)).await.unwrap();
                }
            }));
        }
    }
    for counted in counting {
        counted.await.unwrap();
    }
    let rows = two.usage_of_day(user, 7).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].spent.tokens, tokens(30 * REPLIES, 0, 3 * REPLIES));
}

pub(crate) async fn is_listed_and_goes_by_age_and_user(home: &impl Home) {
    let store = with_chat(home).await;
    store
        .commit(CHAT, &reply("m1", ""), &[], at(1))
        .await
        .unwrap();
    let mut so_far = 0;
    for (day, agent) in [(7, "b"), (7, "a"), (8, "a"), (9, "a")] {
        so_far += 10;
        let counted = ReplyUsage {
            agent,
            ..usage(M1, day, tokens(so_far, 0, 0))
        };
        store.count_usage(CHAT, counted).await.unwrap();
    }
    let listed = async |after, limit| -> Vec<(u64, String)> {
        let rows = store.usage_of_user(CHAT.user, after, limit).await.unwrap();
        rows.into_iter().map(|row| (row.day, row.agent)).collect()
    };
    let row = |day: u64, agent: &str| (day, agent.to_owned());
    assert_eq!(listed(None, 2).await, [row(7, "a"), row(7, "b")]);
    assert_eq!(listed(Some((7, "b")), 9).await, [row(8, "a"), row(9, "a")]);
    assert_eq!(listed(Some((9, "a")), 9).await, []);
    assert_eq!(store.delete_old_usage(9, 2).await.unwrap(), 2);
    assert_eq!(store.delete_old_usage(9, 9).await.unwrap(), 1);
    assert_eq!(listed(None, 9).await, [row(9, "a")]);
    assert_eq!(store.erase_usage(FOREIGN.user).await.unwrap(), 0);
    assert_eq!(store.erase_usage(CHAT.user).await.unwrap(), 1);
    assert_eq!(listed(None, 9).await, []);
}

/// What no model uses is counted as much, and nothing overflows.
pub(crate) async fn without_measure_is_bounded(home: &impl Home) {
    let store = with_chat(home).await;
    for id in [M1, M2] {
        let record = finished(id.as_str(), "");
        store.commit(CHAT, &record, &[], at(1)).await.unwrap();
        let price = TokenPrice {
            input: 1_000_000_000_000,
            cached: 1_000_000_000_000,
            output: 1_000_000_000_000,
        };
        let boundless = ReplyUsage {
            price,
            ..usage(id, 7, tokens(u64::MAX, u64::MAX, u64::MAX))
        };
        store.count_usage(CHAT, boundless).await.unwrap();
    }
    let rows = store.usage_of_day(CHAT.user, 7).await.unwrap();
    assert_eq!(rows[0].spent.tokens, tokens(1 << 51, 1 << 51, 1 << 51));
    assert_eq!(rows[0].spent.cost, 2_000_000_000_000_000_000);
}
