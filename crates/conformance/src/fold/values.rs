//! Random texts and JSON values, legal and illegal.

use adk_bridge_testkit::Random;
use serde_json::{Map, Value, json};

pub(crate) trait Values {
    fn text(&mut self) -> String;
    fn json(&mut self, depth: u64) -> Value;
    fn metadata(&mut self) -> Value;
    /// The text of a value, with spaces and escapes that a model may write.
    fn encoded_json(&mut self) -> String;
    /// Texts that are not JSON, or JSON that is treated in a special way.
    fn odd_json(&mut self) -> String;
    fn cut(&mut self, text: &str) -> Vec<String>;
}

impl Values for Random {
    fn text(&mut self) -> String {
        let words = [
            "",
            "Hello",
            " ",
            "\n",
            "é",
            "日本語",
            "😀",
            "\"",
            "\\",
            "\u{1}",
            "{",
            "]",
            "\u{2028}",
            "a\\u00e9",
        ];
        (0..self.below(4)).map(|_| self.pick(&words)).collect()
    }

    fn json(&mut self, depth: u64) -> Value {
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.one_in(2)),
            2 => json!(self.below(1000_i64) - 500),
            3 => json!(self.pick(&[0.5, -2.25, 1e-7, 123.456, 6.02e23, -0.001])),
            4 | 5 => json!(self.text()),
            6 => (0..self.below(4)).map(|_| self.json(depth - 1)).collect(),
            _ => {
                let mut map = Map::new();
                for _ in 0..self.below(4) {
                    let name = self.pick(&[
                        "a",
                        "b",
                        "city",
                        "0",
                        "é",
                        "two words",
                        "toString",
                        "q\"",
                        "n",
                    ]);
                    map.insert(name.to_owned(), self.json(depth - 1));
                }
                Value::Object(map)
            }
        }
    }

    fn metadata(&mut self) -> Value {
        let mut map = Map::new();
        for _ in 0..self.below(4) {
            let name = self.pick(&["a", "b", "usage", "0"]);
            map.insert(name.to_owned(), self.json(3));
        }
        if self.one_in(8) {
            Value::Null
        } else {
            Value::Object(map)
        }
    }

    fn encoded_json(&mut self) -> String {
        let value = self.json(4);
        let text = if self.one_in(3) {
            format!("{value:#}")
        } else {
            value.to_string()
        };
        if !self.one_in(3) {
            return text;
        }
        text.chars().fold(String::new(), |mut text, char| {
            if char.is_ascii() {
                text.push(char);
            } else {
                char.encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| text.push_str(&format!("\\u{unit:04X}")));
            }
            text
        })
    }

    fn odd_json(&mut self) -> String {
        self.pick(&[
            "[1é, 2]",
            "[1😀",
            "{\"__proto__\": 1, \"a\": 2}",
            "{\"constructor\": {\"prototype\": 1}}",
            "[-1, -2]",
            "[ true , nul",
            "{\"a\\\"b\": 1, \"c\": [tru]}",
            "{\"a\": \"\\u12",
            "nope",
            "{\"a\": 1}}",
            "[1 2]",
            "[[-]]",
            "{\"a\": +1}",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83dx\"",
            "{\"a\": 01}",
            "-",
            "[\"a\", \"b",
            "{'a': 1}",
            "[,1]",
            "{\"n\": 1e5, \"m\": [1E-2, -0.5e+3]}",
            "tru",
            "[nulltrue]",
            "{\"a\": \"\\x\"}",
            "\u{feff}{}",
            "[\u{a0}1]",
        ])
        .to_owned()
    }

    fn cut(&mut self, text: &str) -> Vec<String> {
        let mut pieces = vec![String::new()];
        let rarely = self.below(12) + 1;
        for char in text.chars() {
            if self.one_in(rarely) {
                pieces.push(String::new());
            }
            if let Some(piece) = pieces.last_mut() {
                piece.push(char);
            }
        }
        pieces
    }
}
