//! Results that an app of an MCP server shows: named on the call for clients that can show them, and for nobody else.

use serde_json::{Value, json};

use crate::stand_in::{StandIn, events, well};
use crate::support::{Bridge, JSON, asking, text_of};

/// A recorded run of two tools of an MCP server, each with its app.
const RECORDED: &str = include_str!("../../../../fixtures/adk/agents/widgets.sse");

fn app(uri: &str) -> Value {
    json!({"app": {"resourceUri": uri, "mimeType": "text/html;profile=mcp-app"}})
}

/// Asks as a client of this version.
async fn ask(bridge: &Bridge, chat: &str, sdk: u8, dialect: &str) -> Vec<Value> {
    let mut body = asking(chat, "show it");
    body["sdk"] = json!(sdk);
    body["dialect"] = json!(dialect);
    let body = body.to_string();
    let mut answer = bridge.open("POST", "/api/chat", &[JSON], &body).await;
    let chunks = answer.events().await;
    let chunks = chunks.iter().filter_map(|it| serde_json::from_str(it).ok());
    chunks.collect()
}

fn metadata_of(chunks: &[Value]) -> Vec<Value> {
    let outputs = chunks
        .iter()
        .filter(|it| it["type"] == "tool-output-available");
    outputs.map(|it| it["toolMetadata"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_is_named_for_clients_that_know_apps() {
    let stand_in = StandIn::start(|asked| match asked.path.as_str() {
        "/run_sse" => events(RECORDED),
        _ => well(asked),
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    let both = [app("ui://charts/sales"), app("ui://charts/plan")];
    for dialect in ["native", "adk", "held"] {
        let chat = format!("new-{dialect}");
        assert_eq!(
            metadata_of(&ask(&bridge, &chat, 7, dialect).await),
            both,
            "{dialect}"
        );
        // The oldest clients refuse a chunk with a field that they do not know.
        let chat = format!("old-{dialect}");
        let old = ask(&bridge, &chat, 6, dialect).await;
        assert_eq!(metadata_of(&old), [Value::Null, Value::Null], "{dialect}");
        assert!(!json!(old).to_string().contains("toolMetadata"), "{old:?}");
        // It is kept, whoever asked, and says nothing that the result does not say.
        let kept = bridge.settled_message(&chat).await;
        assert_eq!(text_of(&kept).trim(), "shown");
        let parts = kept["parts"].as_array().unwrap().iter();
        let tools: Vec<&Value> = parts
            .filter(|part| part.get("toolCallId").is_some())
            .collect();
        let named: Vec<&Value> = tools.iter().map(|part| &part["toolMetadata"]).collect();
        assert_eq!(named, both.iter().collect::<Vec<_>>());
        assert!(!kept.to_string().contains("inputSchema"), "{kept}");
    }
}

/// Whatever a server says about widgets, the result is a result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn widgets_that_are_none_change_nothing() {
    let widget = |id: &str, provider: &str, payload: Value| json!([{"id": id, "provider": provider, "payload": payload}]);
    let uri = json!({"resource_uri": "ui://a"});
    let rows = [
        (widget("c", "mcp", uri.clone()), app("ui://a")),
        (
            widget("c", "mcp", json!({"resourceUri": "ui://a"})),
            app("ui://a"),
        ),
        (widget("other", "mcp", uri.clone()), Value::Null),
        (widget("c", "flash", uri), Value::Null),
        (
            widget("c", "mcp", json!({"resource_uri": "https://evil.example"})),
            Value::Null,
        ),
        (
            widget("c", "mcp", json!({"resource_uri": "javascript:alert(1)"})),
            Value::Null,
        ),
        (
            widget(
                "c",
                "mcp",
                json!({"resource_uri": format!("ui://{}", "x".repeat(3000))}),
            ),
            Value::Null,
        ),
        (
            widget("c", "mcp", json!({"resource_uri": "ui://a\nb"})),
            Value::Null,
        ),
        (widget("c", "mcp", json!({"resource_uri": 7})), Value::Null),
        (json!([{"id": 7}]), Value::Null),
        (json!("widgets"), Value::Null),
        (json!(null), Value::Null),
    ];
    let widgets: Vec<Value> = rows.iter().map(|(widgets, _)| widgets.clone()).collect();
    let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
        "/run_sse" => {
            let text = crate::stand_in::text_of(asked);
            let row: usize = text.parse().unwrap();
            let says = |part: Value, actions: Value| {
                let event = json!({"author": "app", "content": {"role": "model", "parts": [part]}, "actions": actions});
                format!("data: {event}\n\n")
            };
            let call = json!({"functionCall": {"id": "c", "name": "show", "args": {}}});
            let result = json!({"functionResponse": {"id": "c", "name": "show", "response": {"done": true}}});
            let actions = json!({"renderUiWidgets": widgets[row]});
            events(says(call, json!({})) + &says(result, actions) + &says(json!({"text": "fine"}), json!({})))
        }
        _ => well(asked),
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    for (row, (widgets, expected)) in rows.iter().enumerate() {
        let mut body = asking(&format!("c{row}"), &row.to_string());
        body["sdk"] = json!(7);
        let body = body.to_string();
        let mut answer = bridge.open("POST", "/api/chat", &[JSON], &body).await;
        let chunks: Vec<Value> = (answer.events().await.iter())
            .filter_map(|it| serde_json::from_str(it).ok())
            .collect();
        assert_eq!(
            metadata_of(&chunks),
            std::slice::from_ref(expected),
            "{widgets}"
        );
        assert_eq!(
            text_of(&bridge.settled_message(&format!("c{row}")).await),
            "fine"
        );
    }
}
