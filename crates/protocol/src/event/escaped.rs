//! Reads the text of a part: borrowed where it can be, in one allocation where it holds escapes.
//!
//! Half of a pair of surrogates, which a server that cuts text by UTF-16 units leaves behind, becomes U+FFFD: it must
//! not cost the user the answer.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use crate::chunk::Str;

pub(super) fn text<'de: 'a, 'a, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Str<'a>>, D::Error> {
    let raw = <&'a RawValue>::deserialize(from)?.get();
    if raw == "null" {
        return Ok(None);
    }
    let inner = raw
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or_else(|| de::Error::custom("the text of a part must be a string"))?;
    Ok(Some(unescape(inner)))
}

/// The text of a JSON string, given without its quotes. The string has been checked.
pub(super) fn unescape(json: &str) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', json.as_bytes()) else {
        return Cow::Borrowed(json);
    };
    let mut text = String::with_capacity(json.len());
    let (mut plain, mut rest) = json.split_at(first);
    loop {
        text.push_str(plain);
        let Some(escape) = rest.strip_prefix('\\') else {
            return Cow::Owned(text);
        };
        let (char, after) = escaped(escape);
        text.push(char);
        let next = memchr::memchr(b'\\', after.as_bytes()).unwrap_or(after.len());
        (plain, rest) = after.split_at(next);
    }
}

/// The character behind a backslash, and what follows it.
fn escaped(escape: &str) -> (char, &str) {
    let mut chars = escape.chars();
    let char = match chars.next() {
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('u') => return unicode(chars.as_str()),
        Some(itself) => itself,
        None => char::REPLACEMENT_CHARACTER,
    };
    (char, chars.as_str())
}

fn unicode(digits: &str) -> (char, &str) {
    let Some((high, after)) = unit(digits) else {
        return (char::REPLACEMENT_CHARACTER, digits);
    };
    let low = after.strip_prefix("\\u").and_then(unit);
    if let Some((low, behind)) = low
        && let Some(Ok(char)) = char::decode_utf16([high, low]).next()
        && char.len_utf16() == 2
    {
        return (char, behind);
    }
    let char = char::from_u32(u32::from(high)).unwrap_or(char::REPLACEMENT_CHARACTER);
    (char, after)
}

fn unit(digits: &str) -> Option<(u16, &str)> {
    let (digits, after) = digits.split_at_checked(4)?;
    Some((u16::from_str_radix(digits, 16).ok()?, after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::unescape;

    #[test]
    fn halves_of_pairs_are_replaced() {
        for (json, text) in [
            (r"\ud83d\ude00", "😀"),
            (r"a\ud83db", "a\u{fffd}b"),
            (r"\ude00", "\u{fffd}"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
            (r"\ud83d\n", "\u{fffd}\n"),
            (r"\u00e9\/\\", "é/\\"),
        ] {
            assert_eq!(unescape(json), text, "{json}");
        }
    }

    proptest! {
        #[test]
        fn reads_what_serde_reads(pieces in prop::collection::vec(piece(), 0..12)) {
            let json = pieces.concat();
            if let Ok(text) = serde_json::from_str::<String>(&format!("\"{json}\"")) {
                prop_assert_eq!(unescape(&json), text);
            }
        }
    }

    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-zé素😀 ]{0,9}",
            r#"\\["\\/bfnrt]"#,
            r"\\u[0-9a-fA-F]{4}",
            Just(r"\ud83d\ude00".to_owned()),
        ]
    }
}
