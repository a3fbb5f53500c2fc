//! An audit with very many rows is read page by page, and asked about by its index.

use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::rig::{MB, Rig, message, text};

const ROWS: usize = 50_000;

/// Adds rows to the audit of a chat, as many wrong answers would.
async fn fill(rig: &Rig) {
    let database = rig.bridge.directory.path().join("data/adk-bridge.db");
    let url = format!("sqlite:{}", database.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let insert = format!(
        "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {ROWS})
         INSERT INTO audit (at, user, chat_id, kind, tool_call_id, approval_id, reason)
         SELECT number, 'alice', 'c', 'answer.refused', 'call-' || number, 'approval-' || number, 'nobody asked'
         FROM numbers"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert))
        .execute(&mut connection)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_audit_is_read_in_pages() {
    let mut rig = Rig::start("").await;
    let say = |id: &str| message(id, "user", vec![text("say Hello.")]);
    let post = |messages: Value| json!({"id": "c", "messages": messages});
    let pay = "call process_payment {\"amount\": 1, \"recipient\": \"x\"}";
    let question = message("u1", "user", vec![text(pay)]);
    assert_eq!(rig.post(&post(json!([question]))).await.status, 200);
    let asked = rig.get("/api/chats/c").await.json()["messages"][1].clone();
    let written_on = post(json!([question, asked, say("u2")]));
    assert_eq!(rig.post(&written_on).await.status, 200);
    let mut late = rig.get("/api/chats/c").await.json()["messages"][1].clone();
    fill(&rig).await;

    let whole = rig.get("/api/audit?chat=c").await;
    assert_eq!(whole.status, 200);
    let rows = whole.json();
    assert_eq!(rows.as_array().unwrap().len(), 1_000);
    assert_eq!(rows[0]["kind"], "approval.requested");
    let mut next = next_of(whole.header("link"));
    let mut last = rows[999]["id"].as_u64().unwrap();
    for _ in 0..3 {
        let page = rig.get(&format!("/api/audit{}", next.unwrap())).await;
        next = next_of(page.header("link"));
        let rows = page.json();
        let ids: Vec<u64> = rows
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["id"].as_u64().unwrap())
            .collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids[0] > last && ids.is_sorted());
        last = ids[999];
    }
    for (query, count, more) in [
        ("limit=7", 7, true),
        ("limit=5000", 1_000, true),
        ("after=49990", 0, false),
        ("after=999999999", 0, false),
    ] {
        let page = rig.get(&format!("/api/audit?chat=c&{query}")).await;
        let found = page.json().as_array().unwrap().len();
        // The exact number of rows at the end depends on what the two turns recorded.
        assert!(
            found == count || count == 0 && found < 100,
            "{query}: {found}"
        );
        assert_eq!(page.header("link").is_some(), more, "{query}");
    }
    for query in ["limit=0", "limit=-1", "after=x"] {
        let page = rig.get(&format!("/api/audit?chat=c&{query}")).await;
        assert_eq!(
            (page.status, page.code().as_str()),
            (400, "bad_request"),
            "{query}"
        );
    }

    // An answer that comes too late rides along, again and again: it is looked up, not searched for.
    late["parts"][1]["state"] = json!("approval-responded");
    late["parts"][1]["approval"]["approved"] = json!(true);
    let refused = |rows: Value| {
        let own = |row: &&Value| row["reason"] != "nobody asked" && row["kind"] == "answer.refused";
        rows.as_array().unwrap().iter().filter(own).count()
    };
    let read = rig.read();
    for id in ["u3", "u4", "u5"] {
        let answer = rig.post(&post(json!([question, late, say(id)]))).await;
        assert_eq!(answer.status, 200);
    }
    assert!(rig.read() - read < 5 * MB, "{}", rig.read() - read);
    let rows = rig.get("/api/audit?chat=c&after=50000").await.json();
    assert_eq!(refused(rows), 1);
    assert!(rig.peak() < 100 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}

fn next_of(link: Option<&str>) -> Option<String> {
    let (next, rest) = link?.strip_prefix('<')?.split_once('>')?;
    (rest == "; rel=\"next\"").then(|| next.to_owned())
}
