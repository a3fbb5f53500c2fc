//! Lists of words: written as TOML lists, or as text with commas, as in environment variables.

use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum ListForm {
    List(Vec<String>),
    Plain(String),
}

impl ListForm {
    fn words(self) -> Vec<String> {
        match self {
            Self::List(words) => words,
            Self::Plain(text) => text
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
        }
    }
}

pub(super) fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    ListForm::deserialize(from)
        .map(ListForm::words)
        .map_err(|_| serde::de::Error::custom(EXPECTED))
}

pub(super) fn some_words<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<String>>, D::Error> {
    words(from).map(Some)
}

const EXPECTED: &str = "write a list of strings, such as [\"a\", \"b\"], or a,b";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    #[test]
    fn both_ways_of_writing_a_list_are_read() {
        for (written, expected) in [
            (json!(["a", "b,c"]), vec!["a", "b,c"]),
            (
                json!("http://localhost:3000"),
                vec!["http://localhost:3000"],
            ),
            (json!(" a, b ,"), vec!["a", "b"]),
            (json!(""), vec![]),
        ] {
            assert_eq!(super::words(&written).unwrap(), expected, "{written}");
        }
        for written in [json!(1), json!(["a", 1]), json!({"a": 1}), json!(null)] {
            let error = super::words(&written).unwrap_err().to_string();
            assert_eq!(error, super::EXPECTED, "{written}");
        }
    }
}
