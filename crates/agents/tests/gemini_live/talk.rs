//! Conversations: spoken and written, interrupted, and by a key.

use adk_bridge_demo::scripted_gemini::live::voice;

use super::*;

#[tokio::test]
async fn a_spoken_conversation() {
    let server = Server::start().await;
    let mut talk = server.open(MODEL, &setup(Modality::Audio, &[])).await;
    let mut sounded = Vec::new();
    for said in ["good morning", "ünï 日本語ですか"] {
        talk.say(&format!("say {said}")).await;
        talk.until("complete").await;
        sounded.extend(voice::sound(said));
    }
    let bytes: Vec<u8> = sounded.iter().flat_map(|it| it.to_le_bytes()).collect();
    // Words are spoken one by one: the tone starts again with each.
    assert_eq!(talk.audio.len(), bytes.len());
    assert_eq!(talk.words("spoke"), "good morningünï 日本語ですか");
    assert_eq!(talk.words("heard"), "say good morningsay ünï 日本語ですか");
    assert_eq!(
        talk.words("heard all"),
        "say good morningsay ünï 日本語ですか"
    );
}

#[tokio::test]
async fn what_is_heard_late_is_whole_all_the_same() {
    let server = Server::start().await;
    let mut talk = server.open(MODEL, &setup(Modality::Text, &[])).await;
    talk.say("say one two").await;
    let lines = talk.until("complete").await;
    assert_eq!(
        lines,
        [
            "heard: say one",
            "wrote: one",
            "heard: two",
            "wrote: two",
            "heard all: say one two",
            "complete"
        ]
    );
}

#[tokio::test]
async fn a_written_conversation() {
    let server = Server::start().await;
    for model in MODELS {
        let mut talk = server.open(model, &setup(Modality::Text, &[])).await;
        talk.send(LiveInput::Text("think deep then say one two"))
            .await;
        let said = match model {
            // It says something while it thinks, which completes nothing.
            THINKING_MODEL => "One moment. one two",
            _ => "one two",
        };
        assert_eq!(
            talk.until("complete").await,
            [&format!("{}: {said}", words_of(model)), "complete"]
        );
        assert!(talk.audio.is_empty());
        for (words, end) in [
            ("safety", "SAFETY"),
            ("blocked", "PROHIBITED_INPUT_CONTENT"),
        ] {
            talk.send(LiveInput::Text(words)).await;
            let lines = talk.until("complete").await;
            assert_eq!(lines.last().unwrap(), &format!("complete: {end}"));
        }
    }
}

#[tokio::test]
async fn a_model_that_only_speaks_is_read() {
    let server = Server::start().await;
    let model = "gemini-2.5-flash-native-audio";
    let mut talk = server.open(model, &setup(Modality::Text, &[])).await;
    assert_eq!(talk.connection.modality(), Modality::Audio);
    talk.send(LiveInput::Text("say in words")).await;
    assert_eq!(
        talk.until("complete").await,
        ["spoke: in words", "complete"]
    );
    assert!(talk.audio.is_empty());
}

#[tokio::test]
async fn speech_interrupts_speech() {
    let server = Server::start().await;
    let mut talk = server.open(MODEL, &setup(Modality::Audio, &[])).await;
    talk.send(LiveInput::Text("slow 500")).await;
    while !talk.words("spoke").contains("word3") {
        talk.read().await;
    }
    talk.say("say enough").await;
    talk.until("interrupted").await;
    let cut = talk.audio.len();
    talk.until("complete").await;
    assert_eq!(talk.audio.len(), cut, "nothing sounds after the cut");
    assert_eq!(
        talk.until("complete").await,
        [
            "heard: say",
            "audio",
            "spoke: enough",
            "heard: enough",
            "heard all: say enough",
            "complete"
        ]
    );
    assert!(!talk.words("spoke").contains("word500"));
}

#[tokio::test]
async fn explicit_activity() {
    let server = Server::start().await;
    let setup = LiveSetup {
        activity: Activity::Explicit,
        ..setup(Modality::Text, &[])
    };
    let mut talk = server.open(MODEL, &setup).await;
    talk.say("say unheard").await;
    talk.send(LiveInput::ActivityStart).await;
    talk.say("say held").await;
    talk.send(LiveInput::ActivityEnd).await;
    let lines = talk.until("complete").await;
    assert_eq!(lines.last(), Some(&"complete".to_owned()));
    assert_eq!(talk.words("wrote"), "held");
}

#[tokio::test]
async fn the_end_of_the_stream_and_pictures() {
    let server = Server::start().await;
    let mut talk = server.open(MODEL, &setup(Modality::Text, &[])).await;
    let video = LiveInput::Video {
        media_type: "image/jpeg",
        data: b"\xff\xd8jpeg",
    };
    talk.send(video).await;
    let samples = tones::speak("what is in the picture", 16_000);
    let bytes: Vec<u8> = samples.iter().flat_map(|it| it.to_le_bytes()).collect();
    talk.send(LiveInput::Audio(&bytes)).await;
    talk.send(LiveInput::AudioStreamEnd).await;
    talk.until("complete").await;
    assert_eq!(talk.words("wrote"), "I see 1 image: image/jpeg (6 bytes).");
}

#[tokio::test]
async fn history_is_known_and_answered_only_on_demand() {
    let server = Server::start().await;
    for model in MODELS {
        let said = |text: &str| vec![format!("{}: {text}", words_of(model)), "complete".into()];
        let known = LiveSetup {
            contents: vec![user("say old")],
            ..setup(Modality::Text, &[])
        };
        let mut talk = server.open(model, &known).await;
        talk.send(LiveInput::Text("say new")).await;
        assert_eq!(talk.until("complete").await, said("new"));
        let asked = LiveSetup {
            answer: true,
            ..known
        };
        let mut talk = server.open(model, &asked).await;
        assert_eq!(talk.until("complete").await, said("old"));
    }
}
