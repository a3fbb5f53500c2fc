//! The stream of one turn to a live connection: pieces of SSE, split into frames.

use std::collections::VecDeque;
use std::future::pending;

use adk_bridge_protocol::audio::MODEL_SAMPLE_RATE;
use adk_bridge_protocol::base64;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::wire::live::AudioWire;
use adk_bridge_protocol::wire::sse;
use bytes::Bytes;
use serde::Deserialize;

use crate::chat::readers::Answer;

pub(super) struct Stream {
    /// `None` for a replay of what the client missed, which is not a turn.
    pub(super) turn: Option<u16>,
    pub(super) has_begun: bool,
    /// Whether its `[DONE]` has been written.
    pub(super) is_done: bool,
    /// What has arrived next, if anything: a piece, or the end.
    held: Option<Option<Bytes>>,
    answer: Answer,
}

impl Stream {
    pub(super) fn of_turn(turn: u16, answer: Answer) -> Self {
        Self {
            turn: Some(turn),
            has_begun: false,
            is_done: false,
            held: None,
            answer,
        }
    }

    pub(super) fn missed(answer: Answer) -> Self {
        Self {
            turn: None,
            ..Self::of_turn(0, answer)
        }
    }

    /// The message that the client has in full after the last piece.
    pub(super) fn whole_message(&self) -> Option<&MessageId> {
        self.answer.whole_message()
    }
}

/// Waits until the first stream has a piece or has ended. Cancel-safe.
pub(super) async fn arrival(streams: &mut VecDeque<Stream>) {
    match streams.front_mut() {
        Some(stream) if stream.held.is_none() => stream.held = Some(stream.answer.recv().await),
        Some(_) => {}
        None => pending().await,
    }
}

/// What has arrived: a piece of the first stream, or its end.
pub(super) fn arrived(streams: &mut VecDeque<Stream>) -> Option<Option<Bytes>> {
    streams.front_mut()?.held.take()
}

/// The next piece of this turn that was sent before the turn ended.
pub(super) fn before_the_end(streams: &mut VecDeque<Stream>, turn: u16) -> Option<Bytes> {
    let stream = streams.front_mut().filter(|it| it.turn == Some(turn))?;
    if stream.held.is_none() {
        stream.held = stream.answer.try_recv().map(Some);
    }
    match &stream.held {
        Some(Some(piece)) if !piece.ends_with(sse::DONE) => stream.held.take().flatten(),
        _ => None,
    }
}

/// One event, ready to be written.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    Chunk(Bytes),
    /// A piece of speech; `pcm` if it is sent as a binary frame.
    Audio {
        turn: u16,
        event: Bytes,
        pcm: Option<Vec<u8>>,
    },
    Done(Bytes),
}

/// The events of a piece, which contains only whole ones; comments are dropped, since the connection has pings.
pub(super) fn events(piece: &Bytes, wire: AudioWire) -> impl Iterator<Item = Event> {
    let mut rest = piece.clone();
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = find(&rest, b"\n\n").map_or(rest.len(), |at| at + 2);
            let event = rest.split_to(end);
            if event.starts_with(b":") {
                continue;
            }
            return Some(match audio_of(&event, wire) {
                Some(audio) => audio,
                None if event == sse::DONE => Event::Done(event),
                None => Event::Chunk(event),
            });
        }
        None
    })
}

const AUDIO: &[u8] = b"data: {\"type\":\"data-pcm\"";

fn audio_of(event: &Bytes, wire: AudioWire) -> Option<Event> {
    #[derive(Deserialize)]
    struct Pcm<'a> {
        #[serde(borrow)]
        data: Data<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data<'a> {
        chunk: &'a str,
        sample_rate: u32,
        turn: u32,
    }
    if !event.starts_with(AUDIO) {
        return None;
    }
    let Pcm { data } = serde_json::from_slice(event.get(b"data: ".len()..)?).ok()?;
    // A binary frame does not name its sample rate.
    let fits = wire == AudioWire::Binary && data.sample_rate == MODEL_SAMPLE_RATE;
    Some(Event::Audio {
        turn: (data.turn % (u32::from(u16::MAX) + 1)) as u16,
        pcm: fits.then(|| base64::decode(data.chunk).ok()).flatten(),
        event: event.clone(),
    })
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_falls_into_its_events_and_loses_only_comments() {
        let piece = Bytes::from_static(
            b"data: {\"type\":\"start\"}\n\n: keep-alive\n\ndata: {\"type\":\"data-pcm\",\"data\":{\"chunk\":\"AAEC/w==\",\
              \"sampleRate\":24000,\"turn\":65537},\"transient\":true}\n\ndata: [DONE]\n\n",
        );
        for (wire, pcm) in [
            (AudioWire::Json, None),
            (AudioWire::Binary, Some(vec![0, 1, 2, 255])),
        ] {
            let found: Vec<Event> = events(&piece, wire).collect();
            assert_eq!(
                found[0],
                Event::Chunk(Bytes::from_static(b"data: {\"type\":\"start\"}\n\n"))
            );
            assert!(
                matches!(&found[1], Event::Audio { turn: 1, pcm: found, .. } if *found == pcm),
                "{found:?}"
            );
            assert_eq!(found[2], Event::Done(Bytes::from_static(sse::DONE)));
            assert_eq!(found.len(), 3);
        }
    }

    #[tokio::test]
    async fn text_before_an_interruption_is_separate_from_the_end() {
        let (sink, answer) = tokio::sync::mpsc::channel(4);
        let said = [b"one", b"two"].map(|it| Bytes::from_static(it));
        let end = Bytes::from_static(b"data: {}\n\ndata: [DONE]\n\n");
        for piece in said.iter().chain([&end]) {
            assert!(sink.try_send(piece.clone()).is_ok());
        }
        drop(sink);
        let answer = Answer::for_tests(answer, &"m".into());
        let mut streams = VecDeque::from([Stream::of_turn(3, answer)]);
        assert_eq!(before_the_end(&mut streams, 2), None);
        arrival(&mut streams).await;
        for piece in said {
            assert_eq!(before_the_end(&mut streams, 3), Some(piece));
        }
        assert_eq!(before_the_end(&mut streams, 3), None);
        arrival(&mut streams).await;
        assert_eq!(arrived(&mut streams), Some(Some(end)));
        arrival(&mut streams).await;
        assert_eq!(before_the_end(&mut streams, 3), None);
        assert_eq!(arrived(&mut streams), Some(None));
    }

    #[test]
    fn audio_of_another_rate_stays_json() {
        let event = Bytes::from_static(
            b"data: {\"type\":\"data-pcm\",\"data\":{\"chunk\":\"AAE=\",\"sampleRate\":16000,\"turn\":1},\"transient\":true}\n\n",
        );
        let found: Vec<Event> = events(&event, AudioWire::Binary).collect();
        assert!(
            matches!(&found[0], Event::Audio { pcm: None, .. }),
            "{found:?}"
        );
    }
}
