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

/// How many turns may wait to be written; a client that lags so far has no use for more.
const MAX_TURNS: usize = 16;

pub(super) struct Stream {
    /// `None` for a replay of what the client missed, which is not a turn.
    pub(super) turn: Option<u16>,
    pub(super) has_begun: bool,
    /// Whether its `[DONE]` has come.
    pub(super) is_done: bool,
    /// Whether a request of the client began it.
    pub(super) is_asked: bool,
    /// Whether the rest of it is not written.
    pub(super) is_dropped: bool,
    /// What has arrived next, if anything: a piece, or the end.
    held: Option<Option<Bytes>>,
    answer: Answer,
}

impl Stream {
    /// Whether its answer ended without a last chunk, because the chat goes on at another replica.
    pub(super) fn is_cut(&self) -> bool {
        self.answer.is_cut()
    }

    pub(super) fn of_turn(turn: u16, answer: Answer, is_asked: bool) -> Self {
        Self {
            turn: Some(turn),
            has_begun: false,
            is_done: false,
            is_asked,
            is_dropped: false,
            held: None,
            answer,
        }
    }

    pub(super) fn missed(answer: Answer) -> Self {
        Self {
            turn: None,
            ..Self::of_turn(0, answer, false)
        }
    }

    /// The message that the client has in full after the last piece.
    pub(super) fn whole_message(&self) -> Option<&MessageId> {
        self.answer.whole_message()
    }
}

/// The streams of a connection, in their order.
#[derive(Default)]
pub(super) struct Streams {
    queue: VecDeque<Stream>,
    /// Whether a client that sees only its own streams waits for one.
    awaits_own: bool,
}

impl Streams {
    /// Adds a stream; false if too many wait to be written.
    pub(super) fn push(&mut self, mut stream: Stream) -> bool {
        match stream.is_asked {
            true => self.awaits_own = false,
            false => stream.is_dropped = self.awaits_own,
        }
        if self.queue.len() >= MAX_TURNS {
            return false;
        }
        self.queue.push_back(stream);
        true
    }

    /// The stream that is being written.
    pub(super) fn first(&mut self) -> Option<&mut Stream> {
        self.queue.front_mut()
    }

    pub(super) fn end_first(&mut self) {
        self.queue.pop_front();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Ends, for a client that has just asked for a stream and sees no other, what began without it.
    pub(super) fn drop_unasked(&mut self) {
        for stream in self.queue.iter_mut().filter(|it| !it.is_asked) {
            stream.is_dropped = true;
        }
        self.awaits_own = !self.has_asked();
    }

    /// Whether a stream that the client asked for has not ended.
    pub(super) fn has_asked(&self) -> bool {
        self.queue.iter().any(|it| it.is_asked && !it.is_done)
    }

    /// Notes that the client gets no stream for its request.
    pub(super) fn note_refused(&mut self) {
        self.awaits_own = false;
    }

    /// Waits until the first stream has a piece or has ended. Cancel-safe.
    pub(super) async fn arrival(&mut self) {
        match self.queue.front_mut() {
            Some(stream) if stream.held.is_none() => stream.held = Some(stream.answer.recv().await),
            Some(_) => {}
            None => pending().await,
        }
    }

    /// What has arrived: a piece of the first stream, or its end.
    pub(super) fn arrived(&mut self) -> Option<Option<Bytes>> {
        self.queue.front_mut()?.held.take()
    }

    /// The next piece of this turn that was sent before the turn ended.
    pub(super) fn before_the_end(&mut self, turn: u16) -> Option<Bytes> {
        let stream = self.queue.front_mut().filter(|it| it.turn == Some(turn))?;
        if stream.held.is_none() {
            stream.held = stream.answer.try_recv().map(Some);
        }
        match &stream.held {
            Some(Some(piece)) if !piece.ends_with(sse::DONE) => stream.held.take().flatten(),
            _ => None,
        }
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
        let mut streams = Streams::default();
        assert!(streams.push(Stream::of_turn(3, answer, true)));
        assert_eq!(streams.before_the_end(2), None);
        streams.arrival().await;
        for piece in said {
            assert_eq!(streams.before_the_end(3), Some(piece));
        }
        assert_eq!(streams.before_the_end(3), None);
        streams.arrival().await;
        assert_eq!(streams.arrived(), Some(Some(end)));
        streams.arrival().await;
        assert_eq!(streams.before_the_end(3), None);
        assert_eq!(streams.arrived(), Some(None));
    }

    #[test]
    fn what_began_without_a_client_ends_with_its_request() {
        let stream = |is_asked| {
            let answer = Answer::for_tests(tokio::sync::mpsc::channel(1).1, &"m".into());
            Stream::of_turn(1, answer, is_asked)
        };
        let dropped = |streams: &Streams| -> Vec<bool> {
            streams.queue.iter().map(|it| it.is_dropped).collect()
        };
        let mut streams = Streams::default();
        streams.push(stream(false));
        streams.drop_unasked();
        // Under way while the request was.
        streams.push(stream(false));
        streams.push(stream(true));
        streams.push(stream(false));
        assert_eq!(dropped(&streams), [true, true, false, false]);
        // The answer to a second request continues the stream of the first.
        streams.drop_unasked();
        streams.push(stream(false));
        assert_eq!(dropped(&streams), [true, true, false, true, false]);
        let mut refused = Streams::default();
        refused.drop_unasked();
        refused.note_refused();
        refused.push(stream(false));
        assert_eq!(dropped(&refused), [false]);
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
