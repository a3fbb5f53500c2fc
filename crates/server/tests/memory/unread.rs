//! Answers that nobody reads, over every endpoint that gives one: given up at the limit, while their turns go on.

use serde_json::json;

use crate::client::Client;
use crate::rig::{ALICE, MB, Rig, message, text};
use crate::support::http::Answer;
use crate::support::{JSON, asking, text_of};

/// What the answers of this file have to say.
const SAID: usize = 3 * MB;
/// What is held by an answer that nobody reads: more than any buffer on the way takes.
const HELD: usize = 10 * MB;
/// The held one fits, and nothing of what is said fits next to it.
const LIMITS: &str = "unread_bytes_per_user = 12000000\nwrite_stall = \"10m\"";
const KEY: &str = "limits.unread_bytes_per_user";

/// How somebody gets an answer.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// `POST /api/chat`, or `GET /api/chat/{id}/stream` of a turn that runs.
    Http { accept: &'static str },
    /// `send` or `resume` over the AI SDK's WebSocket, at either address.
    Stock { path: &'static str },
    /// A message over `/live`, or a connection to a chat whose turn runs.
    Live,
}

const WAYS: [Way; 5] = [
    Way::Http {
        accept: "text/event-stream",
    },
    Way::Http {
        accept: "text/plain",
    },
    Way::Stock {
        path: "/api/chat/ws",
    },
    Way::Stock { path: "/api/chat" },
    Way::Live,
];

/// An answer that is being read, or not.
enum Reading {
    Http(Box<Answer>),
    Socket(Client),
}

impl Way {
    /// Says something in a chat.
    async fn ask(self, rig: &Rig, chat: &str, says: &str) -> Reading {
        match self {
            Self::Http { accept } => {
                let mut connection = rig.bridge.connect().await;
                let body = asking(chat, says).to_string();
                let headers = [JSON, ALICE, ("accept", accept)];
                let post = connection.request("POST", "/api/chat", &headers, body.as_bytes());
                assert!(post.await);
                Reading::Http(Box::new(connection.answer("POST").await))
            }
            Self::Stock { path } => {
                let mut client = open(rig, path).await;
                let mut send = asking(chat, says);
                send["type"] = json!("send");
                send["requestId"] = json!("r");
                send["trigger"] = json!("submit-message");
                client.send(send).await;
                Reading::Socket(client)
            }
            Self::Live => {
                let mut client = open(rig, &format!("/live?chat={chat}")).await;
                client.say(says).await;
                Reading::Socket(client)
            }
        }
    }

    /// Reads the turn that a chat is in.
    async fn resume(self, rig: &Rig, chat: &str) -> Reading {
        match self {
            Self::Http { accept } => {
                let path = format!("/api/chat/{chat}/stream");
                let connection = rig.begin("GET", &path, &[ALICE, ("accept", accept)]).await;
                Reading::Http(Box::new(connection.answer("GET").await))
            }
            Self::Stock { path } => {
                let mut client = open(rig, path).await;
                client
                    .send(json!({"type": "resume", "requestId": "r", "id": chat}))
                    .await;
                Reading::Socket(client)
            }
            Self::Live => Reading::Socket(open(rig, &format!("/live?chat={chat}")).await),
        }
    }

    /// How an answer ends that reaches its end.
    fn end(self) -> &'static str {
        match self {
            Self::Http {
                accept: "text/plain",
            } => "]",
            Self::Http { .. } => "data: [DONE]\n\n",
            Self::Stock { .. } => r#"{"type":"end","requestId":"r"}"#,
            Self::Live => r#"{"type":"turn-end","turn":1}"#,
        }
    }
}

impl Reading {
    /// Everything up to one of some words, the rest of its piece included.
    async fn until(&mut self, words: &[&str]) -> String {
        let mut all = String::new();
        let mut searched = 0;
        loop {
            let piece = match self {
                Self::Http(answer) => answer.piece().await.expect("more to come"),
                Self::Socket(client) => client.message().await.payload,
            };
            all += std::str::from_utf8(&piece).expect("text");
            if words.iter().any(|word| all[searched..].contains(word)) {
                return all;
            }
            // A word may lie on both sides of a border.
            let longest = words.iter().map(|word| word.len()).max();
            searched = all.len().saturating_sub(longest.unwrap_or_default());
        }
    }
}

/// A text that the scripted model, which speaks word by word, says at once.
fn in_one_piece() -> String {
    format!("a{}b", " ".repeat(SAID))
}

async fn open(rig: &Rig, path: &str) -> Client {
    let (head, client) = Client::try_open(&rig.bridge, path, &[ALICE]).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client
}

/// A chat whose history nobody reads.
async fn store_held(rig: &Rig) {
    let stored = json!({"type": "data-x", "data": "x".repeat(HELD)});
    let said = message("u1", "user", vec![text("say Yes."), stored]);
    let body = json!({"id": "held", "messages": [said]});
    assert_eq!(rig.post(&body).await.status, 200);
}

/// An answer that takes nearly all of what may be unread, and that nobody reads. What was held before it may still be on
/// its way out.
async fn hold(rig: &Rig) -> Answer {
    loop {
        let connection = rig.begin("GET", "/api/chats/held", &[ALICE]).await;
        let answer = connection.answer("GET").await;
        if answer.status == 200 {
            return answer;
        }
    }
}

/// What the chat's answer says, once it is over and there is room to read it.
async fn stored(rig: &Rig, chat: &str) -> String {
    loop {
        let answer = rig.get(&format!("/api/chats/{chat}")).await;
        if answer.status == 429 {
            continue;
        }
        assert_eq!(answer.status, 200);
        let chat = answer.json();
        if let [_, answer] = &chat["messages"].as_array().unwrap()[..] {
            return text_of(answer);
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_read_is_given_up_and_its_turn_is_stored() {
    let mut rig = Rig::start(LIMITS).await;
    store_held(&rig).await;
    for (number, way) in WAYS.into_iter().enumerate() {
        let chat = format!("said-{number}");
        let held = hold(&rig).await;
        let mut answer = way
            .ask(
                &rig,
                &chat,
                &format!("say {} then say Done.", in_one_piece()),
            )
            .await;
        let shown = answer.until(&[KEY]).await;
        assert!(shown.len() < MB, "{way:?}");
        if !shown.ends_with(way.end()) {
            answer.until(&[way.end()]).await;
        }
        rig.serves_bob().await;
        drop((answer, held));
        let stored = stored(&rig, &chat).await;
        assert!(stored.len() > SAID && stored.ends_with("Done."), "{way:?}");
    }
    assert!(rig.peak() < 350 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}

#[tokio::test]
async fn a_turn_that_runs_is_given_up_by_whoever_does_not_read_it_and_can_be_read_again() {
    let mut rig = Rig::start(LIMITS).await;
    store_held(&rig).await;
    let says = format!("say {} then slow 100000", in_one_piece());
    let first = WAYS[0];
    let mut reader = first.ask(&rig, "run", &says).await;
    reader.until(&["word1"]).await;
    for way in WAYS {
        let held = hold(&rig).await;
        let before = rig.bridge.memory();
        let mut given_up = Vec::new();
        for _ in 0..20 {
            let mut answer = way.resume(&rig, "run").await;
            let shown = answer.until(&[KEY]).await;
            assert!(shown.len() < MB, "{way:?}");
            given_up.push(answer);
        }
        let grown = rig.bridge.memory().saturating_sub(before);
        assert!(grown < 30 * MB, "{way:?}: {} MB", grown / MB);
        rig.serves_bob().await;
        drop((given_up, held));
        // There is room again as soon as the server has noticed.
        loop {
            let mut answer = way.resume(&rig, "run").await;
            // It begins with all that was said, or with the refusal.
            let shown = answer.until(&[KEY, "word1"]).await;
            if !shown.contains(KEY) {
                assert!(shown.len() > SAID, "{way:?}");
                break;
            }
        }
    }
    let stop = rig.bridge.send("POST", "/api/chat/run/stop", &[ALICE], "");
    assert_eq!(stop.await.status, 204);
    drop(reader);
    assert!(stored(&rig, "run").await.len() > SAID);
    assert!(rig.peak() < 350 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}
