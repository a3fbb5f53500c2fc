//! Measures what reading one event costs, whole and cut in two.

use adk_bridge_protocol::wire::sse::{SseParser, frame};
use divan::{Bencher, black_box, counter::ItemsCount};

fn main() {
    divan::main();
}

const EVENTS: usize = 1_000;
const EVENT_BYTES: usize = 400;

/// Events as they arrive in production: one socket read each.
#[divan::bench(args = [0, EVENT_BYTES / 2], sample_count = 200)]
fn one_event(bencher: Bencher, cut_at: usize) {
    let mut event = Vec::new();
    frame(&mut event, &[b'x'; EVENT_BYTES - 8]);
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        let mut parser = SseParser::default();
        let mut bytes = 0;
        for _ in 0..EVENTS {
            let (head, tail) = black_box(&event).split_at(cut_at);
            let pieces = [head, tail];
            for mut piece in pieces.into_iter().skip(usize::from(cut_at == 0)) {
                while let Ok(Some(event)) = parser.next(&mut piece) {
                    bytes += event.data.len();
                }
            }
        }
        bytes
    });
}

/// Many events in one piece, as in a flood.
#[divan::bench(sample_count = 200)]
fn many_events_in_one_piece(bencher: Bencher) {
    let mut body = Vec::new();
    for _ in 0..EVENTS {
        frame(&mut body, &[b'x'; EVENT_BYTES - 8]);
    }
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        let mut parser = SseParser::default();
        let mut piece = black_box(&body[..]);
        let mut bytes = 0;
        while let Ok(Some(event)) = parser.next(&mut piece) {
            bytes += event.data.len();
        }
        bytes
    });
}

/// What every reader pays: finding the line's end and checking its characters.
#[divan::bench(sample_count = 200)]
fn search_and_utf8_alone(bencher: Bencher) {
    let mut event = Vec::new();
    frame(&mut event, &[b'x'; EVENT_BYTES - 8]);
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        let mut bytes = 0;
        for _ in 0..EVENTS {
            let line = black_box(&event[..]);
            let end = memchr::memchr(b'\n', line).unwrap_or(0);
            bytes += std::str::from_utf8(&line[6..end]).map_or(0, str::len);
        }
        bytes
    });
}
