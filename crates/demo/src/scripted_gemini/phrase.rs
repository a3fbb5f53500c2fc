//! A phrase that can be searched for words and numbers.

use serde_json::{Value, json};

/// A sentence or a part of it in two forms, as written and for comparison. Both have the same byte positions.
pub(super) struct Phrase<'t> {
    pub(super) text: &'t str,
    pub(super) lower: String,
}

impl<'t> Phrase<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let text = text
            .trim()
            .trim_end_matches(['.', '!', '?', '。', '！', '？'])
            .trim();
        Self {
            text,
            lower: text.to_ascii_lowercase(),
        }
    }

    /// Whether it has any of these words: whole words in English, anywhere in Japanese.
    pub(super) fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.find(word).is_some())
    }

    pub(super) fn find(&self, word: &str) -> Option<usize> {
        self.lower.match_indices(word).map(|(at, _)| at).find(|at| {
            let letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            !word.is_ascii()
                || !letter(self.lower[..*at].chars().next_back())
                    && !letter(self.lower[at + word.len()..].chars().next())
        })
    }

    /// The text after the first of these words.
    pub(super) fn after(&self, words: &[&str]) -> Option<&'t str> {
        let (at, word) = words
            .iter()
            .filter_map(|word| Some((self.find(word)?, word)))
            .min_by_key(|(at, _)| *at)?;
        Some(self.text[at + word.len()..].trim()).filter(|rest| !rest.is_empty())
    }

    /// The text before the first of these words.
    pub(super) fn before(&self, words: &[&str]) -> Option<&'t str> {
        let at = words.iter().filter_map(|word| self.find(word)).min()?;
        Some(self.text[..at].trim()).filter(|rest| !rest.is_empty())
    }

    pub(super) fn is_payment(&self) -> bool {
        self.has(&["pay", "send", "transfer", "支払", "送金", "払って"])
    }
}

/// The first number and its position.
pub(super) fn first_number(text: &str) -> Option<(std::ops::Range<usize>, Value)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let length = text[start..]
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',')
        .unwrap_or(text.len() - start);
    let digits = text[start..start + length]
        .trim_end_matches(['.', ','])
        .replace(',', "");
    let number = match digits.parse::<u64>() {
        Ok(whole) => json!(whole),
        Err(_) => json!(digits.parse::<f64>().ok()?),
    };
    Some((start..start + length, number))
}
