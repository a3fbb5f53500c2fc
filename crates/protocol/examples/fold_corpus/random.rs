//! Random texts and values, the same for the same seed everywhere.

use serde_json::{Map, Value, json};

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub(crate) fn chance(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick(&mut self, from: &[&str]) -> String {
        self.pick_of(from).to_owned()
    }

    pub(crate) fn pick_of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    pub(crate) fn text(&mut self) -> String {
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

    pub(crate) fn json(&mut self, depth: u64) -> Value {
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.chance(2)),
            2 => json!(self.below(1000) as i64 - 500),
            3 => json!(self.pick_of(&[0.5, -2.25, 1e-7, 123.456, 6.02e23, -0.001])),
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
                    map.insert(name, self.json(depth - 1));
                }
                Value::Object(map)
            }
        }
    }

    pub(crate) fn metadata(&mut self) -> Value {
        let mut map = Map::new();
        for _ in 0..self.below(4) {
            map.insert(self.pick(&["a", "b", "usage", "0"]), self.json(3));
        }
        if self.chance(8) {
            Value::Null
        } else {
            Value::Object(map)
        }
    }

    /// The text of a value, with the spaces and escapes that a model may write.
    pub(crate) fn encoded_json(&mut self) -> String {
        let value = self.json(4);
        let text = if self.chance(3) {
            format!("{value:#}")
        } else {
            value.to_string()
        };
        if !self.chance(3) {
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

    /// Texts that are no JSON, or JSON that is treated in a special way.
    pub(crate) fn odd_json(&mut self) -> String {
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
    }

    pub(crate) fn cut(&mut self, text: &str) -> Vec<String> {
        let mut pieces = vec![String::new()];
        let rarely = self.below(12) + 1;
        for char in text.chars() {
            if self.chance(rarely) {
                pieces.push(String::new());
            }
            if let Some(piece) = pieces.last_mut() {
                piece.push(char);
            }
        }
        pieces
    }
}
