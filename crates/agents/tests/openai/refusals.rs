//! Servers that refuse: what the user is told, and what is tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use adk_bridge_testkit::stand_in::{StandIn, events, refused};
use serde_json::{Value, json};

use crate::{KEY, agent, agent_with, ask};

const FINE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A stand-in that gives these answers one after the other, the last one again and again.
async fn in_turn(answers: Vec<Vec<u8>>) -> StandIn {
    let count = Arc::new(AtomicUsize::new(0));
    StandIn::start(move |_| {
        let turn = count.fetch_add(1, Ordering::SeqCst);
        answers[turn.min(answers.len() - 1)].clone()
    })
    .await
}

fn with_header(status: u16, header: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\n{header}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        .into_bytes()
}

/// An error in the form of OpenAI.
fn error(message: &str, code: Value) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}}).to_string()
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let json = "application/json";
    let soon = "retry-after: 0";
    let page = "<html>Bad gateway</html>";
    // The answer; how often it is asked for; the kind; words of the message.
    let rows: Vec<(Vec<u8>, usize, &str, Vec<&str>)> = vec![
        (
            refused(400, json, &error("no such field", Value::Null)),
            1,
            "rejected",
            vec!["refused the request", "no such field"],
        ),
        (
            refused(401, json, &error("wrong key", json!("invalid_api_key"))),
            1,
            "unauthorized",
            vec!["refuses the API key", "wrong key"],
        ),
        (
            refused(
                404,
                json,
                &error("The model `m` does not exist", json!("model_not_found")),
            ),
            1,
            "rejected",
            vec!["\"m\" is unknown", "set agent.model"],
        ),
        (
            refused(
                404,
                json,
                "{\"error\":{\"message\":\"model \\\"m\\\" not found, try pulling it first\"}}",
            ),
            1,
            "rejected",
            vec!["pulling it first", "set agent.model"],
        ),
        (
            refused(404, "text/plain", "404 page not found"),
            1,
            "rejected",
            vec!["no chat completions", "agent.base_url"],
        ),
        (
            refused(404, json, "{\"detail\":\"Not Found\"}"),
            1,
            "rejected",
            vec!["no chat completions", "Not Found"],
        ),
        (
            refused(
                422,
                json,
                "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"Field required\",\"input\":\"secret\"}]}",
            ),
            1,
            "rejected",
            vec!["Field required"],
        ),
        (
            refused(
                400,
                json,
                "{\"object\":\"error\",\"message\":\"too long\",\"code\":400}",
            ),
            1,
            "rejected",
            vec!["too long"],
        ),
        (
            refused(
                400,
                json,
                "[{\"error\":{\"code\":400,\"message\":\"bad argument\"}}]",
            ),
            1,
            "rejected",
            vec!["bad argument"],
        ),
        (refused(400, "text/html", page), 1, "rejected", vec!["400"]),
        (
            refused(413, "text/plain", &"x".repeat(1_000_000)),
            1,
            "rejected",
            vec!["xxx…"],
        ),
        (
            with_header(307, "location: /elsewhere", ""),
            1,
            "rejected",
            vec!["redirects", "correct agent.base_url"],
        ),
        (
            with_header(429, soon, &error("slow down", json!("rate_limit_exceeded"))),
            4,
            "quota",
            vec!["slow down"],
        ),
        (
            with_header(
                429,
                "retry-after: 60",
                &error("slow down", json!("rate_limit_exceeded")),
            ),
            1,
            "quota",
            vec!["slow down"],
        ),
        (
            with_header(429, soon, &error("pay first", json!("insufficient_quota"))),
            1,
            "quota",
            vec!["pay first"],
        ),
        (
            with_header(
                503,
                soon,
                "{\"error\":{\"code\":503,\"message\":\"Loading model\",\"type\":\"unavailable_error\"}}",
            ),
            4,
            "unreachable",
            vec!["Loading model"],
        ),
        (
            with_header(502, soon, page),
            4,
            "unreachable",
            vec!["502", "try again"],
        ),
    ];
    for (answer, times, kind, words) in rows {
        let stand_in = in_turn(vec![answer]).await;
        let (events, ended) = ask(&agent(&stand_in)).await;
        let error = ended.unwrap_err();
        assert!(events.is_empty());
        assert_eq!(error.kind().to_string(), kind, "{error:?}");
        for word in words {
            assert!(error.message().contains(word), "{word}: {error:?}");
        }
        assert!(!error.message().contains("secret"), "{error:?}");
        assert!(!error.detail().contains(KEY) && error.message().len() < 600);
        assert_eq!(stand_in.asked("/").len(), times, "{error:?}");
        assert!(stand_in.asked("/elsewhere").is_empty());
    }
}

#[tokio::test]
async fn what_goes_by_is_tried_again() {
    let busy = with_header(503, "retry-after: 0", "busy");
    let stand_in = in_turn(vec![busy.clone(), busy, events(FINE)]).await;
    let (said, ended) = ask(&agent(&stand_in)).await;
    assert!(ended.is_ok() && !said.is_empty(), "{ended:?}");
    let asked = stand_in.asked("/v1/chat/completions");
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|again| again.body == asked[0].body));
}

/// What has begun is not asked for twice.
#[tokio::test]
async fn nothing_is_tried_again_after_the_first_word() {
    let cut = events("data: {\"choices\":[{\"delta\":{\"content\":\"We\"}}]}\n\n");
    let stand_in = in_turn(vec![cut]).await;
    assert!(ask(&agent(&stand_in)).await.1.is_err());
    assert_eq!(stand_in.asked("/").len(), 1);
}

/// Servers that do not know the wish for the usage are asked without it, from then on at once.
#[tokio::test]
async fn the_wish_for_usage_is_given_up() {
    let stand_in = StandIn::start(|asked| match asked.body.get("stream_options") {
        Some(_) => refused(
            422,
            "application/json",
            &error("stream_options: extra fields not permitted", Value::Null),
        ),
        None => events(FINE),
    })
    .await;
    let agent = agent(&stand_in);
    for times in [2, 3] {
        assert!(ask(&agent).await.1.is_ok());
        assert_eq!(stand_in.asked("/").len(), times);
    }
    let asked = stand_in.asked("/").pop().unwrap();
    assert_eq!(asked.body["stream"], true);
    assert_eq!(asked.body["messages"][0]["content"], "hello");
}

#[tokio::test]
async fn keys_and_headers_go_where_they_belong() {
    let stand_in = in_turn(vec![events(FINE)]).await;
    let own = ("x-team".to_owned(), "red".to_owned());
    let basic = ("Authorization".to_owned(), "Basic abc".to_owned());
    for (key, headers, authorization) in [
        (Some(KEY), vec![], Some("bearer a-key-of-a-model")),
        (None, vec![own.clone()], None),
        (Some(KEY), vec![own, basic], Some("basic abc")),
    ] {
        let has_own = headers.iter().any(|(name, _)| name == "x-team");
        let agent = agent_with(&stand_in, |settings| {
            settings.api_key = key.map(str::to_owned);
            settings.headers = headers;
        });
        assert!(ask(&agent).await.1.is_ok());
        let head = stand_in.asked("/v1/chat/completions").pop().unwrap().head;
        let sent: Vec<&str> = (head.lines())
            .filter_map(|line| line.strip_prefix("authorization: "))
            .collect();
        assert_eq!(
            sent,
            authorization.into_iter().collect::<Vec<_>>(),
            "{head}"
        );
        assert_eq!(head.contains("x-team: red"), has_own, "{head}");
    }
    // A server that wants a key is not one that refuses it.
    let stand_in = in_turn(vec![refused(401, "text/plain", "who are you")]).await;
    let agent = agent_with(&stand_in, |settings| settings.api_key = None);
    let error = ask(&agent).await.1.unwrap_err();
    assert!(error.message().contains("agent.api_key_env"), "{error:?}");
}

/// Whatever the connection does after the end of an answer, the answer is complete.
#[tokio::test]
async fn the_end_is_the_end() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";
    let stand_in = in_turn(vec![[head.as_bytes(), FINE.as_bytes()].concat()]).await;
    let (said, ended) = ask(&agent(&stand_in)).await;
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(said.last().unwrap()["finishReason"], "STOP");
    // The same without [DONE]: the connection breaks where the usage would be.
    let unended = FINE.replace("data: [DONE]\n\n", "");
    let stand_in = in_turn(vec![[head.as_bytes(), unended.as_bytes()].concat()]).await;
    let (said, ended) = ask(&agent(&stand_in)).await;
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(said.last().unwrap()["finishReason"], "STOP");
}
