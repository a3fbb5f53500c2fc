//! ADK servers as they are in every language, made from their sources: what each does differently is noticed, and said.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use adk_bridge_protocol::base64;
use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, http, ok, refused, switched};
use crate::support::socket::Client;
use crate::support::{Bridge, JSON, asking, folded, text_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Python,
    /// Before it said its version and described its apps.
    OldPython,
    /// With `--auto_create_session`.
    MakingPython,
    TypeScript,
    Go,
    Java,
    /// One that nobody has seen: it refuses events with a new session, and keeps its own ids.
    Strange,
}

const ALL: [Kind; 7] = [
    Kind::Python,
    Kind::OldPython,
    Kind::MakingPython,
    Kind::TypeScript,
    Kind::Go,
    Kind::Java,
    Kind::Strange,
];

impl Kind {
    fn is_python(self) -> bool {
        matches!(self, Self::Python | Self::OldPython | Self::MakingPython)
    }

    fn takes_events(self) -> bool {
        self.is_python() || self == Self::Go
    }
}

/// A server with its sessions: the contents that its model is given.
struct AdkServer {
    kind: Kind,
    sessions: Mutex<BTreeMap<String, Vec<Value>>>,
    made: Mutex<usize>,
}

impl AdkServer {
    async fn start(kind: Kind) -> (Arc<Self>, StandIn) {
        let server = Arc::new(Self {
            kind,
            sessions: Mutex::default(),
            made: Mutex::default(),
        });
        let (answering, speaking) = (server.clone(), server.clone());
        let stand_in = StandIn::start_speaking(
            move |asked| answering.answer(asked),
            move |asked, message| speaking.speak(asked, &message),
        );
        (server, stand_in.await)
    }

    /// What a restart is.
    fn forget(&self) {
        self.sessions.lock().unwrap().clear();
    }

    fn answer(&self, asked: &ReceivedRequest) -> Vec<u8> {
        let path = match self.kind {
            Kind::Go => asked.path.strip_prefix("/api"),
            _ => Some(asked.path.as_str()),
        };
        let Some(path) = path else {
            return self.nothing_here(asked);
        };
        let is_post = asked.head.starts_with("post");
        let sessions = "/apps/app/users/local/sessions";
        match path {
            "/list-apps" => ok(&json!(["app"])),
            "/version" => match self.kind {
                Kind::Python | Kind::MakingPython => ok(
                    &json!({"version": "2.13.0", "language": "python", "language_version": "3.11.7"}),
                ),
                Kind::TypeScript => express(ok(&json!({"version": "2.0.0"}))),
                _ => self.nothing_here(asked),
            },
            "/run_live" => match self.kind {
                Kind::Go => text(500, "appName, userId, and sessionId are required\n"),
                Kind::Java => text(400, "Can \"Upgrade\" only to \"WebSocket\"."),
                _ => self.nothing_here(asked),
            },
            path if path.starts_with("/run_live?") => match (&asked.key, self.spoken_in(asked)) {
                (Some(key), Some(_)) => switched(key),
                _ => text(500, "session not found\n"),
            },
            "/apps/app/app-info" if matches!(self.kind, Kind::Python | Kind::MakingPython) => {
                let tools =
                    json!([{"functionDeclarations": [{"name": "pay", "description": "Pays."}]}]);
                ok(&json!({"name": "app", "agents": {"app": {"tools": tools}}}))
            }
            path if path == sessions && is_post => self.create(asked),
            path if path == sessions => {
                let all = self.sessions.lock().unwrap();
                ok(&all.keys().map(|id| json!({"id": id})).collect())
            }
            "/run" if self.kind.is_python() => self.run_without_message(asked),
            "/run_sse" => self.run(asked),
            path => match path.strip_prefix(&format!("{sessions}/")) {
                Some(id) => self.session(id),
                None => match path.strip_prefix("/apps/app/users/adk-bridge-probe/sessions/") {
                    Some(id) if self.kind == Kind::MakingPython => {
                        if asked.head.starts_with("delete") {
                            self.sessions.lock().unwrap().remove(id);
                        }
                        self.session(id)
                    }
                    _ => self.nothing_here(asked),
                },
            },
        }
    }

    fn nothing_here(&self, asked: &ReceivedRequest) -> Vec<u8> {
        match self.kind {
            Kind::Python | Kind::OldPython | Kind::MakingPython => {
                json_refusal(404, &json!({"detail": "Not Found"}))
            }
            Kind::TypeScript => {
                let page = format!("<pre>Cannot GET {}</pre>", asked.path);
                express(refused(404, "text/html; charset=utf-8", &page))
            }
            Kind::Go => text(404, "404 page not found\n"),
            Kind::Java => spring(404, &asked.path),
            Kind::Strange => text(404, "?"),
        }
    }

    fn create(&self, asked: &ReceivedRequest) -> Vec<u8> {
        let events = asked.body.get("events").and_then(Value::as_array);
        if self.kind == Kind::Strange && events.is_some() {
            return text(400, "no events here");
        }
        let wanted = asked.body.get("sessionId").and_then(Value::as_str);
        let id = match wanted.filter(|_| self.kind.is_python()) {
            Some(id) => id.to_owned(),
            None => {
                let mut made = self.made.lock().unwrap();
                *made += 1;
                format!("s{made}")
            }
        };
        let kept = match (events, self.kind.takes_events()) {
            (Some(events), true) => events.clone(),
            _ => Vec::new(),
        };
        let contents = kept.iter().map(|event| event["content"].clone()).collect();
        self.sessions.lock().unwrap().insert(id.clone(), contents);
        match self.kind {
            Kind::Java => ok(
                &json!({"id": id, "state": {}, "events": [], "lastUpdateTime": 1_700_000_000_123_u64}),
            ),
            Kind::Strange => ok(&json!({"id": id})),
            _ => ok(&json!({"id": id, "appName": "app", "events": kept})),
        }
    }

    fn session(&self, id: &str) -> Vec<u8> {
        match (self.sessions.lock().unwrap().get(id), self.kind) {
            (Some(contents), _) => {
                let events = contents
                    .iter()
                    .map(|content| json!({"author": "user", "content": content}));
                ok(&json!({"id": id, "events": events.collect::<Vec<_>>()}))
            }
            (None, Kind::Go) => text(500, "session not found\n"),
            (None, Kind::Java) => spring(404, "/apps/app"),
            (None, _) => json_refusal(404, &json!({"detail": "Session not found"})),
        }
    }

    fn run_without_message(&self, asked: &ReceivedRequest) -> Vec<u8> {
        let id = asked.body["sessionId"].as_str().unwrap();
        assert_eq!(asked.body.get("newMessage"), None, "a run with a message");
        if self.kind != Kind::MakingPython {
            return json_refusal(404, &json!({"detail": format!("Session not found: {id}")}));
        }
        self.sessions
            .lock()
            .unwrap()
            .entry(id.to_owned())
            .or_default();
        text(500, "Internal Server Error")
    }

    fn run(&self, asked: &ReceivedRequest) -> Vec<u8> {
        let known = [
            "appName",
            "userId",
            "sessionId",
            "newMessage",
            "streaming",
            "stateDelta",
        ];
        let fields = asked.body.as_object().unwrap();
        if let Some(field) = fields.keys().find(|key| !known.contains(&key.as_str()))
            && self.kind == Kind::Go
        {
            return text(
                400,
                &format!("failed to decode request body: json: unknown field \"{field}\"\n"),
            );
        }
        let id = asked.body["sessionId"].as_str().unwrap();
        let mut sessions = self.sessions.lock().unwrap();
        if !sessions.contains_key(id) {
            match self.kind {
                Kind::MakingPython => drop(sessions.insert(id.to_owned(), Vec::new())),
                Kind::Java => return spring(500, "/run_sse"),
                Kind::Go => return text(404, "failed to find the session: session not found\n"),
                Kind::TypeScript => {
                    return express(json_refusal(
                        404,
                        &json!({"error": format!("Session not found: {id}")}),
                    ));
                }
                _ => {
                    return json_refusal(
                        404,
                        &json!({"detail": format!("Session not found: {id}")}),
                    );
                }
            }
        }
        let contents = sessions.get_mut(id).unwrap();
        let message = asked.body["newMessage"].clone();
        if message.to_string().contains("\"fail\"") {
            return text(500, "out of order\n");
        }
        let before = contents.clone();
        contents.push(message.clone());
        let said = reply(&before, &message);
        contents.extend(said.iter().map(|event| event["content"].clone()));
        if message.to_string().contains("\"cut\"") {
            let mut cut = crate::stand_in::pieces(&said);
            cut.truncate(cut.len() - b"0\r\n\r\n".len());
            return cut;
        }
        let lines = said.into_iter().map(|event| self.line(event));
        http(
            "200 OK",
            "text/event-stream",
            lines.collect::<String>().as_bytes(),
        )
    }

    /// The contents of the session that a live connection is in.
    fn spoken_in(&self, asked: &ReceivedRequest) -> Option<Vec<Value>> {
        let (_, query) = asked.path.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, id) = pairs.find(|(key, _)| *key == "session_id")?;
        self.sessions.lock().unwrap().get(id).cloned()
    }

    /// The events for a frame of a live connection, which answers speech and words, and stores neither.
    fn speak(&self, asked: &ReceivedRequest, frame: &Value) -> Vec<Value> {
        let heard =
            json!({"author": "user", "inputTranscription": {"text": "speech", "finished": true}});
        let (heard, message) = match (frame.get("blob"), frame.get("content")) {
            (Some(_), _) => (Some(heard), json!({"parts": [{"text": "speech"}]})),
            (None, Some(content)) => (None, content.clone()),
            (None, None) => return Vec::new(),
        };
        let before = self.spoken_in(asked).unwrap();
        let said = reply(&before, &message).remove(0)["content"]["parts"][0]["text"].take();
        let sound = json!({"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": "AAAAAA=="}});
        let answer = [
            json!({"author": "app", "content": {"role": "model", "parts": [sound]}}),
            json!({"author": "app", "outputTranscription": {"text": said, "finished": true}}),
            json!({"author": "app", "turnComplete": true}),
        ];
        heard.into_iter().chain(answer).collect()
    }

    /// An event as the server writes it.
    fn line(&self, mut event: Value) -> String {
        match self.kind {
            Kind::Java => {
                let nulls = [
                    "errorCode",
                    "partial",
                    "turnComplete",
                    "branch",
                    "groundingMetadata",
                    "longRunningToolIds",
                ];
                for key in nulls {
                    event
                        .as_object_mut()
                        .unwrap()
                        .entry(key)
                        .or_insert(Value::Null);
                }
                event["timestamp"] = json!(1_700_000_000_123_u64);
                format!("data:{event}\n\n")
            }
            _ => format!("data: {event}\n\n"),
        }
    }
}

/// The events of a run: the agent does what the last words say, and refuses results of calls that it did not make.
fn reply(before: &[Value], message: &Value) -> Vec<Value> {
    let event = |parts: Value, asks: Value| json!({"author": "app", "content": {"role": "model", "parts": parts}, "longRunningToolIds": asks});
    let say = |words: &str| vec![event(json!([{"text": words}]), json!([]))];
    let call = |id: &str, name: &str, args: Value| json!({"functionCall": {"id": id, "name": name, "args": args}});
    let parts = message["parts"].as_array().unwrap();
    let answers: Vec<&Value> = parts
        .iter()
        .filter_map(|part| part.get("functionResponse"))
        .collect();
    for answer in &answers {
        let id = answer["id"].as_str().unwrap();
        if !json!(before)
            .to_string()
            .contains(&format!("\"id\":\"{id}\""))
        {
            return vec![json!({"error": format!("No function call event found for {id}")})];
        }
    }
    if let Some(answer) = answers.first() {
        let confirmed = answer["response"]["confirmed"] == true;
        return match answer["name"].as_str().unwrap() {
            "adk_request_confirmation" if confirmed => {
                let done = json!({"id": "c1", "name": "pay", "response": {"paid": 50}});
                [
                    vec![event(json!([{"functionResponse": done}]), json!([]))],
                    say("paid"),
                ]
                .concat()
            }
            _ => say(&format!("result {}", answer["response"])),
        };
    }
    match parts.last().unwrap()["text"].as_str().unwrap_or_default() {
        "pay" => {
            let original = json!({"id": "c1", "name": "pay", "args": {"amount": 50}});
            let question =
                json!({"originalFunctionCall": original, "toolConfirmation": {"confirmed": false}});
            vec![
                event(json!([call("c1", "pay", json!({"amount": 50}))]), json!([])),
                event(
                    json!([call("q1", "adk_request_confirmation", question)]),
                    json!(["q1"]),
                ),
            ]
        }
        "pick" => vec![event(json!([call("p1", "pick", json!({}))]), json!(["p1"]))],
        words => {
            let known = json!(before).to_string() + &json!(parts).to_string();
            let facts = ["red", "blue"]
                .into_iter()
                .filter(|word| known.contains(&format!("my color is {word}")));
            say(&format!("{words}: I know {:?}", facts.collect::<Vec<_>>()))
        }
    }
}

/// Every server is found out at start, and only what it has is offered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_is_shown_as_it_is() {
    for (kind, name, modalities, tools, prefix, restoring) in [
        (
            Kind::Python,
            "ADK for Python 2.13.0",
            json!(["text", "audio"]),
            1,
            json!(null),
            "events",
        ),
        (
            Kind::OldPython,
            "ADK for Python",
            json!(["text", "audio"]),
            0,
            json!(null),
            "events",
        ),
        (
            Kind::TypeScript,
            "ADK for TypeScript 2.0.0",
            json!(["text"]),
            0,
            json!(null),
            "message",
        ),
        (
            Kind::Go,
            "ADK for Go",
            json!(["text", "audio"]),
            0,
            json!("/api"),
            "events",
        ),
        (
            Kind::Java,
            "ADK for Java",
            json!(["text", "audio"]),
            0,
            json!(null),
            "message",
        ),
        (
            Kind::Strange,
            "an ADK server of an unknown kind",
            json!(["text"]),
            0,
            json!(null),
            "events",
        ),
    ] {
        let (_server, stand_in) = AdkServer::start(kind).await;
        let bridge = Bridge::configured(&stand_in.toml());
        let log = bridge.log();
        assert!(
            log.contains(&format!("  server     {name}")),
            "{kind:?}: {log}"
        );
        for path in ["/api/agent", "/api/agents/app"] {
            let shown = bridge.get(path).await.json();
            assert_eq!(shown["server"]["name"], name, "{kind:?}: {shown}");
            assert_eq!(shown["modalities"], modalities, "{kind:?}: {shown}");
            assert_eq!(shown["tools"].as_array().unwrap().len(), tools, "{kind:?}");
            assert_eq!(shown["server"]["prefix"], prefix, "{kind:?}: {shown}");
            assert_eq!(shown["server"]["restoring"], restoring, "{kind:?}: {shown}");
            let has_voice = modalities.as_array().unwrap().len() == 2;
            assert_eq!(shown["server"]["voice"], has_voice, "{kind:?}: {shown}");
            let lacks = shown["limitations"].to_string();
            assert_eq!(
                lacks.contains("hold a voice conversation"),
                !has_voice,
                "{kind:?}: {lacks}"
            );
            assert_eq!(
                lacks.contains("know in a spoken conversation what was said before"),
                has_voice && restoring == "message",
                "{kind:?}: {lacks}"
            );
        }
        let all = bridge.get("/api/agents").await.json();
        assert_eq!(all[0]["server"]["name"], name, "{all}");
    }
}

/// The URL may name `/api` itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_with_the_prefix_is_taken_as_it_is() {
    for suffix in ["", "/", "/api", "/api/"] {
        let (_server, stand_in) = AdkServer::start(Kind::Go).await;
        let toml = stand_in
            .toml()
            .replace("\"\napp", &format!("{suffix}\"\napp"));
        let bridge = Bridge::configured(&toml);
        let said = folded(&bridge.ask("c", "hello").await.events().await);
        assert_eq!(text_of(&said), "hello: I know []", "{suffix}");
    }
}

/// What a server would refuse a message for is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_a_server_refuses_are_not_sent() {
    for (kind, is_sent) in [(Kind::Go, false), (Kind::Python, true)] {
        let (_server, stand_in) = AdkServer::start(kind).await;
        let bridge = Bridge::configured(&stand_in.toml());
        let mut body = asking("c", "hello");
        body["state"] = json!({"page": "cart"});
        body["stateDelta"] = json!({"step": 1});
        body["customMetadata"] = json!({"trace": "t1"});
        let body = body.to_string();
        let mut answer = bridge.open("POST", "/api/chat", &[JSON], &body).await;
        let said = folded(&answer.events().await);
        assert_eq!(text_of(&said), "hello: I know []", "{kind:?}");
        let run = stand_in.asked("/run_sse").remove(0);
        assert_eq!(
            run.body.get("customMetadata").is_some(),
            is_sent,
            "{kind:?}"
        );
        assert_eq!(run.body["stateDelta"]["step"], 1, "{kind:?}");
    }
}

/// Another server at the same address is found out when the first one was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_away_is_found_out_again() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let bridge = Bridge::configured(&crate::stand_in::toml(address));
    let shown = bridge.get("/api/agent").await.json();
    assert_eq!(
        (&shown["server"], &shown["status"]),
        (&json!(null), &json!("unreachable"))
    );
    assert!(
        bridge.log().contains("server     not there yet"),
        "{}",
        bridge.log()
    );
    let server = Arc::new(AdkServer {
        kind: Kind::Go,
        sessions: Mutex::default(),
        made: Mutex::default(),
    });
    let _stand_in = StandIn::start_at(address, move |asked| server.answer(asked)).await;
    let said = folded(&bridge.ask("c", "hello").await.events().await);
    assert_eq!(text_of(&said), "hello: I know []");
    let shown = bridge.get("/api/agent").await.json();
    assert_eq!(shown["server"]["language"], "go", "{shown}");
}

/// A conversation is known to the model whatever becomes of its session: lost, changed by its user, or both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_is_told_again_in_the_way_that_the_server_takes() {
    for kind in ALL {
        let (server, stand_in) = AdkServer::start(kind).await;
        let mut bridge = Bridge::configured(&stand_in.toml());
        let mut page = Page::new();
        page.say(&bridge, "my color is red").await;
        assert_eq!(
            page.say(&bridge, "again").await,
            "again: I know [\"red\"]",
            "{kind:?}"
        );
        let tell = |log: &str, words: &str| log.matches(words).count();
        for lost in 1..=2 {
            server.forget();
            assert_eq!(
                page.say(&bridge, "so").await,
                "so: I know [\"red\"]",
                "{kind:?}, {lost}"
            );
            assert_eq!(
                page.say(&bridge, "then").await,
                "then: I know [\"red\"]",
                "{kind:?}, {lost}"
            );
            let log = bridge.log();
            let restored = tell(&log, "; the conversation was restored");
            let repeated = tell(&log, "; the next message repeats the conversation as text");
            let expected = if kind.takes_events() {
                (lost, 0)
            } else {
                (0, lost)
            };
            assert_eq!((restored, repeated), expected, "{kind:?}: {log}");
        }
        // The bridge restarts while the server has forgotten.
        bridge.kill_and_restart();
        server.forget();
        assert_eq!(
            page.say(&bridge, "now").await,
            "now: I know [\"red\"]",
            "{kind:?}"
        );

        // A new answer, and an edit of the first message: what was replaced is not known any more.
        page.shown.pop();
        assert_eq!(
            page.send(&bridge).await,
            "now: I know [\"red\"]",
            "{kind:?}"
        );
        page.shown.truncate(2);
        page.shown[0]["parts"][0]["text"] = json!("my color is blue");
        page.shown.truncate(1);
        page.send(&bridge).await;
        assert_eq!(
            page.say(&bridge, "well").await,
            "well: I know [\"blue\"]",
            "{kind:?}"
        );
        // Every message is told once.
        let runs = stand_in.asked("/run_sse");
        let last = runs.last().unwrap().body["newMessage"].to_string();
        assert!(!last.contains("my color"), "{kind:?}: {last}");
        let shown = page.stored(&bridge).await.to_string();
        assert!(
            !shown.contains("one JSON object a line"),
            "{kind:?}: {shown}"
        );
    }
}

/// Speech in a session that was lost, or whose history has changed: it works, and the log says what the model does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speech_in_a_new_session_knows_what_the_server_takes() {
    for (kind, known) in [(Kind::Go, "[\"red\"]"), (Kind::Java, "[]")] {
        let (server, stand_in) = AdkServer::start(kind).await;
        let bridge = Bridge::configured(&stand_in.toml());
        let mut page = Page::new();
        page.say(&bridge, "my color is red").await;
        server.forget();
        let mut client = Client::open(&bridge, "/live?chat=c").await;
        for frame in [
            json!({"type": "audio_config", "wire": "json"}),
            json!({"type": "modality", "modality": "audio"}),
            speech(),
        ] {
            client.send(frame).await;
        }
        assert_eq!(
            said(&mut client).await,
            format!("speech: I know {known}"),
            "{kind:?}"
        );
        let opened = stand_in.asked("/run_live?").pop().unwrap().path;
        assert!(
            opened.contains("session_id=s2&modalities=AUDIO"),
            "{kind:?}: {opened}"
        );
        let unknown = "the spoken conversation in chat c does not know what was said before; the next written message repeats it as text";
        let count = |words: &str| bridge.log().matches(words).count();
        let lost = "the ADK server had lost the session of chat c";
        assert_eq!(count(lost), 1, "{kind:?}: {}", bridge.log());
        let restored = count("; the conversation was restored");
        let expected = if kind.takes_events() { (1, 0) } else { (0, 1) };
        assert_eq!((restored, count(unknown)), expected, "{kind:?}");
        assert_eq!(count("; the next message repeats"), 0, "{kind:?}");

        // The next written message does repeat it, once in this connection, and where it goes on without speech.
        client.say("typed").await;
        assert_eq!(
            said(&mut client).await,
            "typed: I know [\"red\"]",
            "{kind:?}"
        );
        client.say("more").await;
        assert_eq!(
            said(&mut client).await,
            format!("more: I know {known}"),
            "{kind:?}"
        );
        page.shown = page.stored(&bridge).await.as_array().unwrap().clone();
        let repeats = |run: &ReceivedRequest| {
            let message = run.body["newMessage"].to_string();
            message.contains("one JSON object a line") && message.contains("my color is red")
        };
        for (words, is_repeated) in [("so", !kind.takes_events()), ("then", false)] {
            assert_eq!(
                page.say(&bridge, words).await,
                format!("{words}: I know [\"red\"]"),
                "{kind:?}"
            );
            let run = stand_in.asked("/run_sse").pop().unwrap();
            assert_eq!(repeats(&run), is_repeated, "{kind:?}: {}", run.body);
        }

        // Speech knows what a message has repeated, but not what one that failed should have repeated after an edit.
        client.send(speech()).await;
        assert_eq!(
            said(&mut client).await,
            "speech: I know [\"red\"]",
            "{kind:?}"
        );
        assert_eq!(count(unknown), expected.1, "{kind:?}: {}", bridge.log());
        page.shown.truncate(page.shown.len() - 1);
        page.shown.last_mut().unwrap()["parts"][0]["text"] = json!("fail");
        let failed = page.post(&bridge).await;
        assert!(failed.contains("out of order"), "{kind:?}: {failed}");
        client.send(speech()).await;
        assert_eq!(
            said(&mut client).await,
            format!("speech: I know {known}"),
            "{kind:?}"
        );
        assert_eq!(count(unknown), 2 * expected.1, "{kind:?}: {}", bridge.log());
        assert_eq!(count(lost), 1, "{kind:?}: {}", bridge.log());
        let shown = page.stored(&bridge).await.to_string();
        assert!(
            !shown.contains("one JSON object a line"),
            "{kind:?}: {shown}"
        );
    }
}

fn speech() -> Value {
    json!({"type": "audio_chunk", "chunk": base64::encode(&[1; 640])})
}

/// The words of the next turn of a live connection.
async fn said(client: &mut Client) -> String {
    let chunks = client.chunks().await;
    let deltas = chunks.iter().filter(|chunk| chunk["type"] == "text-delta");
    deltas
        .map(|chunk| chunk["delta"].as_str().unwrap())
        .collect()
}

/// A question whose session is lost ends clearly: nothing runs, the user sees why, the model is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_a_lost_session_ends_clearly() {
    for kind in ALL {
        for (approved, state, words) in [
            (true, "output-error", "lost the conversation"),
            (false, "output-denied", "rejected"),
        ] {
            let (server, stand_in) = AdkServer::start(kind).await;
            let bridge = Bridge::configured(&stand_in.toml());
            let mut page = Page::new();
            page.say(&bridge, "my color is red").await;
            page.say(&bridge, "pay").await;
            server.forget();
            for part in page.shown[3]["parts"].as_array_mut().unwrap() {
                if part["state"] == "approval-requested" {
                    part["state"] = json!("approval-responded");
                    part["approval"]["approved"] = json!(approved);
                }
            }
            page.post(&bridge).await;
            let stored = page.stored(&bridge).await;
            let parts = stored[3]["parts"].as_array().unwrap();
            let call = parts
                .iter()
                .find(|part| part["type"] == "tool-pay")
                .unwrap();
            assert_eq!(call["state"], state, "{kind:?}: {stored}");
            let sent = stand_in.asked("/run_sse").last().unwrap().body.to_string();
            assert!(sent.contains(words), "{kind:?}: {sent}");
            assert_eq!(parts.last().unwrap()["type"], "text", "{kind:?}: {stored}");
            page.shown = stored.as_array().unwrap().clone();
            assert_eq!(
                page.say(&bridge, "so").await,
                "so: I know [\"red\"]",
                "{kind:?}"
            );
        }
    }
}

/// The output of a client tool reaches the model of a server that has lost the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_for_a_lost_session_reaches_the_model() {
    for kind in ALL {
        let (server, stand_in) = AdkServer::start(kind).await;
        let bridge = Bridge::configured(&stand_in.toml());
        let mut page = Page::new();
        page.say(&bridge, "pick").await;
        server.forget();
        let part = page.shown[1]["parts"].as_array_mut().unwrap();
        let part = part
            .iter_mut()
            .find(|part| part["type"] == "tool-pick")
            .unwrap();
        part["state"] = json!("output-available");
        part["output"] = json!({"color": "teal"});
        page.post(&bridge).await;
        let sent = stand_in.asked("/run_sse").last().unwrap().body["newMessage"].to_string();
        assert!(sent.contains("teal"), "{kind:?}: {sent}");
        let stored = page.stored(&bridge).await;
        assert_eq!(
            stored[1]["parts"].as_array().unwrap().last().unwrap()["type"],
            "text",
            "{kind:?}: {stored}"
        );
        assert!(
            !stored.to_string().contains("No function call"),
            "{kind:?}: {stored}"
        );
    }
}

/// A server that answers 404 for what it does not have is not asked for a session before every run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_server_that_makes_sessions_is_asked_for_them() {
    for (kind, looks) in [
        (Kind::Python, 0),
        (Kind::MakingPython, 3),
        (Kind::Go, 0),
        (Kind::Java, 0),
    ] {
        let (_server, stand_in) = AdkServer::start(kind).await;
        let bridge = Bridge::configured(&stand_in.toml());
        let mut page = Page::new();
        for words in ["one", "two", "three", "four"] {
            page.say(&bridge, words).await;
        }
        let asked = stand_in.asked("/users/local/sessions/");
        assert_eq!(asked.len(), looks, "{kind:?}: {asked:?}");
        let probes = stand_in
            .asked("/run")
            .into_iter()
            .filter(|asked| asked.path == "/run")
            .count();
        assert_eq!(probes, usize::from(kind.is_python()), "{kind:?}");
    }
}

/// Failures of a session that is there are what they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_not_taken_for_a_loss() {
    for (kind, words) in [
        (
            Kind::Python,
            "the ADK server failed: out of order (500); try again",
        ),
        (
            Kind::Go,
            "the ADK server failed: out of order (500); try again",
        ),
        (
            Kind::Java,
            "the ADK server failed: out of order (500); try again",
        ),
    ] {
        let (_server, stand_in) = AdkServer::start(kind).await;
        let bridge = Bridge::configured(&stand_in.toml());
        let mut page = Page::new();
        page.say(&bridge, "my color is red").await;
        page.shown.push(user("u8", "fail"));
        let events = page.post(&bridge).await;
        assert!(events.contains(words), "{kind:?}: {events}");
        let made = stand_in
            .asked("/sessions")
            .into_iter()
            .filter(|asked| asked.head.starts_with("post"));
        assert_eq!(made.count(), 1, "{kind:?}");
    }
}

/// A server in Go stops writing in the middle: the user learns why, and what was said is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_go_cuts_off_is_explained_and_kept() {
    for (kind, words) in [
        (Kind::Go, "-sse-write-timeout"),
        (Kind::Python, "broke in the middle of the answer; try again"),
    ] {
        let (_server, stand_in) = AdkServer::start(kind).await;
        let bridge = Bridge::configured(&stand_in.toml());
        let mut page = Page::new();
        page.say(&bridge, "my color is red").await;
        page.shown.push(user("u8", "cut"));
        let events = page.post(&bridge).await;
        assert!(events.contains(words), "{kind:?}: {events}");
        let stored = page.stored(&bridge).await;
        assert_eq!(
            text_of(&stored[3]),
            "cut: I know [\"red\"]",
            "{kind:?}: {stored}"
        );
        page.shown = stored.as_array().unwrap().clone();
        assert_eq!(
            page.say(&bridge, "so").await,
            "so: I know [\"red\"]",
            "{kind:?}"
        );
    }
}

/// A page with its list of messages, as `useChat` keeps it.
struct Page {
    shown: Vec<Value>,
    sent: usize,
}

impl Page {
    fn new() -> Self {
        Self {
            shown: Vec::new(),
            sent: 0,
        }
    }

    async fn say(&mut self, bridge: &Bridge, text: &str) -> String {
        self.sent += 1;
        self.shown.push(user(&format!("u{}", self.sent), text));
        self.send(bridge).await
    }

    /// Sends what is shown, and shows what is stored then. Returns the text of the answer.
    async fn send(&mut self, bridge: &Bridge) -> String {
        let answer = self.post(bridge).await;
        let stored = self.stored(bridge).await;
        self.shown = stored.as_array().unwrap().clone();
        let last = self.shown.last().unwrap();
        assert_eq!(last["role"], "assistant", "{answer}");
        text_of(last)
    }

    async fn post(&self, bridge: &Bridge) -> String {
        let body = json!({"id": "c", "messages": self.shown});
        let answer = bridge.post("/api/chat", &body).await;
        assert_eq!(answer.status, 200);
        String::from_utf8_lossy(&answer.body).into_owned()
    }

    async fn stored(&self, bridge: &Bridge) -> Value {
        bridge.get("/api/chats/c").await.json()["messages"].clone()
    }
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

fn text(status: u16, words: &str) -> Vec<u8> {
    refused(status, "text/plain; charset=utf-8", words)
}

fn json_refusal(status: u16, body: &Value) -> Vec<u8> {
    refused(status, "application/json", &body.to_string())
}

fn express(answer: Vec<u8>) -> Vec<u8> {
    let answer = String::from_utf8(answer).unwrap();
    answer
        .replacen("\r\n", "\r\nX-Powered-By: Express\r\n", 1)
        .into_bytes()
}

/// How Spring refuses.
fn spring(status: u16, path: &str) -> Vec<u8> {
    let error = if status == 404 {
        "Not Found"
    } else {
        "Internal Server Error"
    };
    let time = "2026-11-16T10:00:00.000+00:00";
    json_refusal(
        status,
        &json!({"timestamp": time, "status": status, "error": error, "path": path}),
    )
}
