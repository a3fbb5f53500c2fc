//! The output of ADK's planners: tags in the text say what is plan and what is answer.
//!
//! Older servers leave the tags in deltas, and mark at most the delta that holds one as a thought. A section lasts until
//! the next tag, or until the model call ends.

use super::author::Kind;

const ANSWER: &str = "/*FINAL_ANSWER*/";
const TAGS: [&str; 5] = [
    "/*PLANNING*/",
    "/*REPLANNING*/",
    "/*REASONING*/",
    "/*ACTION*/",
    ANSWER,
];
/// How every tag begins: a text without it holds none.
const OPENING: &str = "/*";

/// The section that an author is writing, if it writes with tags.
#[derive(Debug, Default)]
pub(super) struct Planner {
    section: Option<Kind>,
    /// The end of the last delta, which may be the beginning of a tag.
    held: String,
}

impl Planner {
    /// Whether the text has to be looked at.
    pub(super) fn concerns(&self, text: &str, may_begin: bool) -> bool {
        let is_on = self.section.is_some() || !self.held.is_empty();
        is_on || may_begin && (text.contains(OPENING) || text.trim_start() == "/")
    }

    /// Cuts a text into its sections, without the tags.
    pub(super) fn cut(&mut self, kind: Kind, text: &str) -> Vec<(Kind, String)> {
        let text = std::mem::take(&mut self.held) + text;
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        while let Some((at, tag)) = first_tag(rest) {
            pieces.push((self.section.unwrap_or(kind), rest[..at].to_owned()));
            self.section = Some(match tag {
                ANSWER => Kind::Text,
                _ => Kind::Thought,
            });
            rest = &rest[at + tag.len()..];
        }
        let (said, held) = rest.split_at(rest.len() - begun(rest));
        self.held.push_str(held);
        pieces.push((self.section.unwrap_or(kind), said.to_owned()));
        pieces.retain(|(_, piece)| !piece.is_empty());
        pieces
    }

    /// Takes what was held back: it was no tag.
    pub(super) fn take_held(&mut self) -> Option<(Kind, String)> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then(|| (self.section.unwrap_or(Kind::Text), held))
    }
}

fn first_tag(text: &str) -> Option<(usize, &'static str)> {
    let found = TAGS.iter().filter_map(|tag| Some((text.find(tag)?, *tag)));
    found.min()
}

/// How many bytes at the end of a text may be the beginning of a tag.
fn begun(text: &str) -> usize {
    let beginnings = TAGS
        .iter()
        .flat_map(|tag| (1..tag.len()).map(move |end| &tag[..end]));
    let found = beginnings.filter(|beginning| text.ends_with(beginning));
    found.map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(deltas: &[&str]) -> (String, String) {
        let mut planner = Planner::default();
        let mut found = (String::new(), String::new());
        let cut: Vec<_> = deltas
            .iter()
            .flat_map(|delta| planner.cut(Kind::Text, delta))
            .collect();
        for (kind, piece) in cut.into_iter().chain(planner.take_held()) {
            match kind {
                Kind::Thought => found.0 += &piece,
                Kind::Text => found.1 += &piece,
            }
        }
        found
    }

    #[test]
    fn a_plan_differs_from_the_answer_wherever_it_is_cut() {
        let whole = "/*PLANNING*/ 1. a/*b /*REASONING*/ c /*ACTION*/ d /*FINAL_ANSWER*/ e /* f";
        let expected = (" 1. a/*b  c  d ".to_owned(), " e /* f".to_owned());
        assert_eq!(sections(&[whole]), expected);
        for at in 0..whole.len() {
            assert_eq!(sections(&[&whole[..at], &whole[at..]]), expected, "{at}");
        }
        let letters: Vec<String> = whole.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(sections(&letters), expected);
    }

    #[test]
    fn what_only_begins_like_a_tag_is_text() {
        for text in [
            "/*",
            "a /*PLAN",
            "/* a comment */ int x;",
            "/*FINAL_ANSWER* /",
        ] {
            assert_eq!(sections(&[text]), (String::new(), text.to_owned()));
        }
    }
}
