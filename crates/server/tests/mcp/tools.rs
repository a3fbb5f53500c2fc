//! Calls, approval, what results become, and lists that change.

use serde_json::json;

use crate::{
    bridge, call, calls, decide, offered, received, scripted, tool_part, until, until_available,
};
use adk_bridge_testkit::Bridge;
use tempfile::TempDir;

#[tokio::test]
async fn results_become_outputs_errors_and_files() {
    let (bridge, records) = bridge("all", "").await;
    let cases = [
        ("say", json!({"text": "hello"}), json!("hello")),
        (
            "structure",
            json!({}),
            json!({"degrees": 21.5, "near": ["a", "b"]}),
        ),
        ("flood", json!({}), json!("dry")),
    ];
    for (tool, arguments, output) in cases {
        let part = call(&bridge, tool, &format!("mine__{tool}"), &arguments).await;
        assert_eq!(part["state"], "output-available", "{part}");
        assert_eq!(part["output"], output);
    }
    for (tool, said) in [
        ("fail", "it is broken"),
        ("refuse", "the tool failed: not like this"),
    ] {
        let part = call(&bridge, tool, &format!("mine__{tool}"), &json!({})).await;
        assert_eq!(part["state"], "output-error", "{part}");
        assert_eq!(part["errorText"], said);
    }
    let part = call(&bridge, "oversized", "mine__oversized", &json!({})).await;
    assert!(
        part["errorText"]
            .as_str()
            .unwrap()
            .contains("larger than 1048576"),
        "{part}"
    );

    let part = call(&bridge, "picture", "mine__picture", &json!({})).await;
    assert_eq!(part["output"]["content"][0]["text"], "a dot");
    assert!(!part.to_string().contains(scripted::PNG));
    let message = bridge.settled_message("picture").await;
    let parts = message["parts"].as_array().unwrap();
    let file = parts.iter().find(|part| part["type"] == "file").unwrap();
    assert_eq!(file["mediaType"], "image/png");
    let url = file["url"].as_str().unwrap();
    let path = url.find("/api/").map(|at| &url[at..]).unwrap();
    let content = bridge.get(path).await;
    assert_eq!(content.status, 200);
    assert!(content.body.starts_with(b"\x89PNG"), "{path}");

    call(&bridge, "confuse", "mine__confuse", &json!({})).await;
    until(|| async {
        // What it asked the user is withdrawn with its end.
        tool_part(&bridge.settled_message("confuse").await)["output"] == "clear"
    })
    .await;
    // Nothing that the server asked for or answered to nobody has done anything.
    assert_eq!(calls(records.path(), "confuse"), 1);
    let answers = received(&records);
    let said_yes = answers
        .iter()
        .any(|sent| sent["result"]["action"] == "accept");
    assert!(!said_yes);
}

#[tokio::test]
async fn a_server_gets_the_call_id_and_none_of_the_bridges_secrets() {
    let records = TempDir::new().unwrap();
    let toml = scripted::server("mine", "all", records.path(), "");
    let bridge = Bridge::with(&toml, |command| {
        command.env("GEMINI_API_KEY", "a-key-of-the-bridge");
        command.env("SOME_OTHER_SECRET", "of-the-bridge");
    });
    until_available(&bridge).await;
    let part = call(&bridge, "meta", "mine__meta", &json!({})).await;
    assert_eq!(part["output"]["idempotencyKey"], part["toolCallId"]);
    let part = call(&bridge, "env", "mine__environment", &json!({})).await;
    let names = part["output"]["names"].as_array().unwrap();
    let has = |name: &str| names.iter().any(|it| it == name);
    assert!(has("PATH") && has("SCRIPTED_MCP"), "{names:?}");
    for name in [
        "GEMINI_API_KEY",
        "SOME_OTHER_SECRET",
        "ADK_BRIDGE__DEMO__PACE",
    ] {
        assert!(!has(name), "{name}");
    }
}

#[tokio::test]
async fn a_tool_that_may_write_asks_with_its_arguments_and_runs_once() {
    let (bridge, records) = bridge("all", "").await;
    for (chat, approved, state, runs) in [
        ("no", false, "output-denied", 0),
        ("yes", true, "output-available", 1),
    ] {
        let part = call(&bridge, chat, "mine__write", &json!({"text": "it"})).await;
        assert_eq!(part["state"], "approval-requested", "{part}");
        assert_eq!(part["input"], json!({"text": "it"}));
        assert_eq!(calls(records.path(), "write"), 0);
        let part = decide(&bridge, chat, approved).await;
        assert_eq!(part["state"], state, "{part}");
        assert_eq!(calls(records.path(), "write"), runs);
    }
    // The same yes again runs nothing.
    decide(&bridge, "yes", true).await;
    assert_eq!(calls(records.path(), "write"), 1);
}

/// Which tools ask depends on the server's words and on the configuration, and a name that is not there makes all ask.
#[tokio::test]
async fn approval_is_configured() {
    for (more, say, write) in [
        ("", false, true),
        ("approval = \"always\"", true, true),
        ("approval = \"never\"", false, false),
        ("approval = [\"say\"]", true, false),
        ("approval = [\"sya\"]", true, true),
        (
            "approval = \"never\"\n[approval]\ntools = [\"mine__say\"]",
            true,
            false,
        ),
    ] {
        let (bridge, _records) = bridge("all", more).await;
        let agent = bridge.get("/api/agent").await.json();
        for (name, asks) in [("mine__say", say), ("mine__write", write)] {
            let tools = agent["tools"].as_array().unwrap();
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            assert_eq!(tool["needsApproval"], asks, "{more}: {name}");
        }
    }
}

#[tokio::test]
async fn tools_are_chosen_by_server_and_by_agent() {
    for (more, expected) in [
        (
            "tools = [\"say\", \"write\"]",
            vec!["mine__say", "mine__write"],
        ),
        ("tools = []", vec![]),
        (
            "[agent]\ntools = [\"mine__say\", \"get_weather\"]",
            vec!["mine__say"],
        ),
        ("[agent]\ntools = [\"get_weather\"]", vec![]),
        (
            "tools = [\"say\"]\n[agent]\ntools = [\"mine__*\"]",
            vec!["mine__say"],
        ),
    ] {
        let (bridge, _records) = bridge("all", more).await;
        assert_eq!(offered(&bridge, "mine__").await, expected, "{more}");
    }
}

#[tokio::test]
async fn each_agent_chooses_its_own() {
    let records = TempDir::new().unwrap();
    let agents = "[[agents]]\nid = \"all\"\n\
                  [[agents]]\nid = \"one\"\ntools = [\"mine__say\"]\napproval_tools = [\"mine__say\"]\n\
                  [[agents]]\nid = \"none\"\ntools = []\n\
                  [[agents]]\nid = \"remote\"\nkind = \"adk\"\nbase_url = \"http://127.0.0.1:9\"\napp = \"a\"\n";
    let toml =
        scripted::server("mine", "all", records.path(), "tools = [\"say\", \"fail\"]") + agents;
    let bridge = Bridge::configured(&toml);
    until_available(&bridge).await;
    let agents = bridge.get("/api/agents").await.json();
    let tools = |id: &str| -> Vec<(String, bool)> {
        let all = agents.as_array().unwrap().iter();
        let agent = all.clone().find(|agent| agent["id"] == id).unwrap();
        let tools = agent["tools"].as_array().unwrap().iter();
        let names = tools.map(|tool| {
            let name = tool["name"].as_str().unwrap().to_owned();
            (name, tool["needsApproval"].as_bool().unwrap())
        });
        names
            .filter(|(name, _)| name.starts_with("mine__"))
            .collect()
    };
    let expected = |names: &[(&str, bool)]| -> Vec<(String, bool)> {
        let names = names.iter();
        names
            .map(|(name, asks)| ((*name).to_owned(), *asks))
            .collect()
    };
    assert_eq!(
        tools("all"),
        expected(&[("mine__say", false), ("mine__fail", false)])
    );
    assert_eq!(tools("one"), expected(&[("mine__say", true)]));
    assert_eq!(tools("none"), expected(&[]));
    assert_eq!(tools("remote"), expected(&[]));
}

#[tokio::test]
async fn a_list_may_change_while_the_bridge_runs() {
    let (bridge, _records) = bridge("all", "").await;
    let has_grown = || async { offered(&bridge, "mine__grown").await.len() == 1 };
    assert!(!has_grown().await);
    call(&bridge, "grow", "mine__grow", &json!({})).await;
    until(has_grown).await;
    // It says nothing about reading only.
    let part = call(&bridge, "grown", "mine__grown", &json!({})).await;
    assert_eq!(part["state"], "approval-requested");
    let part = decide(&bridge, "grown", true).await;
    assert_eq!(part["output"], "grown", "{part}");
    // A tool that is gone when its call is approved does not run.
    call(&bridge, "gone", "mine__grown", &json!({})).await;
    call(&bridge, "shrink", "mine__shrink", &json!({})).await;
    until(|| async { !has_grown().await }).await;
    let part = decide(&bridge, "gone", true).await;
    assert_eq!(
        part["errorText"], "there is no tool named \"mine__grown\"",
        "{part}"
    );
}

#[tokio::test]
async fn a_list_is_taken_as_far_as_models_can_use_it() {
    let (bridge, _records) = bridge("crowded", "").await;
    let names = offered(&bridge, "mine__").await;
    assert_eq!(names.len(), 128);
    assert_eq!(names[..3], ["mine__same", "mine__odd_hint", "mine__t0"]);
    let agent = bridge.get("/api/agent").await.json();
    let tools = agent["tools"].as_array().unwrap();
    let odd = tools
        .iter()
        .find(|tool| tool["name"] == "mine__odd_hint")
        .unwrap();
    assert_eq!(odd["needsApproval"], true);
    let log = bridge.log();
    for said in [
        "\"mine__with space\" is left out",
        "two of its tools are called \"mine__same\"",
        "\"mine__huge\" is left out: its schema",
        "it has too many tools: \"mine__t126\"",
        "have no name or no schema",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
}
