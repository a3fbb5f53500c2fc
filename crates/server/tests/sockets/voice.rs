//! Spoken conversations: exact audio both ways, transcripts, tools and approvals by voice, interruption, recordings.

use std::time::Duration;

use adk_bridge_demo::scripted_gemini::live::{tones, voice};
use adk_bridge_protocol::base64;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::client::{BINARY, Client, FIN, TEXT};
use crate::support::{Bridge, text_of, within};

/// What a turn brought, from its start to its end.
#[derive(Debug, Default)]
pub struct Turn {
    pub number: u64,
    pub chunks: Vec<Value>,
    pub pcm: Vec<u8>,
    pub interrupted: bool,
    done: usize,
}

impl Turn {
    pub fn of(&self, kind: &str) -> Vec<&Value> {
        let chunks = self.chunks.iter();
        chunks.filter(|chunk| chunk["type"] == kind).collect()
    }

    /// What was said, as text.
    pub fn text(&self) -> String {
        let deltas = self.of("text-delta");
        deltas
            .iter()
            .map(|it| it["delta"].as_str().unwrap())
            .collect()
    }

    /// What was heard, all of it.
    pub fn heard(&self) -> String {
        let shown = self.of("data-transcription");
        let whole = shown.iter().rev().find(|it| it["data"]["final"] == true);
        whole.map_or_else(String::new, |it| {
            it["data"]["text"].as_str().unwrap().to_owned()
        })
    }

    pub fn last(&self) -> &str {
        self.chunks.last().unwrap()["type"].as_str().unwrap()
    }
}

/// Reads one turn, whatever its audio travels in.
pub async fn turn(client: &mut Client) -> Turn {
    let mut turn = Turn::default();
    let mut began = false;
    loop {
        let frame = client.message().await;
        if frame.head == FIN | BINARY {
            assert_eq!(frame.payload[0], 2, "model speech");
            let number = u16::from_le_bytes([frame.payload[2], frame.payload[3]]);
            assert_eq!(u64::from(number), turn.number);
            turn.pcm.extend_from_slice(&frame.payload[8..]);
            continue;
        }
        assert_eq!(frame.head, FIN | TEXT, "{frame:?}");
        let text = String::from_utf8(frame.payload).unwrap();
        match text.strip_prefix("data: ") {
            Some("[DONE]\n\n") => turn.done += 1,
            Some(event) => {
                let chunk: Value = serde_json::from_str(event.trim_end()).unwrap();
                assert!(began, "{chunk} outside of a turn");
                if chunk["type"] == "data-pcm" {
                    assert_eq!(chunk["data"]["turn"], turn.number);
                    assert_eq!(chunk["data"]["sampleRate"], 24_000);
                    let pcm = chunk["data"]["chunk"].as_str().unwrap();
                    turn.pcm.extend(base64::decode(pcm).unwrap());
                } else {
                    turn.chunks.push(chunk);
                }
            }
            None => {
                let control: Value = serde_json::from_str(&text).unwrap();
                match control["type"].as_str().unwrap() {
                    "turn-start" => {
                        began = true;
                        turn.number = control["turn"].as_u64().unwrap();
                    }
                    "turn-end" => {
                        assert_eq!(control["turn"], turn.number);
                        assert_eq!(turn.done, 1, "one [DONE] for one turn");
                        return turn;
                    }
                    "interrupted" => {
                        assert_eq!(control["turn"], turn.number);
                        turn.interrupted = true;
                    }
                    "modality" => {}
                    _ => panic!("{control}"),
                }
            }
        }
    }
}

/// Speaks, in frames of 20 ms, and is silent for long enough.
pub async fn speak(client: &mut Client, text: &str) {
    microphone(client, &utterance(text)).await;
}

/// The same, as fast as people speak.
pub async fn speak_like_people(client: &mut Client, text: &str) {
    record(client, &utterance(text), Duration::from_millis(20)).await;
}

fn utterance(text: &str) -> Vec<i16> {
    let mut samples = tones::speak(text, 16_000);
    samples.extend([0; 16 * 600]);
    samples
}

async fn microphone(client: &mut Client, samples: &[i16]) {
    record(client, samples, Duration::ZERO).await;
}

async fn record(client: &mut Client, samples: &[i16], pace: Duration) {
    let begin = Instant::now();
    for (sequence, piece) in (0_u32..).zip(samples.chunks(320)) {
        sleep_until(begin + pace * sequence).await;
        let mut frame = vec![1, 0, 0, 0];
        frame.extend(sequence.to_le_bytes());
        frame.extend(piece.iter().flat_map(|sample| sample.to_le_bytes()));
        assert!(client.frame(FIN | BINARY, &frame).await);
    }
}

/// What the scripted model sounds like when it says this.
pub fn sound(text: &str) -> Vec<u8> {
    text.split_inclusive(' ')
        .flat_map(voice::sound)
        .flat_map(i16::to_le_bytes)
        .collect()
}

pub async fn answer(client: &mut Client, question: &Value, approved: bool) {
    let status = if approved { "approved" } else { "rejected" };
    client
        .send(json!({
            "type": "tool_result",
            "toolCallId": question["toolCallId"],
            "status": status,
        }))
        .await;
}

pub async fn audit(bridge: &Bridge, chat: &str) -> Vec<String> {
    let rows = bridge.get(&format!("/api/audit?chat={chat}")).await.json();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row["kind"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_whole_conversation_by_voice() {
    let bridge = Bridge::start();
    for wire in ["binary", "json"] {
        let chat = format!("voice-{wire}");
        let mut client = Client::open(&bridge, &format!("/live?chat={chat}")).await;
        client
            .send(json!({"type": "audio_config", "wire": wire}))
            .await;
        for (number, said) in ["good morning to you", "and goodbye"].iter().enumerate() {
            speak_like_people(&mut client, &format!("say {said}")).await;
            let turn = turn(&mut client).await;
            assert_eq!(turn.number, number as u64 + 1);
            assert_eq!(turn.heard(), format!("say {said}"));
            assert_eq!(turn.text(), *said);
            assert!(turn.pcm == sound(said), "{} samples", turn.pcm.len() / 2);
            assert_eq!(turn.last(), "finish");
        }
        let messages = bridge.get(&format!("/api/chats/{chat}")).await.json();
        let messages = messages["messages"].as_array().unwrap();
        let texts: Vec<_> = messages
            .iter()
            .map(|it| (it["role"].as_str().unwrap(), text_of(it)))
            .collect();
        assert_eq!(
            texts,
            [
                ("user", "say good morning to you".to_owned()),
                ("assistant", "good morning to you".to_owned()),
                ("user", "say and goodbye".to_owned()),
                ("assistant", "and goodbye".to_owned()),
            ]
        );
        // Both sides are kept as they sounded.
        for (message, bytes) in [
            (&messages[0], None),
            (&messages[1], Some(sound("good morning to you"))),
        ] {
            let parts = message["parts"].as_array().unwrap();
            let file = parts.iter().find(|part| part["type"] == "file").unwrap();
            assert_eq!(file["mediaType"], "audio/wav");
            let wav = bridge.get(file["url"].as_str().unwrap()).await.body;
            assert_eq!(&wav[..4], b"RIFF");
            if let Some(bytes) = bytes {
                assert!(wav[44..] == bytes);
            }
        }
    }
}

#[tokio::test]
async fn tools_and_approvals_by_voice() {
    // The second generation sends the last word after the call has been made.
    for (approved, model) in [(true, "gemini-live-2.5-flash"), (false, "gemini-3.8-live")] {
        let toml = format!("[agent]\nlive_model = \"{model}\"\n");
        let bridge = Bridge::with(&toml, |_| {});
        let chat = format!("pay-{approved}");
        let mut client = Client::open(&bridge, &format!("/live?chat={chat}")).await;
        speak(&mut client, "what is the weather in Tokyo").await;
        let weather = turn(&mut client).await;
        assert_eq!(weather.of("tool-output-available").len(), 1);
        assert!(weather.text().contains("Tokyo"), "{}", weather.text());
        assert!(!weather.pcm.is_empty());

        speak(&mut client, "pay Hanako 50 dollars").await;
        let asks = turn(&mut client).await;
        let question = asks.of("tool-approval-request")[0].clone();
        assert_eq!(asks.last(), "finish");
        answer(&mut client, &question, approved).await;
        let paid = turn(&mut client).await;
        let settled = if approved {
            "tool-output-available"
        } else {
            "tool-output-denied"
        };
        assert_eq!(paid.of(settled).len(), 1, "{:?}", paid.chunks);
        let expected = if approved {
            "Paid 50 USD to Hanako."
        } else {
            "You declined"
        };
        assert!(paid.text().contains(expected), "{}", paid.text());
        let heard = if approved { paid.heard() } else { asks.heard() };
        assert_eq!(heard, "pay Hanako 50 dollars");
        assert!(!paid.pcm.is_empty());
        let started = audit(&bridge, &chat).await;
        let started = started
            .iter()
            .filter(|kind| *kind == "tool.started")
            .count();
        assert_eq!(started, 1 + usize::from(approved));
    }
}

/// Several calls of one step: tools without approval run at once, each question is answered separately, and the model
/// hears of all of it together.
#[tokio::test]
async fn several_calls_by_voice() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=several").await;
    let pay = |to: &str| format!("call process_payment {{\"amount\": 5, \"recipient\": \"{to}\"}}");
    let words = format!("call roll_dice && {} && {}", pay("Ken"), pay("Mia"));
    client
        .send(json!({"type": "modality", "modality": "audio"}))
        .await;
    client.say(&words).await;
    let asks = turn(&mut client).await;
    let questions: Vec<Value> = asks
        .of("tool-approval-request")
        .into_iter()
        .cloned()
        .collect();
    assert_eq!(questions.len(), 2);
    assert_eq!(asks.of("tool-output-available").len(), 1);
    answer(&mut client, &questions[1], false).await;
    let denied = turn(&mut client).await;
    assert_eq!(denied.of("tool-output-denied").len(), 1, "{denied:?}");
    assert!(denied.pcm.is_empty(), "the other question is still open");
    answer(&mut client, &questions[0], true).await;
    let paid = turn(&mut client).await;
    assert_eq!(paid.of("tool-output-available").len(), 1, "{paid:?}");
    assert!(!paid.pcm.is_empty());
    assert!(paid.text().contains("Ken"), "{}", paid.text());
    let stored = bridge.last_message("several").await;
    assert!(
        stored["metadata"]["usage"]["totalTokens"].as_u64() > Some(0),
        "{stored}"
    );
}

#[tokio::test]
async fn recordings_are_kept_only_where_they_are_wanted() {
    let bridge = Bridge::configured("[live]\nkeep_recordings = false\n");
    let mut client = Client::open(&bridge, "/live?chat=unkept").await;
    speak(&mut client, "say hello").await;
    assert!(turn(&mut client).await.pcm == sound("hello"));
    let chat = bridge.get("/api/chats/unkept").await.json();
    let messages = chat["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    for message in messages {
        let parts = message["parts"].as_array().unwrap();
        assert!(parts.iter().all(|part| part["type"] != "file"), "{message}");
    }
}

#[tokio::test]
async fn speech_interrupts_speech() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=cut").await;
    speak(&mut client, "slow 60").await;
    // The first words are there: the model speaks.
    loop {
        let frame = client.message().await;
        if String::from_utf8_lossy(&frame.payload).contains("word2") {
            break;
        }
    }
    let mut samples = tones::speak("say enough", 16_000);
    samples.extend([0; 16 * 600]);
    // The beginning of a word is enough: nothing waits for more of it.
    let (beginning, rest) = samples.split_at(16 * 100);
    microphone(&mut client, beginning).await;
    let mut after = Vec::new();
    let mut interrupted = false;
    within(async {
        loop {
            let text = String::from_utf8(client.message().await.payload).unwrap();
            interrupted |= text.contains("\"type\":\"interrupted\"");
            if interrupted {
                after.push(text.clone());
            }
            if text.contains("\"turn-end\"") {
                break;
            }
        }
    })
    .await;
    assert!(interrupted);
    microphone(&mut client, rest).await;
    assert!(
        after
            .iter()
            .all(|it| !it.contains("data-pcm") && !it.contains("text-delta"))
    );
    let shown = |word: &str| after.iter().position(|it| it.contains(word));
    assert!(
        shown("\"ended\":\"interrupted\"") < shown("\"finish\""),
        "{after:?}"
    );
    let next = turn(&mut client).await;
    assert_eq!(
        (next.heard().as_str(), next.text().as_str()),
        ("say enough", "enough")
    );
    assert!(next.pcm == sound("enough"));
    // What was cut is marked for whoever loads the chat later, and nothing else is.
    let ended = |message: &Value| message["metadata"]["ended"].clone();
    let messages = bridge.get("/api/chats/cut").await.json();
    let messages = messages["messages"].as_array().unwrap();
    let answers: Vec<_> = messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(ended(answers[0]), "interrupted");
    let cut = text_of(answers[0]);
    assert!(cut.starts_with("word") && !cut.contains("word59"), "{cut}");
    assert_eq!(ended(answers[1]), Value::Null);
}

#[tokio::test]
async fn written_words_go_to_whoever_listens() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=mixed").await;
    client.say("say written first").await;
    let first = turn(&mut client).await;
    assert!(first.pcm.is_empty(), "the ordinary agent answers");
    speak(&mut client, "say spoken").await;
    assert!(turn(&mut client).await.pcm == sound("spoken"));
    client.say("say written again").await;
    let again = turn(&mut client).await;
    assert_eq!(again.text(), "written again");
    assert!(again.pcm == sound("written again"));
    // Over HTTP the ordinary agent answers, and the model that listens hears of it.
    let over_http = bridge.ask("mixed", "say over http").await.events().await;
    assert!(over_http.iter().all(|event| !event.contains("data-pcm")));
    speak(&mut client, "say and back").await;
    let back = turn(&mut client).await;
    assert!(back.pcm == sound("and back"));
}

#[tokio::test]
async fn a_key_is_held_to_speak() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=key").await;
    for said in ["one", "two"] {
        client
            .send(json!({"type": "audio_control", "action": "start"}))
            .await;
        // A pause in the middle does not end what is said with the key held.
        let mut samples = vec![0; 16 * 1_000];
        samples.extend(tones::speak(&format!("say {said}"), 16_000));
        microphone(&mut client, &samples).await;
        client
            .send(json!({"type": "audio_control", "action": "stop"}))
            .await;
        let turn = turn(&mut client).await;
        assert_eq!(turn.text(), said);
    }
    speak(&mut client, "say hands free").await;
    assert_eq!(turn(&mut client).await.text(), "hands free");
}

#[tokio::test]
async fn answers_are_spoken_or_written_as_the_user_likes() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=modes").await;
    // Written while the model's connection is being opened.
    client
        .send(json!({"type": "modality", "modality": "audio"}))
        .await;
    client.say("say at once").await;
    assert!(turn(&mut client).await.pcm == sound("at once"));
    speak(&mut client, "say aloud").await;
    assert!(turn(&mut client).await.pcm == sound("aloud"));
    client
        .send(json!({"type": "modality", "modality": "text"}))
        .await;
    speak(&mut client, "say in writing").await;
    let written = turn(&mut client).await;
    assert_eq!(written.text(), "in writing");
    assert!(written.pcm.is_empty());
    client
        .send(json!({"type": "modality", "modality": "audio"}))
        .await;
    speak(&mut client, "say aloud again").await;
    assert!(turn(&mut client).await.pcm == sound("aloud again"));
}

/// Two questions wait at the same time, and a page that loads the chat finds both.
#[tokio::test]
async fn questions_that_speech_left_open_are_shown_as_open() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=two").await;
    for name in ["Hanako", "Taro"] {
        speak(&mut client, &format!("pay {name} 50 dollars")).await;
        assert_eq!(turn(&mut client).await.of("tool-approval-request").len(), 1);
    }
    for (dialect, asks) in [
        ("native", "tool-process_payment"),
        ("adk", "tool-adk_request_confirmation"),
    ] {
        let path = format!("/api/chats/two?dialect={dialect}");
        let chat = bridge.get(&path).await.json();
        let messages = chat["messages"].as_array().unwrap().iter();
        let open = messages
            .flat_map(|message| message["parts"].as_array().unwrap())
            .filter(|part| part["type"] == asks && part["state"] == "approval-requested");
        assert_eq!(open.count(), 2, "{dialect}: {chat:#}");
    }
}

/// Speech does not take back a question: the conversation goes on, and the answer lands in the older message. A written
/// message takes it back.
#[tokio::test]
async fn speech_leaves_a_question_open() {
    let mut bridge = Bridge::start();
    for restarts in [false, true] {
        let chat = format!("open-{restarts}");
        let mut client = Client::open(&bridge, &format!("/live?chat={chat}")).await;
        speak(&mut client, "pay Hanako 50 dollars").await;
        let asks = turn(&mut client).await;
        let question = asks.of("tool-approval-request")[0].clone();
        for said in ["meanwhile", "and on"] {
            speak(&mut client, &format!("say {said}")).await;
            assert_eq!(turn(&mut client).await.text(), said);
        }
        if restarts {
            bridge.kill_and_restart();
            client = Client::open(&bridge, &format!("/live?chat={chat}")).await;
            speak(&mut client, "say back again").await;
            assert_eq!(turn(&mut client).await.text(), "back again");
        }
        answer(&mut client, &question, true).await;
        let paid = turn(&mut client).await;
        assert!(
            paid.text().contains("Paid 50 USD to Hanako."),
            "{}",
            paid.text()
        );
        assert!(!paid.pcm.is_empty());
        assert_eq!(
            paid.of("start")[0]["messageId"],
            asks.of("start")[0]["messageId"]
        );
        speak(&mut client, "say once more").await;
        assert_eq!(turn(&mut client).await.text(), "once more");
        let rows = audit(&bridge, &chat).await;
        assert!(
            !rows.contains(&"approval.superseded".to_owned()),
            "{rows:?}"
        );
        assert_eq!(
            rows.iter().filter(|kind| *kind == "tool.started").count(),
            1
        );

        speak(&mut client, "pay Hanako 20 dollars").await;
        turn(&mut client).await;
        speak(&mut client, "say hm").await;
        turn(&mut client).await;
        client.say("say never mind").await;
        assert_eq!(turn(&mut client).await.text(), "never mind");
        let rows = audit(&bridge, &chat).await;
        assert!(rows.contains(&"approval.superseded".to_owned()), "{rows:?}");
    }
}

/// What is written, or a wish for silence, while the model speaks: it stops, and says nothing of the old turn again.
#[tokio::test]
async fn a_speaking_model_is_cut_short() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=short").await;
    for interrupts in [true, false] {
        speak(&mut client, "slow 60").await;
        loop {
            let frame = client.message().await;
            if String::from_utf8_lossy(&frame.payload).contains("word2") {
                break;
            }
        }
        if interrupts {
            client.send(json!({"type": "interrupt"})).await;
        } else {
            client.say("say written").await;
        }
        loop {
            let frame = client.message().await;
            if String::from_utf8_lossy(&frame.payload).contains("turn-end") {
                break;
            }
        }
        if interrupts {
            speak(&mut client, "say spoken").await;
        }
        let next = turn(&mut client).await;
        let said = if interrupts { "spoken" } else { "written" };
        assert_eq!(next.text(), said);
        assert!(next.pcm == sound(said), "the same model answers");
    }
}
