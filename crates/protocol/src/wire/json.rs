//! JSON as browsers write it, half characters included.
//!
//! A JavaScript string may hold one half of a surrogate pair, where somebody cut an emoji in two. `JSON.stringify` writes it
//! as an escape, which `serde_json` refuses; it is read as U+FFFD, which is what a browser shows for it.

use serde_json::Value;

/// Reads one JSON value.
pub fn read(json: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(json).or_else(|error| match whole_characters(json) {
        Some(json) => serde_json::from_slice(&json),
        None => Err(error),
    })
}

/// The text with U+FFFD in the place of every half that stands alone; nothing where there is none.
fn whole_characters(json: &[u8]) -> Option<Vec<u8>> {
    let mut whole: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += match (byte, code_unit(json, at)) {
            (b'\\', Some(0xD800..=0xDBFF))
                if matches!(code_unit(json, at + ESCAPE), Some(0xDC00..=0xDFFF)) =>
            {
                2 * ESCAPE
            }
            (b'\\', Some(0xD800..=0xDFFF)) => {
                let whole = whole.get_or_insert_with(|| json.to_vec());
                whole[at..at + ESCAPE].copy_from_slice(b"\\ufffd");
                ESCAPE
            }
            // Another escape, such as that of a backslash: what follows is no beginning.
            (b'\\', _) => 2,
            _ => 1,
        };
    }
    whole
}

/// The length of `\uXXXX`.
const ESCAPE: usize = 6;

fn code_unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_characters_are_replaced_and_nothing_else() {
        let cases = [
            (r#""\ud83d""#, Some("\u{fffd}")),
            (r#""a\uD83D b""#, Some("a\u{fffd} b")),
            (r#""\ude00\ud83d""#, Some("\u{fffd}\u{fffd}")),
            (r#""\ud83d\ud83d\ude00""#, Some("\u{fffd}😀")),
            (r#""\ud83d\ude00 \ude00""#, Some("😀 \u{fffd}")),
            (r#""\\ud83d \ud83d""#, Some("\\ud83d \u{fffd}")),
            (r#""\\\ud83d\n""#, Some("\\\u{fffd}\n")),
            (r#""\ud83d"#, None),
            (r#""\ud83""#, None),
            (r#"\ud83d"#, None),
        ];
        for (json, text) in cases {
            let read = read(json.as_bytes()).ok();
            assert_eq!(read.as_ref().and_then(Value::as_str), text, "{json}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_string_of_javascript_is_read_as_browsers_show_it(units: Vec<u16>) {
            let json: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let read = read(format!("\"{json}\"").as_bytes()).unwrap();
            proptest::prop_assert_eq!(read, String::from_utf16_lossy(&units));
        }
    }
}
