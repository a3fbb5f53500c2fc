//! One trace from the request of a page through the agent to its tools, as an OpenTelemetry collector gets it; and what happens
//! when there is none, or when it is away.

use std::process::Command;
use std::time::Duration;

use adk_bridge_demo::scripted_gemini::live::tones;
use adk_bridge_protocol::base64;
use serde_json::{Value, json};

use crate::collector::{Collector, Habit, Seen, SeenSpan};
use crate::decided::adk;
use crate::stand_in::{ReceivedRequest, StandIn, events, refused, switched, well};
use crate::support::process::PATIENCE;
use crate::support::socket::Client;
use crate::support::{Bridge, JSON, asking, refused as refused_to_start, within};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const PARENT_SPAN: &str = "00f067aa0ba902b7";
const OTHER_TRACE: &str = "5cf92f3577b34da6a3ce929d0e0e4736";
const OTHER_PARENT: &str = "00-5cf92f3577b34da6a3ce929d0e0e4736-11f067aa0ba902b7-01";

const SERVER: i32 = 2;
const CLIENT: i32 = 3;

const KEY: &str = "PLANTED-GEMINI-KEY-12345";
const WORDS: &str = "nobody else should read this";

async fn post(bridge: &Bridge, body: &Value, headers: &[(&str, &str)]) -> String {
    let headers = [&[JSON], headers].concat();
    let answer = bridge
        .send("POST", "/api/chat", &headers, body.to_string())
        .await;
    assert_eq!(answer.status, 200);
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// The chat request that approves everything that a chat asks.
async fn approval(bridge: &Bridge, chat: &str) -> Value {
    let shown = bridge.get(&format!("/api/chats/{chat}")).await.json();
    let mut messages = shown["messages"].as_array().unwrap().clone();
    for part in messages[1]["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(true);
        }
    }
    json!({"id": chat, "messages": messages})
}

/// The value of a header of a request that a stand-in got.
fn header<'a>(asked: &'a ReceivedRequest, name: &str) -> Option<&'a str> {
    let start = format!("{name}: ");
    asked
        .head
        .lines()
        .find_map(|line| line.strip_prefix(&start))
}

fn only<'s>(spans: &[&'s SeenSpan], what: impl Fn(&SeenSpan) -> bool) -> &'s SeenSpan {
    let found: Vec<_> = spans.iter().filter(|span| what(span)).collect();
    assert_eq!(found.len(), 1, "{spans:#?}");
    found[0]
}

fn is_turn(span: &SeenSpan) -> bool {
    span.name == "invoke_agent app" && span.kind != CLIENT
}

fn is_run(span: &SeenSpan) -> bool {
    span.name == "invoke_agent app" && span.kind == CLIENT
}

fn has_result(span: &SeenSpan, result: &str) -> bool {
    is_turn(span) && span.attribute("adk_bridge.turn.result") == result
}

/// The answer comes in another request, which names no trace, after a restart; or which names another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_leads_from_the_page_through_the_adk_server_to_the_tool() {
    for (given, of_answer) in [
        (None, TRACE),
        (Some(OTHER_PARENT), OTHER_TRACE),
        (Some(PARENT), TRACE),
    ] {
        let collector = Collector::start(Habit::Takes);
        let stand_in = StandIn::start(adk).await;
        let mut bridge = Bridge::with(&stand_in.toml(), |command| collector.configure(command));
        let asked = [
            ("traceparent", PARENT),
            ("tracestate", "vendor=planted-state"),
        ];
        post(&bridge, &asking("c", "pay both"), &asked).await;
        let answer = approval(&bridge, "c").await;
        if given.is_none() {
            collector
                .until(|seen| {
                    let is_asking = seen.spans.iter().any(|it| has_result(it, "waiting"));
                    is_asking && seen.named("POST /api/chat").len() == 1
                })
                .await;
            bridge.kill_and_restart_with(|command| collector.configure(command));
        }
        let given: Vec<_> = given
            .into_iter()
            .map(|parent| ("traceparent", parent))
            .collect();
        assert!(post(&bridge, &answer, &given).await.contains("Done."));

        let is_over = |seen: &Seen| {
            let requests = seen.named("POST /api/chat");
            requests.len() == 2 && seen.spans.iter().any(|span| has_result(span, "finished"))
        };
        let seen = collector.until(is_over).await;
        assert_eq!(seen.resource["service.name"], "adk-bridge");
        let (first, second) = (seen.of(TRACE), seen.of(of_answer));

        // The page, the request, the turn, the run.
        let asking = only(&first, |span| has_result(span, "waiting"));
        let request = only(&first, |span| span.id == asking.parent);
        assert_eq!(
            (request.kind, request.parent.as_str()),
            (SERVER, PARENT_SPAN)
        );
        assert_eq!(request.attribute("http.response.status_code"), "200");
        assert_eq!(request.attribute("http.route"), "/api/chat");
        assert_eq!(asking.attribute("gen_ai.operation.name"), "invoke_agent");
        assert_eq!(asking.attribute("gen_ai.conversation.id"), "c");
        let run = only(&first, |span| is_run(span) && span.parent == asking.id);
        assert_eq!(run.attribute("gen_ai.agent.name"), "app");

        // The ADK server hears of the trace, from its first request on, and with what others have added.
        let runs = stand_in.asked("/run_sse");
        let sent = format!("00-{TRACE}-{}-01", run.id);
        assert_eq!(header(&runs[0], "traceparent"), Some(sent.as_str()));
        assert_eq!(header(&runs[0], "tracestate"), Some("vendor=planted-state"));
        let sessions = stand_in.asked("/sessions");
        assert_eq!(header(&sessions[0], "traceparent"), Some(sent.as_str()));

        // The approval, and what was approved.
        assert_eq!(asking.events(), ["approval.requested"; 2]);
        let answering = only(&second, |span| has_result(span, "finished"));
        assert_eq!(answering.events(), ["approval.approved"; 2]);
        for (_, attributes) in &answering.events {
            let wait: f64 = attributes["adk_bridge.approval.wait"].parse().unwrap();
            assert!(wait > 0.0 && wait < PATIENCE.as_secs_f64());
            assert_eq!(attributes["gen_ai.tool.name"], "process_payment");
        }
        let continued = only(&second, |span| is_run(span) && span.parent == answering.id);
        let sent = format!("00-{of_answer}-{}-01", continued.id);
        let last = stand_in.asked("/run_sse").pop().unwrap();
        assert_eq!(header(&last, "traceparent"), Some(sent.as_str()));
        let tools = seen.named("execute_tool process_payment");
        assert_eq!(tools.len(), 2);
        for tool in tools {
            assert_eq!(
                (tool.parent.as_str(), tool.trace.as_str()),
                (continued.id.as_str(), of_answer)
            );
            assert!(tool.attribute("gen_ai.tool.call.id").starts_with("fc-"));
        }

        // How both turns hang together.
        let requests = seen.named("POST /api/chat");
        let answer = requests.iter().find(|it| it.id != request.id).unwrap();
        match given.is_empty() {
            true => {
                assert_eq!(answering.parent, asking.id);
                assert_eq!(answering.links, std::slice::from_ref(&answer.id));
            }
            false => {
                assert_eq!(answering.parent, answer.id);
                assert_eq!(answering.links, std::slice::from_ref(&asking.id));
            }
        }
        assert!(
            !seen.text().contains("planted-state"),
            "what is for others is not shown"
        );
    }
}

/// The model and the tools of the bridge itself, without and with what was said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_hold_what_was_said_only_if_they_are_asked_to() {
    for content in [false, true] {
        let collector = Collector::start(Habit::Takes);
        let toml = format!("[telemetry]\ncontent = {content}\n");
        let bridge = Bridge::with(&toml, |command| collector.configure(command));
        let body = asking("c", "what is the weather in Reykjavik");
        let headers = [
            ("traceparent", PARENT),
            ("cookie", "a=planted-cookie"),
            ("x-own", "planted-header"),
        ];
        post(&bridge, &body, &headers).await;
        let seen = collector
            .until(|seen| !seen.named("POST /api/chat").is_empty())
            .await;
        let spans = seen.of(TRACE);
        let turn = only(&spans, |span| {
            span.attribute("adk_bridge.turn.result") == "finished"
        });
        let tool = only(&spans, |span| span.name == "execute_tool get_weather");
        assert_eq!(tool.parent, turn.id);
        assert_eq!(tool.attribute("gen_ai.operation.name"), "execute_tool");
        assert_eq!(tool.attribute("gen_ai.tool.name"), "get_weather");
        assert!(!tool.attribute("gen_ai.tool.call.id").is_empty() && !tool.failed);
        let calls: Vec<_> = spans
            .iter()
            .filter(|span| span.name.starts_with("chat "))
            .collect();
        assert_eq!(calls.len(), 2, "{spans:#?}");
        let mut sums = [0, 0];
        for call in calls {
            assert_eq!(
                (call.parent.as_str(), call.kind),
                (turn.id.as_str(), CLIENT)
            );
            assert_eq!(call.attribute("gen_ai.operation.name"), "chat");
            assert_eq!(call.attribute("gen_ai.provider.name"), "gcp.gemini");
            assert!(call.name.ends_with(call.attribute("gen_ai.request.model")));
            assert!(!call.attribute("gen_ai.response.model").is_empty());
            assert!(!call.attribute("gen_ai.response.finish_reasons").is_empty());
            for (sum, name) in sums
                .iter_mut()
                .zip(["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"])
            {
                *sum += call.attribute(name).parse::<u64>().unwrap();
            }
        }
        assert_eq!(
            turn.attribute("gen_ai.usage.input_tokens"),
            sums[0].to_string()
        );
        assert_eq!(
            turn.attribute("gen_ai.usage.output_tokens"),
            sums[1].to_string()
        );
        let text = seen.text();
        assert_eq!(text.contains("Reykjavik"), content);
        assert_eq!(
            tool.attribute("gen_ai.tool.call.arguments")
                .contains("Reykjavik"),
            content
        );
        assert_eq!(
            tool.attribute("gen_ai.tool.call.result").is_empty(),
            !content
        );
        for name in ["gen_ai.input.messages", "gen_ai.output.messages"] {
            let shown = spans.iter().filter_map(|span| span.attributes.get(name));
            let shown: Vec<Value> = shown
                .map(|shown| serde_json::from_str(shown).unwrap())
                .collect();
            assert_eq!(shown.len(), if content { 2 } else { 0 }, "{name}");
            assert!(shown.iter().all(|shown| shown[0]["role"].is_string()));
        }
        assert!(!text.contains("planted-"), "{text}");
    }
}

/// A model that puts the key where ids and words belong, and then fails with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_secrets_are_in_no_span() {
    let stand_in = StandIn::start(|asked| {
        let call = json!({"functionCall": {"id": KEY, "name": KEY, "args": {"a": KEY}}});
        let chunk = json!({
            "candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": KEY}],
            "modelVersion": KEY, "responseId": KEY,
        });
        match asked.body.to_string().contains("functionResponse") {
            false => events(format!("data: {chunk}\n\n")),
            true => refused(
                400,
                "application/json",
                &json!({"error": {"message": asked.head.to_uppercase()}}).to_string(),
            ),
        }
    })
    .await;
    let collector = Collector::start(Habit::Takes);
    let toml = format!(
        "[telemetry]\ncontent = true\n[agent]\nkind = \"gemini\"\nbase_url = \"http://{}\"\n",
        stand_in.address
    );
    let bridge = Bridge::with(&toml, |command| {
        collector.configure(command);
        command
            .env("GEMINI_API_KEY", KEY)
            .env(
                "OTEL_EXPORTER_OTLP_HEADERS",
                "api-key=Bearer%20planted-otlp-key,b=2",
            )
            .env(
                "OTEL_RESOURCE_ATTRIBUTES",
                "deployment.environment.name=test",
            )
            .env("OTEL_SERVICE_NAME", "my-bridge")
            .env("RUST_LOG", "debug");
    });
    post(
        &bridge,
        &asking("c", &format!("{WORDS} {KEY}")),
        &[("traceparent", PARENT)],
    )
    .await;
    let seen = collector
        .until(|seen| !seen.named("POST /api/chat").is_empty())
        .await;
    assert!(seen.spans.len() >= 3, "{seen:#?}");
    assert!(seen.spans.iter().any(|span| span.failed), "{seen:#?}");
    assert_eq!(seen.headers["api-key"], "Bearer planted-otlp-key");
    assert_eq!(seen.headers["content-type"], "application/x-protobuf");
    assert_eq!(seen.resource["service.name"], "my-bridge");
    assert_eq!(seen.resource["deployment.environment.name"], "test");
    let metrics = bridge.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for (where_, text) in [
        ("spans", seen.text()),
        ("log", bridge.log()),
        ("metrics", metrics),
    ] {
        for secret in [KEY, "planted-otlp-key"] {
            assert!(!text.contains(secret), "{secret} in {where_}: {text}");
        }
    }
    assert!(!bridge.log().contains(WORDS));
}

/// Whatever is recorded here: what comes in goes out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_is_passed_on_even_if_nothing_is_recorded() {
    let collector = Collector::start(Habit::Takes);
    let settings: [&[(&str, &str)]; 4] = [
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
        &[("OTEL_SDK_DISABLED", "true")],
        &[("OTEL_TRACES_SAMPLER", "always_off")],
        &[
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0"),
        ],
    ];
    for variables in settings {
        let stand_in = StandIn::start(well).await;
        let bridge = Bridge::with(&stand_in.toml(), |command| {
            collector.configure(command);
            command.envs(variables.iter().copied());
        });
        for (chat, parent, passed_on) in [
            ("a", PARENT, Some(PARENT)),
            ("b", "00-not-a-context-01", None),
        ] {
            let given = [("traceparent", parent), ("tracestate", "a=1, b=2")];
            post(&bridge, &asking(chat, "hello"), &given).await;
            for asked in ["/sessions", "/run_sse"].map(|path| stand_in.asked(path).pop().unwrap()) {
                let sent = header(&asked, "traceparent");
                match passed_on {
                    Some(_) => {
                        assert_eq!(sent, passed_on, "{variables:?}");
                        assert_eq!(header(&asked, "tracestate"), Some("a=1,b=2"));
                    }
                    // A trace that begins here is not recorded elsewhere either.
                    None => assert!(sent.is_none_or(|sent| sent.ends_with("-00")), "{sent:?}"),
                }
            }
        }
        bridge.signal("-TERM");
    }
    assert_eq!(collector.seen().requests, 0);
}

/// What is written and what is spoken over a socket belongs to the trace of its handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_brings_its_trace_with_its_handshake() {
    let stand_in = StandIn::start_speaking(
        |asked| match (&asked.key, asked.path.starts_with("/run_live?")) {
            (Some(key), true) => switched(key),
            _ => well(asked),
        },
        |_, _| Vec::new(),
    )
    .await;
    let collector = Collector::start(Habit::Takes);
    let bridge = Bridge::with(&stand_in.toml(), |command| collector.configure(command));
    let given = [("traceparent", PARENT), ("tracestate", "a=1")];
    let is_of_trace = |asked: &ReceivedRequest| {
        let parent = header(asked, "traceparent").unwrap_or_default();
        assert!(parent.starts_with(&format!("00-{TRACE}-")), "{asked:?}");
        assert_eq!(header(asked, "tracestate"), Some("a=1"));
    };

    let (_, mut client) = Client::try_open(&bridge, "/live?chat=written", &given).await;
    client.say("hello").await;
    client.turn().await;
    stand_in.asked("/run_sse").iter().for_each(is_of_trace);
    let (_, mut client) = Client::try_open(&bridge, "/live?chat=spoken", &given).await;
    client
        .send(json!({"type": "audio_chunk", "chunk": base64::encode(&[1; 640])}))
        .await;
    within(async {
        while stand_in.asked("/run_live?").is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    stand_in.asked("/run_live?").iter().for_each(is_of_trace);
    let (_, mut client) = Client::try_open(&bridge, "/api/chat/ws", &given).await;
    let frame = json!({"type": "send", "requestId": "r", "id": "stock", "trigger": "submit-message",
        "messages": asking("stock", "hello")["messages"]});
    client.send(frame).await;
    within(async {
        while stand_in.asked("/run_sse").len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    stand_in.asked("/run_sse").iter().for_each(is_of_trace);
    let seen = collector
        .until(|seen| seen.spans.iter().filter(|it| is_run(it)).count() == 2)
        .await;
    let (turns, all) = (seen.named("GET /live"), seen.of(TRACE));
    assert_eq!((turns.len(), turns[0].parent.as_str()), (2, PARENT_SPAN));
    assert!(all.iter().any(|span| is_run(span)), "{all:#?}");
}

/// What is spoken is answered by a model, too: its tokens are in a span, and what was said is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_a_live_model_is_a_call_with_its_tokens() {
    let collector = Collector::start(Habit::Takes);
    let bridge = Bridge::with("[telemetry]\ncontent = true", |command| {
        collector.configure(command);
    });
    let given = [("traceparent", PARENT)];
    let (_, mut client) = Client::try_open(&bridge, "/live?chat=spoken", &given).await;
    let mut samples = tones::speak("say Rumpelstilzchen", 16_000);
    // Silence, by which the model knows that the user has finished.
    samples.extend([0; 16 * 600]);
    for piece in samples.chunks(320) {
        let bytes: Vec<u8> = piece.iter().flat_map(|it| it.to_le_bytes()).collect();
        let chunk = base64::encode(&bytes);
        client
            .send(json!({"type": "audio_chunk", "chunk": chunk}))
            .await;
    }
    let is_turn = |span: &SeenSpan| {
        span.name.starts_with("invoke_agent") && span.attributes["adk_bridge.transport"] == "live"
    };
    let seen = collector.until(|seen| seen.spans.iter().any(is_turn)).await;
    let turn = only(&seen.of(TRACE), is_turn);
    let call = only(&seen.of(TRACE), |it| it.name.starts_with("chat "));
    assert_eq!((call.kind, &call.parent), (CLIENT, &turn.id), "{call:#?}");
    assert_eq!(call.attributes["gen_ai.operation.name"], "chat");
    assert!(call.name.contains("live"), "{}", call.name);
    for tokens in ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"] {
        let count: u64 = call.attributes[tokens].parse().unwrap();
        assert!(count > 0, "{call:#?}");
        assert_eq!(call.attributes[tokens], turn.attributes[tokens]);
    }
    assert!(!call.attributes.contains_key("adk_bridge.cancelled"));
    assert!(!call.failed && !seen.text().contains("Rumpel"), "{seen:#?}");
}

/// What the specification knows and this program does not must not be relied on.
#[tokio::test]
async fn variables_that_count_for_nothing_are_named() {
    let collector = Collector::start(Habit::Takes);
    let start = |variables: &[(&str, &str)]| {
        Bridge::with("", |command| {
            collector.configure(command);
            command.envs(variables.iter().copied());
        })
    };
    let names = [
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        "OTEL_PROPAGATORS",
    ];
    let bridge = start(&names.map(|name| (name, "b3")));
    for name in names {
        assert!(
            bridge.log().contains(&format!("{name} is ignored")),
            "{name}"
        );
    }
    let bridge = start(&[("OTEL_PROPAGATORS", "tracecontext,baggage")]);
    assert!(!bridge.log().contains("is ignored"));
}

/// The service goes on, the log says it once, and stopping takes no longer than it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_is_no_trouble() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    for habit in [None, Some(Habit::Refuses), Some(Habit::Hangs)] {
        let collector = habit.map(Collector::start);
        let url = collector
            .as_ref()
            .map_or(address, |collector| collector.address);
        let mut bridge = Bridge::with("", |command| {
            command
                .env(
                    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                    format!("http://{url}/v1/traces"),
                )
                .env("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
                .env("OTEL_BSP_MAX_QUEUE_SIZE", "8")
                .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
                .env("OTEL_BSP_SCHEDULE_DELAY", "1");
        });
        for chat in 0..20 {
            let said = post(&bridge, &asking(&format!("c{chat}"), "say hello"), &[]).await;
            assert!(said.contains("hello"), "{said}");
        }
        let failed = "span_exports_total{result=\"failed\"} ";
        let count = async || {
            let page = bridge.get("/metrics").await;
            let page = String::from_utf8_lossy(&page.body).into_owned();
            let line = page.lines().find_map(|line| line.split_once(failed));
            line.unwrap().1.parse::<u64>().unwrap()
        };
        let tried = tokio::time::timeout(PATIENCE, async { while count().await < 2 {} });
        assert!(tried.await.is_ok(), "it goes on trying");
        let said = bridge.log().matches("spans cannot be sent").count();
        assert_eq!(said, 1, "{habit:?}: {}", bridge.log());
        bridge.signal("-TERM");
        let ended = tokio::time::timeout(PATIENCE, async {
            while bridge.is_alive() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(ended.await.is_ok(), "{habit:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_spans_are_sent_when_the_server_stops() {
    let collector = Collector::start(Habit::Takes);
    let bridge = Bridge::with("", |command| {
        collector.configure(command);
        command
            .env("OTEL_BSP_SCHEDULE_DELAY", "3600000")
            .env("OTEL_EXPORTER_OTLP_COMPRESSION", "none");
    });
    post(&bridge, &asking("c", "say hello"), &[]).await;
    assert_eq!(collector.seen().requests, 0);
    bridge.signal("-TERM");
    collector
        .until(|seen| !seen.named("POST /api/chat").is_empty())
        .await;
}

#[test]
fn what_is_not_spoken_is_refused_by_name() {
    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    for (variable, value, said) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        (
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "http/json",
            "http/protobuf",
        ),
        ("OTEL_TRACES_EXPORTER", "zipkin", "\"otlp\" or \"none\""),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "milliseconds"),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "planted:4317",
            "http://HOST:4318",
        ),
    ] {
        let refusal = refused_to_start("", |command: &mut Command| {
            command
                .env(ENDPOINT, "http://127.0.0.1:9")
                .env(variable, value);
        });
        assert!(
            refusal.contains(variable) && refusal.contains(said),
            "{refusal}"
        );
        assert!(!refusal.contains("planted"), "{refusal}");
    }
    let refusal = refused_to_start("[log]\nformat = \"xml\"\n", |_| {});
    assert!(refusal.contains("log.format"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_json_names_traces_and_nothing_that_was_said() {
    let bridge = Bridge::configured("[log]\nformat = \"json\"\n");
    let id = ("x-request-id", "mine-17");
    post(
        &bridge,
        &asking("chat-1", "say Rumpelstilzchen then http 400"),
        &[("traceparent", PARENT), id],
    )
    .await;
    bridge
        .send("GET", "/api/chats/%E2%80%AEa%22b?secret=abc", &[], "")
        .await;
    let log = bridge.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    assert!(log.is_ascii());
    let line = |part: &str| {
        let found = lines
            .iter()
            .find(|line| line["message"].as_str().unwrap().contains(part));
        found.unwrap_or_else(|| panic!("{part} in {log}"))
    };
    let request = line("POST /api/chat: 200");
    assert_eq!(
        (&request["request"], &request["status"]),
        (&json!("mine-17"), &json!(200))
    );
    assert!(request["millis"].is_number() && request["timestamp"].is_string());
    assert_eq!(
        (&request["level"], &request["target"]),
        (&json!("INFO"), &json!("adk_bridge::telemetry::request"))
    );
    let turn = line("of chat chat-1 ended: failed");
    for line in [request, turn, line("the agent of chat chat-1 failed")] {
        assert_eq!(
            (&line["trace_id"], &line["span_id"]),
            (&json!(TRACE), &json!(PARENT_SPAN)),
            "{line}"
        );
    }
    assert!(line("adk-bridge ")["trace_id"].is_null());
    for secret in ["Rumpelstilzchen", "secret=abc"] {
        assert!(!log.contains(secret), "{log}");
    }
}
