//! JSON that is still arriving: the same values as the AI SDK makes of it, and no text that breaks the reader.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::message::partial_json::{parse, repair};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What `parsePartialJson` of v6 and of v7 returns.
#[test]
fn as_the_ai_sdk_reads_it() {
    for (text, v6, v7) in [
        ("", None, None),
        ("{", Some(json!({})), Some(json!({}))),
        (r#"{""#, Some(json!({})), Some(json!({}))),
        (r#"{"a"#, Some(json!({})), Some(json!({}))),
        (r#"{"a""#, Some(json!({})), Some(json!({}))),
        (r#"{"a":"#, Some(json!({})), Some(json!({}))),
        (r#"{"a": 1"#, Some(json!({"a":1})), Some(json!({"a":1}))),
        (r#"{"a": 1,"#, Some(json!({"a":1})), Some(json!({"a":1}))),
        (r#"{"a": 1, "b"#, Some(json!({"a":1})), Some(json!({"a":1}))),
        (r#"{"a": 12."#, Some(json!({"a":12})), Some(json!({"a":12}))),
        (r#"{"a": -"#, Some(json!({})), Some(json!({}))),
        (r#"{"a": 1e"#, Some(json!({"a":1})), Some(json!({"a":1}))),
        (
            r#"{"a": tr"#,
            Some(json!({"a":true})),
            Some(json!({"a":true})),
        ),
        (
            r#"{"a": "x"#,
            Some(json!({"a":"x"})),
            Some(json!({"a":"x"})),
        ),
        (
            r#"{"a": "x\"#,
            Some(json!({"a":"x"})),
            Some(json!({"a":"x"})),
        ),
        (
            r#"{"a": "x\u12"#,
            Some(json!({"a":"x"})),
            Some(json!({"a":"x"})),
        ),
        (
            r#"{"a": "x\u00e9"#,
            Some(json!({"a":"xé"})),
            Some(json!({"a":"xé"})),
        ),
        (
            r#"{"a": "\n"#,
            Some(json!({"a":"\n"})),
            Some(json!({"a":"\n"})),
        ),
        ("[", Some(json!([])), Some(json!([]))),
        ("[ ", Some(json!([])), Some(json!([]))),
        ("[-", None, Some(json!([]))),
        ("[-1", Some(json!([-1])), Some(json!([-1]))),
        ("[1", Some(json!([1])), Some(json!([1]))),
        ("[1,", Some(json!([1])), Some(json!([1]))),
        ("[1, ", Some(json!([1])), Some(json!([1]))),
        ("[[", Some(json!([[]])), Some(json!([[]]))),
        ("[[-", None, Some(json!([[]]))),
        (
            r#"[{"a":["#,
            Some(json!([{"a":[]}])),
            Some(json!([{"a":[]}])),
        ),
        (r#"["a""#, Some(json!(["a"])), Some(json!(["a"]))),
        (r#"["a" "#, Some(json!(["a"])), Some(json!(["a"]))),
        (r#"["a" x"#, None, None),
        ("[true", Some(json!([true])), Some(json!([true]))),
        ("[nul", Some(json!([null])), Some(json!([null]))),
        ("[1é", Some(json!([1])), Some(json!([1]))),
        ("[1😀", None, None),
        ("tru", Some(json!(true)), Some(json!(true))),
        ("n", Some(json!(null)), Some(json!(null))),
        ("-", None, None),
        ("12", Some(json!(12)), Some(json!(12))),
        ("12.", Some(json!(12)), Some(json!(12))),
        (r#""abc"#, Some(json!("abc")), Some(json!("abc"))),
        (r#""abc"x"#, Some(json!("abc")), Some(json!("abc"))),
        ("nope", None, None),
        (r#"{"a": 1}}"#, Some(json!({"a":1})), Some(json!({"a":1}))),
        ("{'a'", Some(json!({})), Some(json!({}))),
        (r#"{"__proto__": 1"#, None, None),
        (r#"[{"constructor": {"prototype": 1"#, None, None),
        (r#"{"a": 01"#, None, None),
        (
            r#"{"a\"b": 1"#,
            Some(json!({"a\"b":1})),
            Some(json!({"a\"b":1})),
        ),
        ("[,", None, Some(json!([]))),
        (r#"{"a": +"#, Some(json!({})), Some(json!({}))),
    ] {
        for (sdk, expected) in [(Sdk::V6, v6), (Sdk::V7, v7)] {
            // The printed form, as JavaScript does not tell 12 from 12.0.
            let found = parse(text, sdk).map(|value| value.to_string());
            assert_eq!(
                found,
                expected.map(|value: Value| value.to_string()),
                "{text} ({sdk:?})"
            );
        }
    }
}

#[test]
fn half_a_surrogate_pair_is_a_replacement_character() {
    for (text, expected) in [
        (r#"{"a": "\ud83d"#, "\u{fffd}"),
        (r#"{"a": "\ud83d\ude0"#, "\u{fffd}"),
        (r#"{"a": "\ud83d\ude00"#, "😀"),
        (r#"{"a": "\ude00\\ud83d"}"#, "\u{fffd}\\ud83d"),
        (r#"{"a": "\uD83D\uD83D\uDE00"}"#, "\u{fffd}😀"),
    ] {
        assert_eq!(
            parse(text, Sdk::V7),
            Some(json!({"a": expected}).into()),
            "{text}"
        );
    }
}

#[test]
fn what_serde_json_cannot_hold_has_no_value() {
    assert_eq!(parse("1e999", Sdk::V7), None);
    for open in ["[", "{\"a\":", "[{\"a\":["] {
        assert_eq!(parse(&open.repeat(100_000), Sdk::V7), None);
    }
    assert_eq!(
        parse(&"[".repeat(100), Sdk::V7).unwrap().to_string(),
        "[".repeat(100) + &"]".repeat(100)
    );
}

proptest! {
    #[test]
    fn any_text_has_a_value_or_none(text in ".{0,60}", odd in r#"[\[\]{}",:\\u0-9aeE+.tfn -]{0,40}"#) {
        for text in [text, odd] {
            for sdk in [Sdk::V6, Sdk::V7] {
                if let Some(value) = parse(&text, sdk) {
                    prop_assert_eq!(parse(&value.to_string(), sdk), Some(value));
                }
                let repaired = repair(&text, sdk);
                prop_assert!(repaired.len() <= 2 * text.len() + 4);
            }
        }
    }

    /// A streamed value only ever grows: what is seen early is a beginning of what comes.
    #[test]
    fn every_beginning_of_an_object_has_a_value(words in prop::collection::vec("[a-z\"\\\\é😀]{0,5}", 1..5)) {
        let value = json!({"words": words});
        let text = value.to_string();
        for (end, char) in text.char_indices() {
            let early = parse(&text[..end + char.len_utf8()], Sdk::V7).unwrap();
            let seen: Vec<Value> = early.to_value()["words"].as_array().cloned().unwrap_or_default();
            prop_assert!(seen.len() <= words.len());
            for (seen, word) in seen.iter().zip(&words) {
                prop_assert!(word.starts_with(seen.as_str().unwrap()));
            }
        }
        prop_assert_eq!(parse(&text, Sdk::V6), Some(value.into()));
    }
}
