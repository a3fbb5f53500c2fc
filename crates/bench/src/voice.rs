//! The cost of speech: the memory of a live connection, and the CPU for a second of audio in both directions.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_tungstenite::tungstenite::Message;

use crate::server::{Kind, Model, Server, Socket, open_live};

/// Enough connections to make shared memory negligible.
const IDLE: usize = 400;
const VOICES: usize = 20;
const SECONDS: u32 = 10;
/// 20 ms of silence, with the header of a microphone frame.
const FRAME: [u8; 8 + 640] = {
    let mut frame = [0; 8 + 640];
    frame[0] = 1;
    frame
};
/// Sixteen letters: a second of the scripted voice.
const WORDS: &str = "say about one second";

pub(crate) async fn measure() -> anyhow::Result<()> {
    let model = Model::start()?;
    let server = Server::start(&Kind::Bridge, model.address)?;
    open_live(server.address, "warm").await?.close(None).await?;
    settle().await;
    let empty = server.resident()?;
    let mut sockets = Vec::new();
    for number in 0..IDLE {
        sockets.push(open_live(server.address, &format!("idle-{number}")).await?);
    }
    settle().await;
    let idle = server.resident()?;
    for socket in sockets.iter_mut().take(VOICES) {
        for frame in [
            json!({"type": "audio_config", "wire": "binary"}),
            json!({"type": "modality", "modality": "audio"}),
        ] {
            socket.send(Message::text(frame.to_string())).await?;
        }
    }
    settle().await;
    let listening = server.resident()?;
    let before = server.cpu()?;
    let voices = sockets.drain(..VOICES).map(|it| tokio::spawn(talk(it)));
    let mut bytes = 0;
    for voice in voices.collect::<Vec<_>>() {
        bytes += voice.await??;
    }
    let spent = server.cpu()? - before;
    let kilobytes = |megabytes: f64, count: usize| megabytes * 1024.0 / count as f64;
    println!(
        "idle connection          {:>8.1} kB",
        kilobytes(idle - empty, IDLE)
    );
    println!(
        "open upstream, besides   {:>8.1} kB",
        kilobytes(listening - idle, VOICES)
    );
    println!(
        "two-way audio            {:>8.2} ms of CPU per second and connection ({:.1} s of speech came back in {SECONDS} s)",
        spent / 1e3 / f64::from(SECONDS) / VOICES as f64,
        bytes as f64 / 48_000.0 / VOICES as f64,
    );
    Ok(())
}

/// Sends audio at the pace of a microphone and makes the model speak one second in every second. Returns how much it
/// spoke.
async fn talk(mut socket: Socket) -> anyhow::Result<usize> {
    let mut frames = interval(Duration::from_millis(20));
    frames.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut words = interval(Duration::from_secs(1));
    words.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A message that is sent too early would cut off the answer to the last one.
    let mut waits = false;
    let end = Instant::now() + Duration::from_secs(SECONDS.into());
    let message = json!({"type": "message", "messages": [
        {"role": "user", "parts": [{"type": "text", "text": WORDS}]},
    ]});
    let message = message.to_string();
    let mut spoken = 0;
    while Instant::now() < end {
        tokio::select! {
            _ = frames.tick() => socket.send(Message::binary(FRAME.to_vec())).await?,
            _ = words.tick(), if !waits => {
                waits = true;
                socket.send(Message::text(message.clone())).await?;
            }
            received = socket.next() => match received {
                Some(Ok(Message::Binary(audio))) => spoken += audio.len().saturating_sub(8),
                Some(Ok(Message::Text(text))) => waits &= !text.contains("\"turn-end\""),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => anyhow::bail!("the server closed a connection"),
            },
        }
    }
    Ok(spoken)
}

/// Waits until the server is idle, before its memory is read.
async fn settle() {
    sleep(Duration::from_secs(2)).await;
}
