//! Text that PostgreSQL cannot store: it has no NUL.

use std::borrow::Cow;

/// Begins an escape. No text of people has it: Unicode says that it is no character.
const ESCAPE: char = '\u{10FFFE}';

/// Text as it is stored. It is changed only if it has a NUL, or what would be read as one.
pub(crate) fn stored(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => stored.extend([ESCAPE, '0']),
            ESCAPE => stored.extend([ESCAPE, '1']),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

/// Text as it was before it was stored.
pub(super) fn loaded(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    let mut loaded = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE if characters.next() == Some('0') => loaded.push('\0'),
            other => loaded.push(other),
        }
    }
    loaded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_comes_back(text in "[a0\0\u{10FFFE}1é]*") {
            let stored = stored(&text).into_owned();
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(loaded(stored), text);
        }
    }
}
