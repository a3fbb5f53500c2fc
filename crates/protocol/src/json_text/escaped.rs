//! Unescapes the text of a JSON string in one allocation, or in none if there is nothing to unescape.

use std::borrow::Cow;

/// Unescapes a JSON string that has been checked, given without its quotes. `None` if it contains half of a surrogate
/// pair, which has no text.
pub(crate) fn unescape(json: &str) -> Option<Cow<'_, str>> {
    let Some(first) = memchr::memchr(b'\\', json.as_bytes()) else {
        return Some(Cow::Borrowed(json));
    };
    let mut text = String::with_capacity(json.len());
    let (mut plain, mut rest) = json.split_at(first);
    loop {
        text.push_str(plain);
        let Some(escape) = rest.strip_prefix('\\') else {
            return Some(Cow::Owned(text));
        };
        let (char, after) = escaped(escape)?;
        text.push(char);
        let next = memchr::memchr(b'\\', after.as_bytes()).unwrap_or(after.len());
        (plain, rest) = after.split_at(next);
    }
}

/// The character behind a backslash, and what follows it.
fn escaped(escape: &str) -> Option<(char, &str)> {
    let mut chars = escape.chars();
    let char = match chars.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => return unicode(chars.as_str()),
        itself => itself,
    };
    Some((char, chars.as_str()))
}

fn unicode(digits: &str) -> Option<(char, &str)> {
    let (unit, after) = code_unit(digits)?;
    if let Some(char) = char::from_u32(u32::from(unit)) {
        return Some((char, after));
    }
    let (low, after) = code_unit(after.strip_prefix("\\u")?)?;
    let char = char::decode_utf16([unit, low]).next()?.ok()?;
    Some((char, after))
}

fn code_unit(digits: &str) -> Option<(u16, &str)> {
    let (digits, after) = digits.split_at_checked(4)?;
    Some((u16::from_str_radix(digits, 16).ok()?, after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::unescape;

    proptest! {
        #[test]
        fn reads_what_serde_reads(pieces in prop::collection::vec(piece(), 0..12)) {
            let json = pieces.concat();
            let text = serde_json::from_str::<String>(&format!("\"{json}\"")).ok();
            prop_assert_eq!(unescape(&json).map(String::from), text);
        }
    }

    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[a-zé素😀 ]{0,9}",
            4 => r#"\\["\\/bfnrt]"#,
            4 => r"\\u[0-9a-cA-C][0-9a-fA-F]{3}",
            2 => r"\\u[dD][89abAB][0-9a-f]{2}\\u[dD][c-fC-F][0-9a-f]{2}",
            1 => r"\\u[dD][0-9a-f]{3}",
        ]
    }
}
