//! The history that a front end sends counts: it edits, deletes and switches branches, and the chat shows and the model is
//! sent what the front end shows.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, events, well};
use crate::support::http::Connection;
use crate::support::{Bridge, JSON, folded, text_of, within};

const CHAT: &str = "c";

/// What a front end does before it sends the next message.
#[derive(Clone, Copy)]
enum Do {
    /// Nothing: the conversation goes on.
    GoOn,
    /// Shows only so many messages, as an edit and `setMessages` do.
    Keep(usize),
    /// Deletes a message.
    Delete(usize),
    /// Goes back to the list that it had when this many messages had been sent, up to so many messages.
    BackTo(usize, usize),
    /// Deletes messages and asks for a new answer to the user's last one.
    Regenerate(&'static [usize]),
    /// Deletes messages and edits the user's last one, under its id.
    Edit(&'static [usize]),
    /// The same after it has gone back to a list.
    RegenerateIn(usize),
    EditIn(usize),
    /// Waits until the server has put the chat away.
    Rest,
    /// The same list, on a page that was loaded again after the server was.
    Restart,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chat_is_what_the_front_end_shows() {
    use Do::*;
    let scripts: &[(&str, &[Do])] = &[
        ("it goes on", &[GoOn, GoOn, GoOn]),
        (
            "an edit of the second message",
            &[GoOn, GoOn, Keep(2), GoOn],
        ),
        ("an edit further up", &[GoOn, GoOn, GoOn, Keep(2), GoOn]),
        (
            "the last answer is deleted",
            &[GoOn, Delete(1), GoOn, Delete(4)],
        ),
        (
            "one in the middle is deleted",
            &[GoOn, GoOn, Delete(1), GoOn, Delete(1)],
        ),
        (
            "a branch is switched",
            &[GoOn, GoOn, Keep(2), BackTo(2, 4), GoOn],
        ),
        (
            "and switched back",
            &[
                GoOn,
                GoOn,
                Keep(2),
                BackTo(2, 4),
                BackTo(3, 4),
                GoOn,
                BackTo(4, 6),
                GoOn,
            ],
        ),
        (
            "a branch that begins with an answer",
            &[GoOn, GoOn, Keep(1), BackTo(2, 2), GoOn],
        ),
        (
            "after a restart",
            &[GoOn, GoOn, Restart, Keep(2), Restart, BackTo(2, 4), Restart],
        ),
        (
            "an answer is deleted later",
            &[GoOn, GoOn, Rest, Delete(3), Delete(1)],
        ),
        (
            "edits of edits",
            &[
                GoOn,
                GoOn,
                Keep(2),
                Keep(2),
                Keep(2),
                GoOn,
                Keep(4),
                BackTo(2, 3),
            ],
        ),
        (
            "the last message gets a new answer",
            &[GoOn, GoOn, Regenerate(&[]), GoOn, Regenerate(&[])],
        ),
        (
            "an exchange is deleted, and the last message gets a new answer",
            &[GoOn, GoOn, GoOn, Regenerate(&[2, 2]), GoOn],
        ),
        (
            "an answer is deleted, and the last message gets a new answer",
            &[GoOn, GoOn, Regenerate(&[1]), GoOn],
        ),
        (
            "an exchange is deleted, and the last message edited",
            &[GoOn, GoOn, GoOn, Edit(&[2, 2]), GoOn],
        ),
        (
            "the first message is edited and the first text come back to",
            &[GoOn, Edit(&[]), BackTo(1, 2), BackTo(2, 2), GoOn],
        ),
        (
            "a text that was edited is come back to, and the other one again",
            &[GoOn, GoOn, Edit(&[]), BackTo(2, 4), BackTo(3, 4), GoOn],
        ),
        (
            "the same after restarts",
            &[
                GoOn,
                GoOn,
                Edit(&[]),
                Restart,
                BackTo(2, 4),
                Restart,
                BackTo(3, 4),
            ],
        ),
        (
            "without the answers",
            &[GoOn, GoOn, Edit(&[]), BackTo(2, 3), BackTo(3, 3), GoOn],
        ),
        (
            "texts of one message are edited and answered again in turn",
            &[
                GoOn,
                GoOn,
                Edit(&[]),
                RegenerateIn(2),
                EditIn(3),
                BackTo(2, 4),
                RegenerateIn(3),
                BackTo(4, 4),
                BackTo(7, 4),
            ],
        ),
    ];
    let stand_in = StandIn::start(|asked| events(answer(asked))).await;
    let mut bridge = gemini(&stand_in);
    // A page that loads the chat after every answer, and one that never does: its connection shows that it has read them.
    for (number, (name, script)) in scripts.iter().enumerate() {
        for loads in [true, false] {
            let mut page = Page::new(&format!("c{number}-{loads}"));
            page.keeps_connection = !loads;
            for (step, what) in script.iter().enumerate() {
                let sent = page.play(&mut bridge, *what, &stand_in).await;
                assert_eq!(sent, page.texts_before_the_answer(), "{name}, step {step}");
                if loads {
                    assert_eq!(
                        page.stored(&bridge).await,
                        page.shown,
                        "{name}, step {step}"
                    );
                }
            }
            assert_eq!(page.stored(&bridge).await, page.shown, "{name}");
        }
    }
}

/// A page with its list of messages, as `useChat` keeps it.
struct Page {
    chat: String,
    shown: Vec<Value>,
    /// The list after every message that was sent.
    lists: Vec<Vec<Value>>,
    /// As a browser does that asks the bridge itself.
    keeps_connection: bool,
    connection: Option<Connection>,
}

impl Page {
    fn new(chat: &str) -> Self {
        Self {
            chat: chat.to_owned(),
            shown: Vec::new(),
            lists: vec![Vec::new()],
            keeps_connection: false,
            connection: None,
        }
    }

    /// Does something, sends a new message, and returns what the model was sent.
    async fn play(&mut self, bridge: &mut Bridge, what: Do, stand_in: &StandIn) -> Vec<String> {
        let number = self.lists.len();
        let mut id = format!("u{number}");
        match what {
            Do::GoOn => {}
            Do::Keep(count) => self.shown.truncate(count),
            Do::Delete(index) => drop(self.shown.remove(index)),
            Do::BackTo(list, count) => self.shown = self.lists[list][..count].to_vec(),
            Do::RegenerateIn(list) | Do::EditIn(list) => self.shown.clone_from(&self.lists[list]),
            Do::Regenerate(deleted) | Do::Edit(deleted) => {
                for index in deleted {
                    self.shown.remove(*index);
                }
            }
            Do::Rest => rests(bridge).await,
            Do::Restart => {
                self.connection = None;
                bridge.kill_and_restart();
                assert_eq!(self.stored(bridge).await, self.shown);
            }
        }
        if let Do::Regenerate(_) | Do::Edit(_) | Do::RegenerateIn(_) | Do::EditIn(_) = what {
            let users = self.shown.iter().rposition(|it| it["role"] == "user");
            self.shown.truncate(users.unwrap() + 1);
        }
        if let Do::Edit(_) | Do::EditIn(_) = what {
            id = self.shown.pop().unwrap()["id"].as_str().unwrap().to_owned();
        }
        if !matches!(what, Do::Regenerate(_) | Do::RegenerateIn(_)) {
            self.shown.push(user(&id, &format!("question {number}")));
        }
        let events = self.send(bridge).await;
        self.shown.push(folded(&events));
        self.lists.push(self.shown.clone());
        texts_sent(stand_in.asked("streamGenerateContent").last().unwrap())
    }

    async fn send(&mut self, bridge: &Bridge) -> Vec<String> {
        let body = json!({"id": self.chat, "messages": self.shown, "trigger": "submit-message"})
            .to_string();
        let origin = format!("http://{}", bridge.address);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => bridge.connect().await,
        };
        let headers = [JSON, ("origin", &origin)];
        let sent = connection.request("POST", "/api/chat", &headers, body.as_bytes());
        assert!(sent.await);
        let mut answer = connection.answer("POST").await;
        let events = answer.events().await;
        if self.keeps_connection {
            self.connection = Some(answer.whole_and_connection().await.1);
        }
        events
    }

    async fn stored(&self, bridge: &Bridge) -> Vec<Value> {
        stored(bridge, &self.chat).await
    }

    fn texts_before_the_answer(&self) -> Vec<String> {
        let (_, before) = self.shown.split_last().unwrap();
        before.iter().map(text_of).collect()
    }
}

/// The server may not know what was read when it was killed: an answer is deleted only by those who have had it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_never_arrived_is_not_cut() {
    let bridge = Bridge::with("[demo]\npace = \"20ms\"\n", |command| {
        command.env("ADK_BRIDGE__DEMO__PACE", "20ms");
    });
    let question = user("u1", "long 2000");
    let body = json!({"id": CHAT, "messages": [question]}).to_string();
    let headers = [("content-type", "application/json")];
    let mut answer = bridge.open("POST", "/api/chat", &headers, &body).await;
    answer.event().await.unwrap();
    drop(answer);
    within(async {
        while !metrics(&bridge).await.contains("adk_bridge_readers 0") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let stop = format!("/api/chat/{CHAT}/stop");
    assert_eq!(bridge.send("POST", &stop, &[], "").await.status, 204);

    // It lacks the answer, and goes on without it, twice.
    let second = post(&bridge, &[question.clone(), user("u2", "say two")]).await;
    let third = [
        question.clone(),
        user("u2", "say two"),
        second.clone(),
        user("u3", "say three"),
    ];
    let third_answer = post(&bridge, &third).await;
    let ids = |messages: &[Value]| -> Vec<String> {
        let ids = messages
            .iter()
            .map(|message| message["id"].as_str().unwrap().to_owned());
        ids.collect()
    };
    let all = stored(&bridge, CHAT).await;
    let first = all[1].clone();
    assert!(text_of(&first).starts_with("word1"), "{first}");
    let expected = [
        question.clone(),
        first.clone(),
        user("u2", ""),
        second.clone(),
        user("u3", ""),
        third_answer,
    ];
    assert_eq!(ids(&all), ids(&expected));

    // It was listed just now: who lacks it from here on has deleted it.
    let fourth = post(&bridge, &[question.clone(), user("u4", "say four")]).await;
    let expected = [question, user("u4", ""), fourth];
    assert_eq!(ids(&stored(&bridge, CHAT).await), ids(&expected));
}

/// Something between may take an answer that its page never gets, and what it takes says nothing of the page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_on_the_way_is_not_cut() {
    let relays: [(&str, &[(&str, &str)]); 3] = [
        ("a relay that opens a connection for every request", &[]),
        ("a server that keeps its connection", &[]),
        (
            "a proxy that keeps its connection",
            &[("x-forwarded-for", "127.0.0.1")],
        ),
    ];
    for (name, headers) in relays {
        let stand_in = StandIn::start(|asked| events(answer(asked))).await;
        let bridge = gemini(&stand_in);
        let origin = format!("http://{}", bridge.address);
        let is_relay = name.starts_with("a relay");
        let browser = (is_relay || !headers.is_empty()).then_some(("origin", origin.as_str()));
        let headers: Vec<_> = headers.iter().copied().chain(browser).collect();
        let mut connection = bridge.connect().await;
        let mut list = Vec::new();
        let mut expected = Vec::new();
        for number in 1..=4 {
            let question = user(&format!("u{number}"), &format!("question {number}"));
            list.push(question);
            let body = json!({"id": CHAT, "messages": list}).to_string();
            let headers = [&headers[..], &[JSON]].concat();
            let sent = connection.request("POST", "/api/chat", &headers, body.as_bytes());
            assert!(sent.await);
            let mut answer = connection.answer("POST").await;
            let events = answer.events().await;
            let answered = folded(&events);
            connection = match is_relay {
                true => bridge.connect().await,
                false => answer.whole_and_connection().await.1,
            };
            // The first two never arrive, and the page writes on.
            expected.push(format!("question {number}"));
            let asked = stand_in.asked("streamGenerateContent");
            assert_eq!(
                texts_sent(asked.last().unwrap()),
                expected,
                "{name}, {number}"
            );
            expected.push(text_of(&answered));
            if number > 2 {
                list.push(answered);
            }
        }
        let shown: Vec<String> = stored(&bridge, CHAT).await.iter().map(text_of).collect();
        assert_eq!(shown, expected, "{name}");
    }
}

/// An answer that its page never had comes back with its question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_has_had_comes_back_with_its_branch() {
    for restarts in [false, true] {
        let stand_in = StandIn::start(|asked| events(answer(asked))).await;
        let mut bridge = gemini(&stand_in);
        let first = user("u1", "one");
        let one = post(&bridge, std::slice::from_ref(&first)).await;
        let begun = [first, one];
        let two = [&begun[..], &[user("u2", "two")]].concat();
        let two_answer = post(&bridge, &two).await;
        // It is cut off before the answer, and goes to the other branch and back.
        let three = [&begun[..], &[user("u3", "three")]].concat();
        post(&bridge, &three).await;
        let four = [&two[..], &[two_answer, user("u4", "four")]].concat();
        post(&bridge, &four).await;
        if restarts {
            bridge.kill_and_restart();
        }
        let five = [&three[..], &[user("u5", "five")]].concat();
        let five_answer = post(&bridge, &five).await;
        let expected = ["one", "answer to one", "three", "answer to three", "five"];
        let asked = stand_in.asked("streamGenerateContent");
        assert_eq!(texts_sent(asked.last().unwrap()), expected, "{restarts}");
        // Nobody has had it still.
        let six = [&five[..], &[five_answer, user("u6", "six")]].concat();
        post(&bridge, &six).await;
        let sent = texts_sent(stand_in.asked("streamGenerateContent").last().unwrap());
        assert_eq!(sent[3], "answer to three", "{sent:?}");
        let shown: Vec<String> = stored(&bridge, CHAT).await.iter().map(text_of).collect();
        assert_eq!(shown[..sent.len()], sent);
    }
}

/// Who deletes something and then approves what the model asks has deleted it for the model too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_deleted_before_an_approval_is_not_sent() {
    let stand_in = StandIn::start(|asked| events(paying(asked))).await;
    let toml = format!(
        "[agent]\nkind = \"gemini\"\napi_key_env = \"PATH\"\nbase_url = \"http://{}\"\ntools = [\"process_payment\"]\n",
        stand_in.address
    );
    let mut bridge = Bridge::configured(&toml);
    // What the page shows when it approves, and what the model is sent then.
    let cases: [(&[usize], &[usize]); 5] = [
        (&[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 4]),
        (&[0, 1, 4, 5], &[0, 1, 4]),
        (&[0, 2, 3, 4, 5], &[0, 2, 3, 4]),
        // The end of a long history, and a page that was only shown the question.
        (&[4, 5], &[0, 1, 2, 3, 4]),
        (&[0, 1, 2, 3, 5], &[0, 1, 2, 3, 4]),
    ];
    for (number, (kept, expected)) in cases.into_iter().enumerate() {
        for restarts in [false, true] {
            let mut page = Page::new(&format!("c{number}-{restarts}"));
            for text in ["one", "SECRET", "pay"] {
                page.shown.push(user(&format!("u-{text}"), text));
                let events = page.send(&bridge).await;
                page.shown.push(folded(&events));
            }
            let texts: Vec<String> = page.shown.iter().map(text_of).collect();
            assert_eq!(page.stored(&bridge).await, page.shown);
            if restarts {
                bridge.kill_and_restart();
            }
            let all = std::mem::take(&mut page.shown);
            page.shown = kept.iter().map(|index| all[*index].clone()).collect();
            let asked = page.shown.last_mut().unwrap();
            approve(asked);
            let id = asked["id"].clone();
            let events = page.send(&bridge).await;
            assert!(events.concat().contains("paid"), "{events:?}");
            let asked = stand_in.asked("streamGenerateContent");
            let asked = asked.last().unwrap();
            let expected: Vec<&str> = expected
                .iter()
                .map(|index| texts[*index].as_str())
                .collect();
            assert_eq!(texts_sent(asked), expected, "{kept:?}");
            assert!(asked.body.to_string().contains("functionResponse"));
            let shown = page.stored(&bridge).await;
            let shown_texts: Vec<String> = shown.iter().map(text_of).collect();
            assert_eq!(shown_texts[..shown.len() - 1], expected, "{kept:?}");
            assert_eq!(shown.last().unwrap()["id"], id, "{kept:?}");
            let audit = bridge.get(&format!("/api/audit?chat={}", page.chat)).await;
            let audit = audit.json().to_string();
            assert_eq!(audit.matches("tool.finished").count(), 1, "{audit}");
        }
    }
}

/// A question that is cut cannot be answered any more, not even when its branch comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_is_cut_stays_closed() {
    let bridge = Bridge::start();
    let first = user("u1", "say hello");
    let hello = post(&bridge, std::slice::from_ref(&first)).await;
    let pay = user(
        "u2",
        "call process_payment {\"amount\": 5, \"recipient\": \"Ann\"}",
    );
    let mut asked = post(&bridge, &[first.clone(), hello.clone(), pay.clone()]).await;
    let edited = [first.clone(), hello.clone(), user("u3", "say never mind")];
    let instead = post(&bridge, &edited).await;
    let shown = [first.clone(), hello.clone(), edited[2].clone(), instead];
    assert_eq!(stored(&bridge, CHAT).await, shown);

    let waiting = asked.clone();
    approve(&mut asked);
    let body = json!({"id": CHAT, "messages": [first.clone(), hello.clone(), pay.clone(), asked]});
    let refused = bridge.post("/api/chat", &body).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "conflict"));

    // Its branch again: the question is there, closed, and an approval that comes with it is none.
    let back = [
        first,
        hello,
        pay,
        body["messages"][3].clone(),
        user("u4", "say back"),
    ];
    post(&bridge, &back).await;
    let ids: Vec<_> = stored(&bridge, CHAT)
        .await
        .iter()
        .map(|it| it["id"].clone())
        .collect();
    assert_eq!(
        ids[..5],
        [
            "u1",
            back[1]["id"].as_str().unwrap(),
            "u2",
            waiting["id"].as_str().unwrap(),
            "u4"
        ]
    );
    post(&bridge, &[&back[..4], &[user("u5", "say again")]].concat()).await;
    let audit = bridge.get(&format!("/api/audit?chat={CHAT}")).await.json();
    let kinds: Vec<_> = audit
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["kind"].clone())
        .collect();
    assert_eq!(
        kinds[..2],
        ["approval.requested", "approval.superseded"],
        "{kinds:?}"
    );
    assert!(!kinds.contains(&json!("tool.started")), "{kinds:?}");
}

/// Requests that say nothing about the history leave it as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_alone_is_added() {
    let bridge = Bridge::start();
    let mut all = Vec::new();
    let earlier = |id: &str, role: &str| json!({"id": id, "role": role, "parts": [{"type": "text", "text": "x"}]});
    for (number, before) in [
        vec![],
        vec![],
        vec![earlier("greeting", "assistant")],
        vec![earlier("other", "user"), earlier("another", "assistant")],
    ]
    .into_iter()
    .enumerate()
    {
        let new = user(&format!("u{number}"), "say fine");
        let answer = post(&bridge, &[before, vec![new.clone()]].concat()).await;
        all.extend([new, answer]);
        let shown = stored(&bridge, CHAT).await;
        // The first request of a chat that is not known brings its history along.
        assert_eq!(shown, all, "{number}");
    }
    let alone = json!({"id": CHAT, "message": user("u9", "say fine")});
    assert_eq!(bridge.post("/api/chat", &alone).await.status, 200);
    assert_eq!(stored(&bridge, CHAT).await.len(), all.len() + 2);
}

/// A client that gives the assistant's messages ids of its own, or none, loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_the_client_s_own_cut_nothing() {
    for (user_id, assistant_id) in [("u", ""), ("", "a"), ("u", "mine")] {
        let stand_in = StandIn::start(|asked| events(answer(asked))).await;
        let bridge = gemini(&stand_in);
        let mut list = Vec::new();
        for number in 0..4 {
            let mut new = user(&format!("u{number}"), &format!("question {number}"));
            if user_id.is_empty() {
                new.as_object_mut().unwrap().remove("id");
            }
            list.push(new);
            let mut answer = post(&bridge, &list).await;
            match assistant_id {
                "" => drop(answer.as_object_mut().unwrap().remove("id")),
                "mine" => answer["id"] = json!(format!("mine{number}")),
                _ => {}
            }
            assert_eq!(
                texts_sent(stand_in.asked("streamGenerateContent").last().unwrap()),
                list.iter().map(text_of).collect::<Vec<_>>(),
                "{user_id:?} {assistant_id:?}"
            );
            list.push(answer);
        }
    }
}

/// A remote agent has the conversation in a session: it gets a new one, with the branch that is shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_agent_gets_the_branch_that_is_shown() {
    let stand_in = StandIn::start(well).await;
    let bridge = Bridge::configured(&stand_in.toml());
    let first = user("u1", "first");
    let one = post(&bridge, std::slice::from_ref(&first)).await;
    let left = [first.clone(), one.clone(), user("u2", "left")];
    let left_answer = post(&bridge, &left).await;
    post(&bridge, &[first.clone(), one.clone(), user("u3", "taken")]).await;
    let sessions = || {
        let made = stand_in.asked("/sessions");
        made.iter()
            .map(|asked| asked.body.to_string())
            .collect::<Vec<_>>()
    };
    let last = sessions().pop().unwrap();
    assert!(
        last.contains("\"first\"") && !last.contains("\"left\""),
        "{last}"
    );
    let back = [&left[..], &[left_answer, user("u4", "back")]].concat();
    post(&bridge, &back).await;
    let last = sessions().pop().unwrap();
    assert!(
        last.contains("\"left\"") && !last.contains("\"taken\""),
        "{last}"
    );
    assert_eq!(sessions().len(), 3);
}

fn gemini(stand_in: &StandIn) -> Bridge {
    let toml = format!(
        "[agent]\nkind = \"gemini\"\napi_key_env = \"PATH\"\nbase_url = \"http://{}\"\n",
        stand_in.address
    );
    // Any variable that a restart finds again.
    Bridge::configured(&toml)
}

/// Says yes to the payment that a message asks about.
fn approve(message: &mut Value) {
    let parts = message["parts"].as_array_mut().unwrap();
    let mut parts = parts.iter_mut();
    let tool = parts
        .find(|part| part["type"] == "tool-process_payment")
        .unwrap();
    assert_eq!(tool["state"], "approval-requested");
    tool["state"] = json!("approval-responded");
    tool["approval"]["approved"] = json!(true);
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

/// Sends messages and reads the answer to its end.
async fn post(bridge: &Bridge, messages: &[Value]) -> Value {
    let body = json!({"id": CHAT, "messages": messages}).to_string();
    let headers = [("content-type", "application/json")];
    let mut answer = bridge.open("POST", "/api/chat", &headers, &body).await;
    assert_eq!(answer.status, 200);
    folded(&answer.events().await)
}

async fn stored(bridge: &Bridge, chat: &str) -> Vec<Value> {
    let chat = bridge.get(&format!("/api/chats/{chat}")).await.json();
    chat["messages"].as_array().unwrap().clone()
}

async fn rests(bridge: &Bridge) {
    within(async {
        while !metrics(bridge).await.contains("adk_bridge_open_chats 0") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

async fn metrics(bridge: &Bridge) -> String {
    String::from_utf8(bridge.get("/metrics").await.body).unwrap()
}

/// Every text that the model was sent, in order.
fn texts_sent(asked: &ReceivedRequest) -> Vec<String> {
    let contents = asked.body["contents"].as_array().unwrap();
    let parts = contents
        .iter()
        .flat_map(|content| content["parts"].as_array().unwrap());
    parts
        .filter_map(|part| part["text"].as_str())
        .map(str::to_owned)
        .collect()
}

fn answer(asked: &ReceivedRequest) -> String {
    let text = format!("answer to {}", texts_sent(asked).pop().unwrap());
    let content = json!({"role": "model", "parts": [{"text": text}]});
    let chunk = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
    format!("data: {chunk}\n\n")
}

/// The same for a model that pays when it is asked to.
fn paying(asked: &ReceivedRequest) -> String {
    let contents = asked.body["contents"].as_array().unwrap();
    let part = match contents.last().unwrap()["parts"][0].clone() {
        part if part["text"] == "pay" => {
            let args = json!({"amount": 5, "recipient": "Ann"});
            json!({"functionCall": {"name": "process_payment", "args": args}})
        }
        part if part["functionResponse"].is_object() => json!({"text": "paid"}),
        _ => return answer(asked),
    };
    let content = json!({"role": "model", "parts": [part]});
    let chunk = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
    format!("data: {chunk}\n\n")
}
