//! The front end of adk-stream-protocol: which words of its requests decide, and that nothing of it is there by default.

use serde_json::{Value, json};

use crate::support::{Bridge, JSON, asking, refused, types};

const COMPAT: &str = "[server]\ncompat = [\"adk-stream-protocol\"]\n";
const PAYMENT: &str = r#"call process_payment {"amount": 5, "recipient": "Hanako"}"#;

#[tokio::test]
async fn nothing_of_it_is_there_by_default() {
    let bridge = Bridge::start();
    for path in ["/stream", "/clear-sessions"] {
        let answer = bridge.post(path, &asking("c", "say hi")).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"));
    }
    let unknown = refused("[server]\ncompat = [\"other\"]\n", |_| {});
    assert!(unknown.contains("server.compat"), "{unknown}");
}

#[tokio::test]
async fn a_request_gets_its_dialect_unless_it_names_one() {
    let bridge = Bridge::configured(COMPAT);
    for (dialect, has_steps) in [(None, false), (Some("native"), true), (Some("held"), false)] {
        let mut body = asking("c", "say hi");
        if let Some(dialect) = dialect {
            body["dialect"] = json!(dialect);
        }
        let mut answer = bridge
            .open("POST", "/stream", &[JSON], &body.to_string())
            .await;
        let types = types(&answer.events().await);
        let shown = types.iter().any(|kind| kind == "start-step");
        assert_eq!(shown, has_steps, "{dialect:?}: {types:?}");
    }
}

/// Its word for a decision, and everything that only looks like it.
#[tokio::test]
async fn only_its_clear_words_decide() {
    let bridge = Bridge::configured(COMPAT);
    let cases = [
        (json!({"approval": "approved"}), Some(true)),
        (json!({"approved": true}), Some(true)),
        (json!({"confirmed": true}), Some(true)),
        (json!({"approval": "denied"}), Some(false)),
        (json!({"approval": "rejected"}), Some(false)),
        (json!({"approved": false}), Some(false)),
        (json!({"approval": "Approved"}), None),
        (json!({"approval": "yes"}), None),
        (json!({"approval": true}), None),
        (json!({"approval": ["approved"]}), None),
        (json!({"approval": null}), None),
        (json!({"approval": "approved", "status": "rejected"}), None),
        (json!({"approval": "approved", "approved": false}), None),
        (json!({"approval": "denied", "approved": true}), None),
        (json!({"approval": "approved", "confirmed": false}), None),
        (json!({"approval": "denied", "confirmed": true}), None),
        (json!("approved"), None),
    ];
    for (number, (result, decides)) in cases.iter().enumerate() {
        let chat = format!("c{number}");
        bridge.ask(&chat, PAYMENT).await.events().await;
        let asked = bridge.last_message(&chat).await;
        let id = &asked["parts"].as_array().unwrap().last().unwrap()["approval"]["id"];
        let content = json!([{"type": "tool-result", "toolCallId": id, "result": result}]);
        let body = json!({"id": chat, "messages": [{"role": "user", "content": content}]});
        let answer = bridge.post("/stream", &body).await;
        let kinds = decisions(&bridge, &chat).await;
        match decides {
            Some(true) => assert_eq!(kinds, ["approval.approved"], "{result}"),
            Some(false) => assert_eq!(kinds, ["approval.denied"], "{result}"),
            None => {
                assert_eq!(answer.status, 422, "{result}");
                assert_eq!(kinds, [""; 0], "{result}");
            }
        }
    }
}

#[tokio::test]
async fn requests_without_an_id_share_a_chat_that_can_be_cleared() {
    let bridge = Bridge::configured(COMPAT);
    for text in ["say one", "say two"] {
        let mut body = asking("", text);
        body.as_object_mut().unwrap().remove("id");
        assert_eq!(bridge.post("/stream", &body).await.status, 200);
    }
    let listed = bridge.get("/api/chats").await.json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    let cleared = bridge.post("/clear-sessions", &json!({})).await;
    assert_eq!(cleared.json()["status"], "success");
    assert_eq!(bridge.get("/api/chats").await.json(), json!([]));
}

/// What the audit says was decided.
async fn decisions(bridge: &Bridge, chat: &str) -> Vec<String> {
    let audit = bridge.get(&format!("/api/audit?chat={chat}")).await.json();
    let kind = |row: &Value| row["kind"].as_str().unwrap().to_owned();
    let kinds = audit.as_array().unwrap().iter().map(kind);
    kinds
        .filter(|kind| matches!(kind.as_str(), "approval.approved" | "approval.denied"))
        .collect()
}
