//! What a user is shown of answers that are not plain text: reasons, names of files, agents that take over.

use serde_json::{Value, json};

use crate::stand_in::{StandIn, events, ok, well};
use crate::support::Bridge;

/// What an ADK server sends, and what a front end must get.
struct Case {
    name: &'static str,
    sent: String,
    shown: &'static [&'static str],
    hidden: &'static [&'static str],
}

fn line(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn part(part: &Value) -> Value {
    json!({"author": "app", "content": {"role": "model", "parts": [part]}})
}

fn cases() -> Vec<Case> {
    let transfer = json!({"functionCall": {"id": "t", "name": "transfer_to_agent", "args": {"agent_name": "helper"}}});
    let transferred = json!({"functionResponse": {"id": "t", "name": "transfer_to_agent", "response": {"result": null}}});
    let payload = "x".repeat(2_000);
    let mut through_a2a = part(&json!({"text": "hello"}));
    through_a2a["customMetadata"] = json!({"a2a:task_id": "t1", "a2a:request": payload, "a2a:response": {"x": payload}, "mine": 1});
    vec![
        Case {
            name: "stopped before a word",
            sent: line(
                &json!({"author": "app", "errorCode": "SAFETY", "finishReason": "SAFETY", "errorMessage": "not a topic for me"}),
            ),
            shown: &["SAFETY: not a topic for me", r#""type":"error""#],
            hidden: &["content-filter"],
        },
        Case {
            name: "stopped in the middle",
            sent: line(&part(&json!({"text": "so far"})))
                .replace(r#""author":"app""#, r#""author":"app","partial":true"#)
                + &line(
                    &json!({"author": "app", "errorCode": "MAX_TOKENS", "finishReason": "MAX_TOKENS", "errorMessage": "too long"}),
                ),
            shown: &["so far", r#""finishReason":"length""#],
            hidden: &[r#""type":"error""#],
        },
        Case {
            name: "an error of an old server, unescaped",
            sent: "data: {\"error\": \"no model named \"x\" at: y\nand more: of it\"}\n\n"
                .to_owned(),
            shown: &[r#"no model named \"x\" at: y"#, r#""type":"error""#],
            hidden: &["is not an ADK event"],
        },
        Case {
            name: "another agent takes over",
            sent: line(&part(&transfer))
                + &line(&part(&transferred))
                + &line(&part(&json!({"text": "I am here"}))),
            shown: &[r#""output":{"agent":"helper"}"#, "I am here"],
            hidden: &[r#"{"result":null}"#],
        },
        Case {
            name: "an artifact has its name",
            sent: line(
                &json!({"author": "app", "actions": {"artifactDelta": {"reports/May \"1\".txt": 0}}}),
            ),
            shown: &[
                r#""providerMetadata":{"adk":{"filename":"May \"1\".txt"}}"#,
                r#""type":"file""#,
            ],
            hidden: &["reports/"],
        },
        Case {
            name: "whole payloads of A2A",
            sent: line(&through_a2a),
            shown: &["hello", r#""customMetadata":{"a2a:task_id":"t1","mine":1}"#],
            hidden: &["xxxx"],
        },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_user_needs_is_dropped() {
    let stand_in = StandIn::start(|asked| {
        let text = asked.body.to_string();
        match asked.path.as_str() {
            "/run_sse" => {
                let case = cases().into_iter().find(|case| text.contains(case.name));
                events(case.map(|case| case.sent).unwrap_or_default())
            }
            path if path.contains("/artifacts/") => {
                ok(&json!({"inlineData": {"mimeType": "text/plain", "data": "aGk="}}))
            }
            _ => well(asked),
        }
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    for (number, case) in cases().iter().enumerate() {
        let chat = format!("c{number}");
        let stream = bridge.ask(&chat, case.name).await.events().await.concat();
        let stored = bridge.get(&format!("/api/chats/{chat}")).await;
        let stored = String::from_utf8_lossy(&stored.body).into_owned();
        for shown in case.shown {
            assert!(stream.contains(shown), "{}: {shown} in {stream}", case.name);
        }
        for hidden in case.hidden {
            let found = stream.contains(hidden) || stored.contains(hidden);
            assert!(!found, "{}: {hidden} in {stream} {stored}", case.name);
        }
    }
}
