//! MCP servers over HTTP that are as invalid as a test needs.

use serde_json::{Value, json};

use adk_bridge_testkit::stand_in::{ReceivedRequest, StandIn};
use adk_bridge_testkit::{Bridge, JSON, asking};

use crate::{call, until_available};

const SECRET: &str = "a-secret-of-the-bridge";

/// A bridge with a server at this address.
fn bridge(server: &StandIn) -> Bridge {
    let address = server.address;
    Bridge::configured(&format!(
        "[[tools.mcp]]\nname = \"mine\"\nurl = \"http://{address}/mcp\"\n\
         headers = {{ authorization = \"Bearer {SECRET}\" }}\n"
    ))
}

fn response(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn json_answer(request: &ReceivedRequest, result: Value) -> Vec<u8> {
    let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
    response(
        "200 OK",
        "content-type: application/json\r\n",
        &answer.to_string(),
    )
}

/// A server that does as it should, but for calls.
fn server(request: &ReceivedRequest, called: impl Fn(&ReceivedRequest) -> Vec<u8>) -> Vec<u8> {
    match request.body["method"].as_str() {
        Some("initialize") => json_answer(
            request,
            json!({
                "protocolVersion": request.body["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stand-in", "version": "1"},
            }),
        ),
        Some("tools/list") => json_answer(
            request,
            json!({"tools": [{
                "name": "say",
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": true},
            }]}),
        ),
        Some("tools/call") => called(request),
        _ => response("202 Accepted", "", ""),
    }
}

fn calls(server: &StandIn) -> usize {
    let asked = server.asked("");
    asked
        .iter()
        .filter(|it| it.body["method"] == "tools/call")
        .count()
}

/// The trace of a request is in the message, for the server, and in the header, for what is in between.
#[tokio::test]
async fn a_call_names_the_trace_that_it_belongs_to() {
    let server = StandIn::start(|request| {
        server(request, |request| {
            json_answer(request, json!({"content": []}))
        })
    })
    .await;
    let bridge = bridge(&server);
    until_available(&bridge).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [JSON, ("traceparent", parent), ("tracestate", "a=1")];
    let body = asking("c", "call mine__say {}").to_string();
    let answer = bridge.send("POST", "/api/chat", &headers, body).await;
    assert_eq!(answer.status, 200);
    let (calls, others): (Vec<_>, Vec<_>) =
        (server.asked("").into_iter()).partition(|asked| asked.body["method"] == "tools/call");
    assert_eq!(calls.len(), 1);
    let meta = &calls[0].body["params"]["_meta"];
    assert_eq!(
        (&meta["traceparent"], &meta["tracestate"]),
        (&json!(parent), &json!("a=1"))
    );
    for line in [
        format!("traceparent: {parent}"),
        "tracestate: a=1".to_owned(),
    ] {
        assert!(
            calls[0].head.lines().any(|found| found == line),
            "{}",
            calls[0].head
        );
    }
    assert!(
        others
            .iter()
            .all(|asked| !asked.head.contains("traceparent"))
    );
}

#[tokio::test]
async fn answers_come_as_json_or_as_events() {
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    let server = StandIn::start(move |request| {
        server(request, |request| {
            if request.body["params"]["arguments"]["as"] == "json" {
                return json_answer(request, text("json"));
            }
            let answer =
                json!({"jsonrpc": "2.0", "id": request.body["id"], "result": text("events")});
            let progress =
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
            let events =
                format!(": hello\r\n\r\ndata: {progress}\n\nevent: message\ndata: {answer}\n\n");
            response("200 OK", "content-type: text/event-stream\r\n", &events)
        })
    })
    .await;
    let bridge = bridge(&server);
    until_available(&bridge).await;
    for form in ["json", "events"] {
        let part = call(&bridge, form, "mine__say", &json!({"as": form})).await;
        assert_eq!(part["output"], form, "{part}");
    }
    let asked = server.asked("");
    let with_key = |request: &ReceivedRequest| request.head.contains(SECRET);
    assert!(asked.iter().all(with_key));
}

/// None of these answers is a result, none makes the bridge send the call again, and none gets the header elsewhere.
#[tokio::test]
async fn answers_that_are_none_end_the_call_and_not_the_chat() {
    let elsewhere = StandIn::start(|_| response("200 OK", "", "")).await;
    let place = elsewhere.address;
    let json = "content-type: application/json\r\n";
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "redirect",
            response(
                "307 Temporary Redirect",
                &format!("location: http://{place}/\r\n"),
                "",
            ),
        ),
        ("status", response("500 Internal Server Error", "", "oops")),
        ("unauthorized", response("401 Unauthorized", "", SECRET)),
        ("gone", response("404 Not Found", "", "")),
        (
            "html",
            response("200 OK", "content-type: text/html\r\n", "<html>"),
        ),
        ("garbage", response("200 OK", json, "{\"jsonrpc\"")),
        ("empty", response("200 OK", json, "")),
        ("not HTTP", b"hello\r\n\r\n".to_vec()),
        ("nothing", Vec::new()),
        ("large", response("200 OK", json, &" ".repeat(17 << 20))),
        (
            "values",
            response("200 OK", json, &format!("[{}0]", "0,".repeat(200_000))),
        ),
        (
            "event",
            response(
                "200 OK",
                "content-type: text/event-stream\r\n",
                &format!("data: {}", "x".repeat(17 << 20)),
            ),
        ),
    ];
    for (name, bytes) in cases {
        let server = StandIn::start(move |request| server(request, |_| bytes.clone())).await;
        let bridge = bridge(&server);
        until_available(&bridge).await;
        let part = call(&bridge, "chat", "mine__say", &json!({})).await;
        let said = part["errorText"].as_str().unwrap();
        assert!(
            said.contains("mine") && said.contains("unknown"),
            "{name}: {said}"
        );
        assert!(!bridge.log().contains(SECRET), "{name}");
        // The connection is made again, the call is not.
        until_available(&bridge).await;
        assert_eq!(calls(&server), 1, "{name}");
    }
    assert!(elsewhere.asked("").is_empty());
}

/// An answer with the id of another call is no answer, and the time limit ends the call.
#[tokio::test]
async fn an_answer_to_another_call_is_ignored() {
    let server = StandIn::start(move |request| {
        server(request, |_| {
            let answer = json!({"jsonrpc": "2.0", "id": 4711, "result": {"content": []}});
            let json = "content-type: application/json\r\n";
            response("200 OK", json, &answer.to_string())
        })
    })
    .await;
    let address = server.address;
    let bridge = Bridge::configured(&format!(
        "[tools]\ntimeout = \"300ms\"\n[[tools.mcp]]\nname = \"mine\"\nurl = \"http://{address}/mcp\"\n"
    ));
    let part = call(&bridge, "chat", "mine__say", &json!({})).await;
    let said = part["errorText"].as_str().unwrap();
    assert!(said.contains("returned no result within"), "{said}");
    assert_eq!(calls(&server), 1);
}

#[tokio::test]
async fn a_server_that_is_away_is_found_when_it_comes() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let bridge = Bridge::configured(&format!(
        "[[tools.mcp]]\nname = \"mine\"\nurl = \"http://{address}/mcp\"\n"
    ));
    let ready = bridge.get("/ready").await.json();
    assert_eq!(ready["unavailableTools"], json!(["mine"]));
    let part = call(&bridge, "away", "mine__unavailable", &json!({})).await;
    assert_eq!(
        part["errorText"],
        "the MCP server \"mine\" is not available: it cannot be reached"
    );
    let text = || json!({"content": [{"type": "text", "text": "here"}]});
    let _server = StandIn::start_at(address, move |request| {
        server(request, |request| json_answer(request, text()))
    })
    .await;
    until_available(&bridge).await;
    let part = call(&bridge, "here", "mine__say", &json!({})).await;
    assert_eq!(part["output"], "here");
}
