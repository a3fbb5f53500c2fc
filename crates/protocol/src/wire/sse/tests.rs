//! The SSE parser: what it reads, whole and cut at any position, and that it stays within its bound.

use proptest::prelude::*;

use super::*;

#[test]
fn reads_events() {
    /// Input, data of the events, rest at the end.
    type Case<'a> = (&'a [u8], &'a [&'a str], Option<&'a [u8]>);
    let cases: &[Case<'_>] = &[
        (b"", &[], None),
        (b"data: a\n\n", &["a"], None),
        (b"data:a\n\n", &["a"], None),
        (b"data:  a \n\n", &[" a "], None),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"], None),
        (b"data: a\r\rdata: b\r\r", &["a", "b"], None),
        (b"data: a\n\r\ndata: b\r\n\n", &["a", "b"], None),
        (b"\xef\xbb\xbfdata: a\n\n", &["a"], None),
        (b"\xef\xbb\xbf\ndata: a\n\n", &["a"], None),
        (b"\n\xef\xbb\xbfdata: a\n\ndata: b\n\n", &["b"], None),
        (
            b"data: a\ndata: b\ndata:\ndata: c\n\n",
            &["a\nb\n\nc"],
            None,
        ),
        (b"data: a\n: comment\ndata: b\n\n", &["a\nb"], None),
        (b"data\ndata\n\n", &["\n"], None),
        (b"data:\n\n", &[""], None),
        (b": keep-alive\n\ndata: a\n\n", &["a"], None),
        (b"id: 1\nretry: 5\nevent: x\ndata: a\n\n", &["a"], None),
        (b"database: x\nfoo\n\ndata: a\n\n", &["a"], None),
        (b"event: x\n\ndata: a\n\n", &["a"], None),
        ("data: あ\n\n".as_bytes(), &["あ"], None),
        (b"data: [DONE]\n\n", &["[DONE]"], None),
        (b"data: a\n\n: bye", &["a"], None),
        (b"\xef\xbb\xbf", &[], None),
        (b"data: a\n\ndata: b\n", &["a"], Some(b"b")),
        (b"data: a\n\ndata: b\ndata: c", &["a"], Some(b"b\nc")),
        (b"data:\ndata: c", &[], Some(b"\nc")),
        (b"data: a\n\ndat", &["a"], Some(b"")),
        (b"data: \xe3\x81", &[], Some(b"\xe3\x81")),
        (b"data: a\n: c", &[], Some(b"a")),
        (b"event: x\n", &[], Some(b"")),
    ];
    for (input, events, left) in cases {
        let label = String::from_utf8_lossy(input);
        let read = read(&[input], 1_000);
        let texts: Vec<&str> = read.events.iter().map(|event| event.0.as_str()).collect();
        assert_eq!(&texts, events, "{label:?}");
        assert_eq!(
            read.end.map(|left| left.map(|(data, _)| data)),
            Ok(left.map(<[u8]>::to_vec)),
            "{label:?}"
        );
    }
}

#[test]
fn tells_name_and_offset() {
    let read = read(&[b"event: one\ndata: a\n\n: c\ndata: b\n\nevent: t"], 1_000);
    assert_eq!(
        read.events,
        [
            ("a".into(), "one".into(), 11),
            ("b".into(), String::new(), 24)
        ]
    );
    assert_eq!(read.end, Ok(Some((Vec::new(), 33))));
}

#[test]
fn a_name_without_data_does_not_reach_the_next_event() {
    let one = read(&[b"event: one\n\ndata: a\n\n"], 1_000);
    assert_eq!(one.events, [("a".into(), String::new(), 12)]);
    let cut = read(&[b"data: a\n\nevent: one\nid: 1\nre"], 1_000);
    assert_eq!(cut.end, Ok(Some((Vec::new(), 9))));
}

#[test]
fn borrows_from_the_input() {
    let input = b"data: {\"a\":1}\n\n: c\ndata: {}\r\n\r\n";
    let mut parser = SseParser::default();
    let mut rest = &input[..];
    let mut count = 0;
    while let Some(event) = parser.next(&mut rest).unwrap() {
        assert!(input.as_ptr_range().contains(&event.data.as_ptr()));
        count += 1;
    }
    assert_eq!(count, 2);
    assert_eq!(parser.lines.capacity(), 0);
}

#[test]
fn an_event_can_be_taken_without_the_rest_of_its_piece() {
    let mut parser = SseParser::default();
    let mut rest = &b"data: a\n\ndata: b\n\ndata"[..];
    assert_eq!(parser.next(&mut rest).unwrap().unwrap().data, "a");
    assert_eq!(rest, b"data: b\n\ndata");
    assert_eq!(parser.next(&mut rest).unwrap().unwrap().data, "b");
    assert_eq!(parser.next(&mut rest), Ok(None));
    assert!(rest.is_empty());
}

#[test]
fn refuses_and_stays_closed() {
    let name = format!("event:{}\n", "n".repeat(MAX_NAME_BYTES + 1));
    let cases: &[(&[u8], usize, SseError)] = &[
        (
            b"data: 12345\n\n",
            10,
            SseError::TooLong { limit: 10, at: 10 },
        ),
        (b"data: 12345", 10, SseError::TooLong { limit: 10, at: 10 }),
        (
            b"\ndata: 1\ndata: 12345\n\n",
            11,
            SseError::TooLong { limit: 11, at: 19 },
        ),
        (
            b": a long comment\n",
            10,
            SseError::TooLong { limit: 10, at: 10 },
        ),
        (b"data: \xff\n\n", 100, SseError::NotUtf8 { at: 6 }),
        (
            b"data: a\ndata:b\xe3\x81\n\n",
            100,
            SseError::NotUtf8 { at: 14 },
        ),
        (
            b"\xef\xbb\xbfdata: \xff\n\n",
            100,
            SseError::NotUtf8 { at: 9 },
        ),
        (
            name.as_bytes(),
            1_000,
            SseError::TooLong {
                limit: MAX_NAME_BYTES,
                at: 262,
            },
        ),
    ];
    for (input, limit, error) in cases {
        let label = String::from_utf8_lossy(input);
        assert_eq!(read(&[input], *limit).end, Err(*error), "{label:?}");
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(
            read(&bytes, *limit).end,
            Err(*error),
            "{label:?} byte by byte"
        );

        let mut parser = SseParser::new(*limit);
        assert_eq!(parser.next(&mut &input[..]), Err(*error));
        assert_eq!(parser.next(&mut &b"data: a\n\n"[..]), Err(*error));
        assert_eq!(parser.finish(), Err(*error));
    }
    let mut parser = SseParser::default();
    assert_eq!(parser.finish(), Ok(Ending::Complete));
    assert_eq!(
        parser.next(&mut &b"data: a\n\n"[..]),
        Err(SseError::Finished)
    );
}

#[test]
fn a_large_event_does_not_hold_its_memory() {
    let mut parser = SseParser::default();
    let big = vec![b'x'; 1_000_000];
    assert_eq!(parser.next(&mut &b"data: "[..]), Ok(None));
    assert_eq!(parser.next(&mut &big[..]), Ok(None));
    let mut rest = &b"\n\ndata: b\n\n"[..];
    assert_eq!(
        parser.next(&mut rest).unwrap().unwrap().data.len(),
        big.len()
    );
    assert_eq!(parser.next(&mut rest).unwrap().unwrap().data, "b");
    assert_eq!(parser.lines.capacity(), 0);
}

#[test]
fn what_is_written_is_read() {
    let mut out = Vec::new();
    frame(&mut out, b"{\"type\":\"start\"}");
    out.extend_from_slice(KEEP_ALIVE);
    out.extend_from_slice(DONE);
    assert_eq!(
        out,
        b"data: {\"type\":\"start\"}\n\n: keep-alive\n\ndata: [DONE]\n\n"
    );
    let read = read(&[&out], 100);
    assert_eq!(read.events.len(), 2);
    assert_eq!(read.end, Ok(None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn events_do_not_depend_on_how_the_input_is_cut(
        input in stream(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        limit in prop_oneof![1usize..40, Just(1_000)],
    ) {
        let whole = read(&[&input], limit);
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(&read(&bytes, limit), &whole);
        prop_assert_eq!(&read(&cut(&input, &cuts), limit), &whole);
    }

    #[test]
    fn encoded_json_comes_back(
        values in proptest::collection::vec(".{0,40}", 0..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let json: Vec<String> = values.iter().map(|value| serde_json::json!(value).to_string()).collect();
        let mut out = Vec::new();
        for json in &json {
            frame(&mut out, json.as_bytes());
        }
        let read = read(&cut(&out, &cuts), 1_000);
        let texts: Vec<String> = read.events.into_iter().map(|event| event.0).collect();
        prop_assert_eq!(texts, json);
        prop_assert_eq!(read.end, Ok(None));
    }

    #[test]
    fn any_bytes_stay_within_the_bound(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20),
        limit in 0usize..100,
    ) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        read(&pieces, limit);
    }
}

/// Everything that a parser returned for a stream.
#[derive(Debug, PartialEq)]
struct Read {
    events: Vec<(String, String, u64)>,
    /// The rest of a truncated event, or why reading stopped.
    end: Result<Option<(Vec<u8>, u64)>, SseError>,
}

fn read(pieces: &[&[u8]], limit: usize) -> Read {
    let mut parser = SseParser::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let event = parser.next(&mut rest).map(|event| {
                event.map(|event| (event.data.to_owned(), event.name.to_owned(), event.at))
            });
            assert!(parser.lines.capacity() <= limit);
            assert!(parser.name.len() <= MAX_NAME_BYTES);
            match event {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    return Read {
                        events,
                        end: Err(error),
                    };
                }
            }
        }
        assert!(rest.is_empty());
    }
    let end = parser.finish().map(|ending| match ending {
        Ending::Complete => None,
        Ending::Truncated { data, at } => Some((data.to_vec(), at)),
    });
    Read { events, end }
}

fn cut<'a>(input: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
    ends.push(input.len());
    ends.sort_unstable();
    let mut start = 0;
    ends.into_iter()
        .map(|end| &input[std::mem::replace(&mut start, end)..end])
        .collect()
}

/// Streams that are mostly well formed, with everything that makes line splitting hard.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(&b"data: "[..]),
        2 => Just(&b"data:"[..]),
        1 => Just(&b"data"[..]),
        1 => Just(&b"event: "[..]),
        1 => Just(&b": "[..]),
        4 => Just(&b"\n"[..]),
        3 => Just(&b"\n\n"[..]),
        3 => Just(&b"\r\n"[..]),
        2 => Just(&b"\r"[..]),
        3 => Just(&b"{\"text\":\"x\"}"[..]),
        2 => Just("\u{3042}\u{1f600}".as_bytes()),
        1 => Just(&b"\xef\xbb\xbf"[..]),
        1 => Just(&b"\xff"[..]),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}
