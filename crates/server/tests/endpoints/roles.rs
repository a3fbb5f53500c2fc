//! What each role may do: the table of `docs/access.md`, held against the description and against a real bridge.

use std::collections::BTreeSet;

use crate::support::{Bridge, JSON};

const TABLE: &str = include_str!("../../../../docs/access.md");

const USERS: &str = "
[server]
compat = [\"adk-stream-protocol\"]
[limits]
wrong_keys_per_minute = 10000
[[auth.api_keys]]
key = \"user-secret-0123456789\"
user = \"user\"
[[auth.api_keys]]
key = \"approver-secret-0123456789\"
user = \"approver\"
roles = [\"approver\"]
[[auth.api_keys]]
# Its key is auditor-secret-0123456789.
key_sha256 = \"9F0662CACE5EDE174F3CF944520D14DB726cbcf4dca3d43eb1a52fe0b97c9d29\"
user = \"auditor\"
roles = [\"auditor\"]
[[auth.api_keys]]
key = \"admin-secret-0123456789\"
user = \"admin\"
roles = [\"admin\"]
";

pub(crate) const ROLES: [&str; 5] = ["nobody", "user", "approver", "auditor", "admin"];

/// A row: method, path, and what each role gets.
pub(crate) fn rows() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let lines = TABLE.lines().filter(|line| line.starts_with("| `"));
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(str::trim));
    let rows = cells.filter_map(|mut cells| {
        let (method, path) = cells.next()?.trim_matches('`').split_once(' ')?;
        let rest: Vec<_> = cells.collect();
        (rest.len() == ROLES.len()).then_some((method, path, rest))
    });
    rows.collect()
}

#[tokio::test]
async fn the_table_names_every_endpoint() {
    let listed: BTreeSet<(String, String)> = rows()
        .iter()
        .map(|(method, path, _)| {
            let path = path.split('?').next().unwrap_or_default();
            ((*method).to_owned(), path.replace('*', ""))
        })
        .collect();
    let bridge = Bridge::configured(USERS);
    let described = bridge.get("/api/openapi.json").await.json();
    let mut routed = BTreeSet::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let path = match path.trim_end_matches('/') {
            "" => "/",
            shorter => shorter,
        };
        for method in ["get", "post", "put", "patch", "delete"] {
            if methods.get(method).is_some() {
                routed.insert((method.to_ascii_uppercase(), path.to_owned()));
            }
        }
    }
    assert_eq!(listed, routed);
}

#[tokio::test]
async fn each_role_may_do_what_the_table_says_and_nothing_else() {
    let bridge = Bridge::configured(USERS);
    let rows = rows();
    assert!(rows.len() > 30);
    for (method, path, cells) in rows {
        for (role, cell) in ROLES.into_iter().zip(cells) {
            let place = path
                .replace("{id}", "nothing")
                .replace("{agent}", "demo")
                .replace("{call}", "call-1")
                .replace("{user}", "somebody")
                .replace("{*path}", "nothing.js");
            let key = format!("Bearer {role}-secret-0123456789");
            let mut headers = vec![JSON];
            if role != "nobody" {
                headers.push(("authorization", &key));
            }
            let is_socket = place == "/live" || place.ends_with("/ws");
            if is_socket || method == "GET" && place.ends_with("/chat") {
                headers.extend([
                    ("connection", "upgrade"),
                    ("upgrade", "websocket"),
                    ("sec-websocket-version", "13"),
                    ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
                ]);
            }
            let body = if method == "POST" { "{}" } else { "" };
            let status = bridge.open(method, &place, &headers, body).await.status;
            let refused = match role {
                "nobody" => status == 401,
                _ => status == 403 || status == 401,
            };
            assert_eq!(refused, cell == "–", "{method} {place} as {role}: {status}");
            assert!(status < 500, "{method} {place} as {role}: {status}");
        }
    }
}

#[tokio::test]
async fn whoever_may_erase_may_end_logins() {
    // Without keys, the local user is the only one, and manages everybody whom the data knows.
    let bridge = Bridge::start();
    for path in ["/api/users/bob", "/api/users/bob/logins"] {
        let done = bridge.send("DELETE", path, &[JSON], "").await;
        assert_eq!(done.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_key_that_is_there_and_wrong_is_not_made_good() {
    let bridge = Bridge::configured(USERS);
    let right = ("authorization", "Bearer user-secret-0123456789");
    let ticket = bridge.send("POST", "/api/ticket", &[JSON, right], "").await;
    let ticket = ticket.json()["ticket"].as_str().unwrap().to_owned();
    let socket = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    let path = format!("/live?chat=one&ticket={ticket}");
    for (wrong, status) in [(true, 401), (false, 101)] {
        let mut headers = socket.to_vec();
        headers.extend(wrong.then_some(("authorization", "Bearer wrong")));
        let opened = bridge.open("GET", &path, &headers, "").await;
        assert_eq!(opened.status, status);
    }
}

#[tokio::test]
async fn an_auditor_reads_what_others_did_and_changes_nothing_of_it() {
    let bridge = Bridge::configured(USERS);
    let [user, auditor, admin] =
        ["user", "auditor", "admin"].map(|role| format!("Bearer {role}-secret-0123456789"));
    let as_user = [JSON, ("authorization", user.as_str())];
    let asked = crate::support::asking(
        "hers",
        "call process_payment {\"amount\":1,\"recipient\":\"x\"}",
    );
    let answer = bridge
        .send("POST", "/api/chat", &as_user, &asked.to_string())
        .await;
    assert_eq!(answer.status, 200);
    let own = bridge
        .send("GET", "/api/audit?chat=hers", &as_user, "")
        .await
        .json();
    assert!(!own.as_array().unwrap().is_empty());
    for reader in [&auditor, &admin] {
        let headers = [("authorization", reader.as_str())];
        for path in [
            "/api/audit",
            "/api/audit?user=user",
            "/api/audit?user=user&chat=hers",
        ] {
            let found = bridge.send("GET", path, &headers, "").await;
            assert_eq!(found.json(), own, "{path}");
        }
        let page = bridge
            .send("GET", "/api/audit?user=user&limit=1", &headers, "")
            .await;
        let link = page.header("link").unwrap();
        assert!(link.starts_with("<?user=user&after="), "{link}");
        for (path, expected) in [
            ("/api/audit?user=nobody", serde_json::json!([])),
            ("/api/chats", serde_json::json!([])),
        ] {
            assert_eq!(
                bridge.send("GET", path, &headers, "").await.json(),
                expected
            );
        }
        for (method, path) in [
            ("GET", "/api/chats/hers"),
            ("DELETE", "/api/chats/hers"),
            ("POST", "/api/chat/hers/stop"),
        ] {
            let refused = bridge.send(method, path, &headers, "").await;
            assert_eq!(refused.status, 404, "{method} {path}");
        }
    }
    let refused = bridge
        .send("GET", "/api/audit?user=auditor", &as_user, "")
        .await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "role_needed")
    );
    let mine = bridge
        .send("GET", "/api/audit?user=user", &as_user, "")
        .await;
    assert_eq!(mine.json(), own);
    let unnamed = bridge.send("GET", "/api/audit", &as_user, "").await;
    assert_eq!(unnamed.status, 422);
}
