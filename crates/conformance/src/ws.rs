//! Frames for and from AI SDK v7's own WebSocket transport, to check the real client against ours.
//!
//! Each line of `write` is `{name, requests: [{kind, chunks, ends, errorText?}], frames, closes?}`. The client chooses its
//! request ids, so the frames carry `request-0`, `request-1` in the order of `requests`.

use std::path::Path;
use std::process::ExitCode;

use adk_bridge_protocol::wire::Trigger;
use adk_bridge_protocol::wire::ai_sdk_ws::{self, ClientFrame};
use serde_json::{Value, json};

pub(crate) fn write(file: &Path) -> anyhow::Result<()> {
    let lines: Vec<String> = cases().iter().map(|case| format!("{case}\n")).collect();
    std::fs::write(file, lines.concat())?;
    Ok(())
}

/// Reads one frame of the client per line, and reports whether each is understood completely.
pub(crate) fn check(file: &Path) -> anyhow::Result<ExitCode> {
    Ok(verdict(&std::fs::read_to_string(file)?))
}

/// All answers that a server may give, with what the client must make of them.
fn cases() -> Vec<Value> {
    let all = every_chunk();
    let text = |id: &str| -> Vec<Value> {
        ["one", "two", "three"]
            .map(|delta| json!({"type": "text-delta", "id": id, "delta": delta}))
            .into()
    };
    let (a, b) = (text("a"), text("b"));
    let alternating = turn(0, &a, 1)
        .into_iter()
        .zip(turn(1, &b, 1))
        .flat_map(|(one, two)| [one, two])
        .collect();
    let reason = "the model said \"no\"\n(id 7)";
    let failed = |kind| {
        case(
            "an error fails its request",
            vec![json!({"kind": kind, "chunks": a, "ends": "error", "errorText": reason})],
            [
                turn(0, &a, 1)[..=a.len()].to_vec(),
                vec![written(|out| {
                    ai_sdk_ws::error(out, &request(0), reason);
                })],
            ]
            .concat(),
        )
    };
    let refused = r#"{"type":"send","requestId":"request-0","id":"c","messages":[],"body":[]}"#;
    let mut gap = case(
        "a gap in the sequence closes the socket",
        vec![
            json!({"kind": "send", "chunks": &a[..1], "ends": "error", "errorText": "Out-of-order WebSocket chat chunk sequence."}),
        ],
        turn(0, &a, 2),
    );
    gap["closes"] = json!(1011);
    vec![
        case("a turn", vec![ends("send", &all)], turn(0, &all, 1)),
        case(
            "a resumed turn",
            vec![ends("resume", &all)],
            turn(0, &all, 1),
        ),
        case("an empty turn", vec![ends("send", &[])], turn(0, &[], 1)),
        case(
            "a resumed turn without a start",
            vec![ends("resume", &a)],
            turn(0, &a, 1)[1..].to_vec(),
        ),
        case(
            "two turns alternate on one socket",
            vec![ends("send", &a), ends("resume", &b)],
            alternating,
        ),
        failed("send"),
        failed("resume"),
        case(
            "nothing to resume",
            vec![json!({"kind": "resume", "chunks": [], "ends": "null"})],
            vec![written(|out| ai_sdk_ws::no_active(out, &request(0)))],
        ),
        case(
            "a refused frame fails its request",
            vec![json!({
                "kind": "send", "chunks": [], "ends": "error",
                "errorText": "\"body\" of the send frame is an array; send an object",
            })],
            ClientFrame::parse(refused)
                .err()
                .map(|refused| {
                    let request_id = refused.request_id.as_deref().unwrap_or_default();
                    written(|out| ai_sdk_ws::error(out, request_id, &refused.to_string()))
                })
                .into_iter()
                .collect(),
        ),
        // Guards the check itself: the client refuses what its protocol forbids.
        gap,
    ]
}

fn case(name: &str, requests: Vec<Value>, frames: Vec<String>) -> Value {
    json!({"name": name, "requests": requests, "frames": frames})
}

fn ends(kind: &str, chunks: &[Value]) -> Value {
    json!({"kind": kind, "chunks": chunks, "ends": "end"})
}

/// The frames of a whole turn, its sequence numbers `step` apart.
fn turn(number: usize, chunks: &[Value], step: usize) -> Vec<String> {
    let id = request(number);
    let mut frames = vec![written(|out| ai_sdk_ws::start(out, &id))];
    for (sequence, chunk) in (0..).step_by(step).zip(chunks) {
        let json = chunk.to_string();
        frames.push(written(|out| {
            ai_sdk_ws::chunk(out, &id, sequence, json.as_bytes());
        }));
    }
    frames.push(written(|out| ai_sdk_ws::end(out, &id)));
    frames
}

fn request(number: usize) -> String {
    format!("request-{number}")
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Chunks of every kind, with text that needs escaping.
fn every_chunk() -> Vec<Value> {
    vec![
        json!({"type": "start", "messageId": "m1", "messageMetadata": {"model": "x"}}),
        json!({"type": "start-step"}),
        json!({"type": "reasoning-start", "id": "r1"}),
        json!({"type": "reasoning-delta", "id": "r1", "delta": "hm"}),
        json!({"type": "reasoning-end", "id": "r1"}),
        json!({"type": "text-start", "id": "t1"}),
        json!({"type": "text-delta", "id": "t1", "delta": "line\nquote \" back \\ request-1 \u{3042}\u{1f600}\u{2028}\u{0} end"}),
        json!({"type": "text-end", "id": "t1", "providerMetadata": {"google": {"signature": "x"}}}),
        json!({"type": "tool-input-start", "toolCallId": "c1", "toolName": "process_payment"}),
        json!({"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": "{\"amount\":"}),
        json!({"type": "tool-input-available", "toolCallId": "c1", "toolName": "process_payment", "input": {"amount": 50.25}}),
        json!({"type": "tool-input-error", "toolCallId": "c2", "toolName": "x", "input": null, "errorText": "no"}),
        json!({"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"}),
        json!({"type": "tool-approval-response", "approvalId": "a1", "approved": true}),
        json!({"type": "tool-output-available", "toolCallId": "c1", "output": null}),
        json!({"type": "tool-output-error", "toolCallId": "c2", "errorText": "no"}),
        json!({"type": "tool-output-denied", "toolCallId": "c3"}),
        json!({"type": "file", "url": "/api/files/1", "mediaType": "image/png"}),
        json!({"type": "source-url", "sourceId": "s1", "url": "https://example.com/"}),
        json!({"type": "data-pcm", "data": {"chunk": "AAA=", "sampleRate": 24000, "turn": 1}, "transient": true}),
        json!({"type": "message-metadata", "messageMetadata": {"tokens": 1}}),
        json!({"type": "finish-step"}),
        json!({"type": "finish", "finishReason": "stop"}),
    ]
}

/// Reads each frame and compares the result with its text.
fn verdict(frames: &str) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for (index, line) in frames.lines().enumerate() {
        let problem = match ClientFrame::parse(line) {
            Ok(frame)
                if serde_json::from_str::<Value>(line).is_ok_and(|sent| sent == seen(&frame)) =>
            {
                passed += 1;
                continue;
            }
            Ok(frame) => format!("read as {}", seen(&frame)),
            Err(refused) => format!("{}: {refused}", refused.code()),
        };
        failed += 1;
        println!("line {}: {problem}\n    {line}", index + 1);
    }
    println!("ws: {passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0 || passed == 0))
}

/// The frame as the client would have written it, without absent fields.
fn seen(frame: &ClientFrame) -> Value {
    let mut seen = match frame {
        ClientFrame::Send(send) => json!({
            "type": "send", "requestId": send.request_id, "id": send.id,
            "trigger": Trigger::NAMES.iter().find(|(_, trigger)| *trigger == send.trigger).map(|(name, _)| name),
            "messageId": send.message_id, "messages": send.messages,
            "headers": send.headers.map(), "body": send.body.map(), "metadata": send.metadata,
        }),
        ClientFrame::Resume(resume) => json!({
            "type": "resume", "requestId": resume.request_id, "id": resume.id,
            "lastSequence": resume.last_sequence,
            "headers": resume.headers.map(), "body": resume.body.map(), "metadata": resume.metadata,
        }),
        ClientFrame::Abort { request_id } => json!({"type": "abort", "requestId": request_id}),
    };
    if let Some(fields) = seen.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    seen
}
