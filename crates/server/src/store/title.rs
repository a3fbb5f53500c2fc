//! The title of a chat: the beginning of the user's first text.

use adk_bridge_protocol::message::{Message, Part, Role};
use unicode_segmentation::UnicodeSegmentation as _;

/// Characters (graphemes) of a title: what one line of a narrow list shows.
pub const MAX_TITLE: usize = 60;

const ELLIPSIS: &str = "…";

/// The title from a message, if it is the user's and has text.
pub fn title_of(message: &Message) -> Option<String> {
    if message.role != Role::User {
        return None;
    }
    message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => shorten(&text.text),
            _ => None,
        })
        .next()
}

/// The title that a user chose, if it is not blank.
pub fn title_from(text: &str) -> Option<String> {
    shorten(text)
}

/// One line, cut at a word boundary if possible.
fn shorten(text: &str) -> Option<String> {
    let mut line = String::new();
    // In plain ASCII every byte is a character.
    let count = |line: &str| match line.is_ascii() {
        true => line.len(),
        false => line.graphemes(true).count(),
    };
    for word in words(text) {
        if !line.is_empty() {
            line.push(' ');
        }
        // A word may be as long as a message; one character beyond the limit shows that it is too long.
        match word.len() <= MAX_TITLE {
            true => line.push_str(word),
            false => line.extend(word.graphemes(true).take(MAX_TITLE + 1)),
        }
        if count(&line) > MAX_TITLE {
            return Some(cut(&line));
        }
    }
    Some(line).filter(|line| !line.is_empty())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
}

fn cut(line: &str) -> String {
    let room = line
        .grapheme_indices(true)
        .nth(MAX_TITLE - 1)
        .map_or(line.len(), |(at, _)| at);
    let (head, tail) = line.split_at(room);
    // In scripts without spaces, or in one very long word, the nearest space may be far away.
    let at = if tail.starts_with(' ') {
        room
    } else {
        head.rfind(' ').filter(|at| at * 2 > room).unwrap_or(room)
    };
    format!("{}{ELLIPSIS}", &head[..at])
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::message::TextPart;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn titles() {
        let sixty = "a".repeat(60);
        let long_word = "b".repeat(1_000);
        let japanese = "東京の天気を教えてください".repeat(10);
        let family = "👨\u{200d}👩\u{200d}👧";
        let cases = [
            (
                "what is the weather in Tokyo",
                "what is the weather in Tokyo",
            ),
            ("  two\n\tlines  ", "two lines"),
            ("nul\u{0}and bell\u{7}", "nul and bell"),
            (&sixty, &sixty),
            (
                "please search the database for everyone called Hanako and update it",
                "please search the database for everyone called Hanako and…",
            ),
            // The space after the last word that fits is a boundary too.
            (
                "please search the database for everyone called Hanako and a bcd",
                "please search the database for everyone called Hanako and a…",
            ),
            (&long_word, &format!("{}…", "b".repeat(59))),
            (&format!("a {long_word}"), &format!("a {}…", "b".repeat(57))),
            (
                &japanese,
                &format!("{}…", japanese.chars().take(59).collect::<String>()),
            ),
            (&family.repeat(61), &format!("{}…", family.repeat(59))),
        ];
        for (text, title) in cases {
            assert_eq!(title_of(&said(Role::User, text)).as_deref(), Some(title));
        }
    }

    #[test]
    fn not_everything_gives_a_title() {
        assert_eq!(title_of(&said(Role::User, " \n ")), None);
        assert_eq!(title_of(&said(Role::Assistant, "hello")), None);
    }

    proptest! {
        #[test]
        fn fits_on_one_line(text in "(\\PC|[ \n\u{301}]){0,200}") {
            if let Some(title) = shorten(&text) {
                prop_assert!(title.graphemes(true).count() <= MAX_TITLE);
                prop_assert!(!title.contains(char::is_control) && title.trim() == title);
                let kept = title.strip_suffix(ELLIPSIS).unwrap_or(&title);
                let line = words(&text).collect::<Vec<_>>().join(" ");
                prop_assert!(line.starts_with(kept));
            } else {
                prop_assert!(words(&text).next().is_none());
            }
        }
    }

    fn said(role: Role, text: &str) -> Message {
        let mut message = Message::assistant("m1");
        message.role = role;
        message.parts.push(Part::Text(TextPart {
            text: text.to_owned(),
            ..TextPart::default()
        }));
        message
    }
}
