//! Valid requests to every endpoint.

use serde_json::{Value, json};

use crate::support::users::KEYS;
use crate::support::{Bridge, folded, text_of, types};

#[tokio::test]
async fn a_chat_request_is_answered_as_the_sdk_servers_do() {
    let bridge = Bridge::start();
    let mut answer = bridge.ask("first", "say hello there").await;
    assert_eq!(answer.status, 200);
    for (name, value) in [
        ("content-type", "text/event-stream; charset=utf-8"),
        // Next.js and Express compress, and collect, what may be transformed.
        ("cache-control", "no-cache, no-transform"),
        ("x-resumable-stream-id", "first"),
        ("x-chat-id", "first"),
        ("x-vercel-ai-ui-message-stream", "v1"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    let events = answer.events().await;
    let types = types(&events);
    assert_eq!(types.first().map(String::as_str), Some("start"));
    assert_eq!(types[types.len() - 2..], ["finish", "[DONE]"]);
    let message = folded(&events);
    assert_eq!(text_of(&message), "hello there");
    assert_eq!(message, bridge.last_message("first").await);
}

#[tokio::test]
async fn what_is_kept_is_listed_shown_and_deleted() {
    let bridge = Bridge::start();
    for (chat, text) in [
        ("one", "say first thing"),
        ("two", "call roll_dice {\"sides\": 6}"),
    ] {
        bridge.ask(chat, text).await.events().await;
    }
    let list = bridge.get("/api/chats").await;
    assert_eq!(list.status, 200);
    assert_eq!(list.header("content-type"), Some("application/json"));
    let rows = list.json();
    let ids: Vec<&str> = rows
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["id"].as_str())
        .collect();
    assert_eq!(ids, ["two", "one"], "newest first");
    assert_eq!(rows[1]["title"], "say first thing");
    assert_eq!(rows[1]["pendingApprovals"], 0);
    assert!(rows[1]["createdAt"].as_u64() <= rows[1]["updatedAt"].as_u64());

    let shown = bridge.get("/api/chats/one").await.json();
    assert_eq!(shown["id"], "one");
    let roles: Vec<&Value> = shown["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant"]);

    let rows = bridge.get("/api/audit?chat=two").await.json();
    let kinds: Vec<&Value> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["kind"])
        .collect();
    assert_eq!(kinds, ["tool.started", "tool.finished"]);
    for field in [
        "id",
        "at",
        "chatId",
        "turnId",
        "connectionId",
        "kind",
        "toolCallId",
        "toolName",
        "approvalId",
        "user",
        "transport",
        "dialect",
        "reason",
        "inputHash",
    ] {
        assert!(rows[0].get(field).is_some(), "{field}");
    }
    assert_eq!(rows[0]["user"], "local");
    assert_eq!(bridge.get("/api/audit?chat=one").await.json(), json!([]));

    let deleted = bridge.send("DELETE", "/api/chats/one", &[], "").await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    assert_eq!(bridge.get("/api/chats/one").await.code(), "not_found");
    let again = bridge.send("DELETE", "/api/chats/one", &[], "").await;
    assert_eq!((again.status, again.code().as_str()), (404, "not_found"));
    bridge.send("DELETE", "/api/chats/two", &[], "").await;
    let outlives = bridge.get("/api/audit?chat=two").await.json();
    assert_eq!(outlives.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_long_list_is_given_page_by_page() {
    // The last of the first page has an id that an address cannot hold as it is.
    let ids: Vec<String> = (0..203)
        .map(|number| match number {
            3 => "3 & ü>\"%".to_owned(),
            _ => format!("chat-{number}"),
        })
        .collect();
    let bridge = Bridge::start();
    for id in &ids {
        bridge.ask(id, "say hi").await.events().await;
    }
    let mut found = Vec::new();
    let mut path = "/api/chats".to_owned();
    loop {
        let page = bridge.get(&path).await;
        assert_eq!(page.status, 200);
        let rows = page.json();
        let rows = rows.as_array().unwrap();
        found.extend(
            rows.iter()
                .map(|row| row["id"].as_str().unwrap().to_owned()),
        );
        let Some(link) = page.header("link") else {
            break;
        };
        assert_eq!(rows.len(), 200);
        let query = link.strip_prefix('<').unwrap();
        let query = query.strip_suffix(">; rel=\"next\"").unwrap();
        path = format!("/api/chats{query}");
    }
    assert!(found.iter().eq(ids.iter().rev()), "{found:?}");

    // A search goes through all of them, and its pages lead on as well.
    for (query, found) in [
        ("q=HI+say", 200),
        ("q=%20&before=chat-2&at=9999999999999", 200),
        ("q=hello", 0),
        ("q=say&before=chat-2&at=0", 0),
    ] {
        let page = bridge.get(&format!("/api/chats?{query}")).await;
        assert_eq!(page.json().as_array().unwrap().len(), found, "{query}");
        assert_eq!(page.header("link").is_some(), found > 0, "{query}");
    }
    let first = bridge.get("/api/chats?q=HI+say").await;
    let link = first.header("link").unwrap().to_owned();
    let next = link.trim_start_matches('<').split('>').next().unwrap();
    assert!(next.starts_with("?q=HI%20say&before="), "{link}");
    let rest = bridge.get(&format!("/api/chats{next}")).await;
    assert_eq!(rest.json().as_array().unwrap().len(), 3);
    assert_eq!(rest.header("link"), None);

    for half in ["?before=chat-1", "?at=1", "?before=chat-1&at=soon"] {
        let refused = bridge.get(&format!("/api/chats{half}")).await;
        assert_eq!(refused.status, 400, "{half}");
        assert_eq!(refused.json()["error"]["code"], "bad_request", "{half}");
    }
}

#[tokio::test]
async fn a_pending_approval_is_shown_in_both_dialects_and_a_client_tool_gets_its_output() {
    let bridge = Bridge::start();
    bridge
        .ask(
            "paying",
            r#"call process_payment {"amount": 5, "recipient": "Hanako"}"#,
        )
        .await
        .events()
        .await;
    let rows = bridge.get("/api/chats").await.json();
    assert_eq!(rows[0]["pendingApprovals"], 1);
    let native = bridge.last_message("paying").await;
    assert!(
        native.to_string().contains("approval-requested"),
        "{native}"
    );
    let adk = bridge.get("/api/chats/paying?dialect=adk").await.json();
    assert!(
        adk.to_string().contains("tool-adk_request_confirmation"),
        "{adk}"
    );

    let toml = "[[agent.client_tools]]\nname = \"pick_colour\"\n";
    let bridge = Bridge::configured(toml);
    bridge
        .ask("colours", "call pick_colour {}")
        .await
        .events()
        .await;
    let call = bridge.last_message("colours").await["parts"][1]["toolCallId"].clone();
    assert!(call.is_string());
    let owed = async || bridge.get("/api/chats").await.json()[0]["pendingOutputs"].clone();
    assert_eq!(owed().await, json!(["pick_colour"]));
    let path = "/api/chat/colours/tool-output";
    let output = json!({"toolCallId": call, "output": {"colour": "red"}});
    let taken = bridge.post(path, &output).await;
    assert_eq!((taken.status, taken.body.len()), (204, 0));
    assert_eq!(owed().await, json!([]));
    let again = bridge
        .post(path, &json!({"toolCallId": call, "output": "blue"}))
        .await;
    assert_eq!((again.status, again.code().as_str()), (409, "conflict"));
    let unknown = bridge
        .post(path, &json!({"toolCallId": "none", "output": 1}))
        .await;
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "not_found")
    );
}

#[tokio::test]
async fn a_chat_gets_the_title_that_its_user_gives_it() {
    let bridge = Bridge::start();
    bridge.ask("one", "say first thing").await.events().await;
    let rename = async |chat: &str, body: &str| {
        let path = format!("/api/chats/{chat}");
        let headers = [("content-type", "application/json")];
        let response = bridge.send("PATCH", &path, &headers, body).await;
        let code = if response.status == 204 {
            String::new()
        } else {
            response.code()
        };
        let title = bridge.get("/api/chats/one").await.json()["title"].clone();
        (response.status, code, title)
    };
    let long = format!(r#"{{"title": "{}"}}"#, "word ".repeat(40));
    let cases = [
        (
            "one",
            r#"{"title": "Trip to  Kyoto\n"}"#,
            204,
            "",
            "Trip to Kyoto",
        ),
        (
            "one",
            r#"{"title": " "}"#,
            422,
            "bad_title",
            "Trip to Kyoto",
        ),
        ("one", r#"{"title": 5}"#, 422, "bad_title", "Trip to Kyoto"),
        ("one", r#"{}"#, 422, "bad_title", "Trip to Kyoto"),
        ("one", "no json", 400, "bad_json", "Trip to Kyoto"),
        (
            "two",
            r#"{"title": "x"}"#,
            404,
            "not_found",
            "Trip to Kyoto",
        ),
        ("one", r#"{"title": "京都旅行"}"#, 204, "", "京都旅行"),
    ];
    for (chat, body, status, code, title) in cases {
        let expected = (status, code.to_owned(), json!(title));
        assert_eq!(rename(chat, body).await, expected, "{body}");
    }
    let (_, _, title) = rename("one", &long).await;
    assert!(title.as_str().unwrap().chars().count() <= 60, "{title}");
}

#[tokio::test]
async fn the_agent_says_what_it_can_do() {
    let bridge = Bridge::configured(
        "[approval]\ntools = [\"get_weather\"]\n[[agent.client_tools]]\nname = \"pick\"\ndescription = \"picks\"\n\
         output_schema = { type = \"integer\" }\n",
    );
    let agent = bridge.get("/api/agent").await.json();
    for field in [
        "name",
        "model",
        "liveModel",
        "modalities",
        "tools",
        "instance",
    ] {
        assert!(agent.get(field).is_some(), "{field}");
    }
    assert_eq!(agent["approvalTimeoutMs"], 300_000);
    let tool = |name: &str| {
        let mut tools = agent["tools"].as_array().unwrap().iter();
        tools.find(|tool| tool["name"] == name).unwrap().clone()
    };
    for (name, runs_on, needs_approval) in [
        ("process_payment", "server", true),
        ("get_weather", "server", true),
        ("roll_dice", "server", false),
        ("change_bgm", "client", true),
        ("pick", "client", false),
    ] {
        assert_eq!(tool(name)["runsOn"], runs_on, "{name}");
        assert_eq!(tool(name)["needsApproval"], needs_approval, "{name}");
        assert_eq!(tool(name)["inputSchema"]["type"], "object", "{name}");
    }
    assert_eq!(tool("pick")["outputSchema"]["type"], "integer");
    assert_eq!(tool("change_bgm").get("outputSchema"), None);
}

#[tokio::test]
async fn the_page_and_the_signs_of_life() {
    let bridge = Bridge::start();
    let page = bridge.get("/").await;
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    for (directive, allowed) in [("script-src", "'self'"), ("style-src", "'self'")] {
        let found = policy.split("; ").find_map(|it| it.strip_prefix(directive));
        assert_eq!(found.map(str::trim), Some(allowed), "{policy}");
    }
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    // Whether the page was built or not, a missing asset is reported like any other error.
    for path in [
        "/assets/none.js",
        "/assets/../Cargo.toml",
        "/assets/%2e%2e/package.json",
        "/assets/..%2findex.html",
    ] {
        let response = bridge.get(path).await;
        assert_eq!(
            (response.status, response.code().as_str()),
            (404, "not_found"),
            "{path}"
        );
    }
    assert_eq!(bridge.get("/health").await.json(), json!({"status": "ok"}));
    assert_eq!(
        bridge.get("/ready").await.json(),
        json!({"status": "ready"})
    );
}

/// They are shown if they were built; otherwise a page says how to build them.
#[tokio::test]
async fn the_documents_are_open_and_nothing_else_is() {
    let bridge = Bridge::configured(KEYS);
    let enter = bridge.get("/docs").await;
    assert_eq!(
        (enter.status, enter.header("location")),
        (308, Some("docs/"))
    );
    let first = bridge.get("/docs/").await;
    let text = String::from_utf8(first.body.clone()).unwrap();
    let says = match first.status {
        200 => "assets/start.",
        _ => "running without its documents",
    };
    assert!(text.contains(says), "{} {text}", first.status);
    for path in [
        "nothing",
        "nothing/at/all",
        "assets/none.js",
        "index.html",
        "../Cargo.toml",
        "%2e%2e/package.json",
        "..%2fpackage.json",
    ] {
        let page = bridge.get(&format!("/docs/{path}")).await;
        assert_eq!(page.status, 404, "{path}");
        let kind = page.header("content-type");
        assert_eq!(kind, Some("text/html; charset=utf-8"), "{path}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; "),
            "{policy}"
        );
        assert!(!policy.contains("script-src 'self' '"), "{policy}");
    }
}

#[tokio::test]
async fn nothing_to_resume_is_no_error_and_nothing_to_stop_is_fine() {
    let bridge = Bridge::start();
    let unknown = bridge.get("/api/chat/unknown/stream").await;
    assert_eq!((unknown.status, unknown.body.len()), (204, 0));
    bridge.ask("done", "say done").await.events().await;
    assert_eq!(bridge.get("/api/chat/done/stream").await.status, 204);
    assert_eq!(
        bridge
            .send("POST", "/api/chat/done/stop", &[], "")
            .await
            .status,
        204
    );
    let unknown = bridge.send("POST", "/api/chat/unknown/stop", &[], "").await;
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "not_found")
    );
}

#[tokio::test]
async fn what_is_not_there_and_what_is_asked_the_wrong_way() {
    let bridge = Bridge::start();
    for path in [
        "/nothing",
        "/api",
        "/api/",
        "/api/chats/",
        "/api/chat/a/b/c",
    ] {
        let response = bridge.get(path).await;
        assert_eq!(
            (response.status, response.code().as_str()),
            (404, "not_found"),
            "{path}"
        );
    }
    for (method, path, allow) in [
        ("DELETE", "/api/chat", "POST,GET,HEAD"),
        ("DELETE", "/api/chat/", "POST,GET,HEAD"),
        ("POST", "/api/chat/a/stream", "GET,HEAD"),
        ("GET", "/api/chat/a/stop", "POST"),
        ("PUT", "/api/chat/a/tool-output", "POST"),
        ("POST", "/api/chats", "GET,HEAD"),
        ("PUT", "/api/chats/a", "GET,HEAD,PATCH,DELETE"),
        ("OPTIONS", "/api/chat", "POST,GET,HEAD"),
        ("POST", "/health", "GET,HEAD"),
        ("BREW", "/", "GET,HEAD"),
    ] {
        let response = bridge.send(method, path, &[], "").await;
        assert_eq!(response.status, 405, "{method} {path}");
        assert_eq!(response.code(), "method_not_allowed", "{method} {path}");
        assert_eq!(response.header("allow"), Some(allow), "{method} {path}");
    }
    for path in ["/", "/health", "/ready", "/api/chats", "/api/agent"] {
        let head = bridge.send("HEAD", path, &[], "").await;
        let get = bridge.get(path).await;
        assert_eq!(head.status, 200, "{path}");
        assert_eq!(
            head.header("content-length"),
            get.header("content-length"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn an_id_may_be_written_in_any_way_that_a_path_allows() {
    let bridge = Bridge::start();
    for (chat, path) in [
        ("a/b c?", "a%2Fb%20c%3F"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("100%", "100%25"),
        ("..", "%2E%2E"),
        ("it's; DROP TABLE chats", "it's%3B%20DROP%20TABLE%20chats"),
    ] {
        bridge.ask(chat, "say yes").await.events().await;
        let shown = bridge.get(&format!("/api/chats/{path}")).await;
        assert_eq!(shown.json()["id"], chat);
        assert_eq!(
            bridge.get(&format!("/api/chat/{path}/stream")).await.status,
            204
        );
        let deleted = bridge
            .send("DELETE", &format!("/api/chats/{path}"), &[], "")
            .await;
        assert_eq!(deleted.status, 204, "{chat}");
    }
    assert_eq!(bridge.get("/api/chats").await.json(), json!([]));
}
