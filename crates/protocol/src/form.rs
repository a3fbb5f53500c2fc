//! Forms: whether what a user entered is what a schema asks for.
//!
//! MCP servers ask with a small part of JSON Schema: an object whose fields are texts, numbers, yes or no, and choices. What
//! is beyond that in a schema restricts nothing here; the server that asked judges the answer itself.

use serde_json::{Map, Value};

/// Why this answer does not fit the schema, in words for who gave it; nothing if it does.
pub fn problem(schema: &Value, answer: &Value) -> Option<String> {
    let Value::Object(fields) = answer else {
        return Some("the answer must be an object with the fields of the form".to_owned());
    };
    let none = Map::new();
    let known = schema.get("properties").and_then(Value::as_object);
    let known = known.unwrap_or(&none);
    let required = schema.get("required").and_then(Value::as_array);
    let missing = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .find(|name| !fields.contains_key(*name));
    if let Some(name) = missing {
        return Some(format!("{name:?} is missing"));
    }
    fields.iter().find_map(|(name, value)| {
        let Some(schema) = known.get(name) else {
            return Some(format!("the form has no field {name:?}"));
        };
        misfit(schema, value).map(|expected| format!("{name:?} must be {expected}"))
    })
}

/// What a field must be, if its value is not.
fn misfit(schema: &Value, value: &Value) -> Option<String> {
    if let Some(choices) = choices_of(schema) {
        return (!choices.contains(&value)).then(|| one_of(&choices));
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => text_misfit(schema, value),
        Some(kind @ ("integer" | "number")) => number_misfit(kind, schema, value),
        Some("boolean") => (!value.is_boolean()).then(|| "true or false".to_owned()),
        Some("array") => list_misfit(schema, value),
        _ => None,
    }
}

fn text_misfit(schema: &Value, value: &Value) -> Option<String> {
    let Some(text) = value.as_str() else {
        return Some("a text".to_owned());
    };
    let length = text.chars().count() as u64;
    if let Some(least) = limit(schema, "minLength").filter(|least| length < *least) {
        return Some(format!("at least {least} characters long"));
    }
    if let Some(most) = limit(schema, "maxLength").filter(|most| length > *most) {
        return Some(format!("at most {most} characters long"));
    }
    let (is_right, expected) = match schema.get("format").and_then(Value::as_str)? {
        "email" => (is_email(text), "an e-mail address"),
        "uri" => (is_uri(text), "an address with its scheme, such as https://"),
        "date" => (is_date(text), "a date, YYYY-MM-DD"),
        "date-time" => (
            is_date_time(text),
            "a date with a time, YYYY-MM-DDTHH:MM:SSZ",
        ),
        _ => return None,
    };
    (!is_right).then(|| expected.to_owned())
}

fn number_misfit(kind: &str, schema: &Value, value: &Value) -> Option<String> {
    let expected = match kind {
        "integer" => "a whole number",
        _ => "a number",
    };
    let Some(number) = value.as_f64() else {
        return Some(expected.to_owned());
    };
    // JavaScript has no 7.0, and JSON Schema takes it for a whole number.
    if kind == "integer" && number.fract() != 0.0 {
        return Some(expected.to_owned());
    }
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    if let Some(least) = bound("minimum").filter(|least| number < *least) {
        return Some(format!("at least {least}"));
    }
    let most = bound("maximum").filter(|most| number > *most)?;
    Some(format!("at most {most}"))
}

fn list_misfit(schema: &Value, value: &Value) -> Option<String> {
    let Some(items) = value.as_array() else {
        return Some("a list".to_owned());
    };
    let count = items.len() as u64;
    if let Some(least) = limit(schema, "minItems").filter(|least| count < *least) {
        return Some(format!("a list of at least {least}"));
    }
    if let Some(most) = limit(schema, "maxItems").filter(|most| count > *most) {
        return Some(format!("a list of at most {most}"));
    }
    let of = schema.get("items")?;
    let expected = items.iter().find_map(|item| misfit(of, item))?;
    Some(format!("a list in which everything is {expected}"))
}

/// The values that may be chosen: plain ones, or ones with titles.
fn choices_of(schema: &Value) -> Option<Vec<&Value>> {
    if let Some(plain) = schema.get("enum").and_then(Value::as_array) {
        return Some(plain.iter().collect());
    }
    let titled = schema.get("oneOf").or_else(|| schema.get("anyOf"))?;
    let titled = titled.as_array()?.iter();
    titled.map(|choice| choice.get("const")).collect()
}

fn one_of(choices: &[&Value]) -> String {
    let words: Vec<String> = choices.iter().map(ToString::to_string).collect();
    format!("one of {}", words.join(", "))
}

fn limit(schema: &Value, name: &str) -> Option<u64> {
    schema.get(name)?.as_u64()
}

fn is_email(text: &str) -> bool {
    let parts = text.rsplit_once('@');
    parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
        && !text.contains(char::is_whitespace)
}

fn is_uri(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && (scheme.bytes()).all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let parts = text.split_once(':');
    parts.is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty())
        && !text.contains(char::is_whitespace)
}

fn is_date(text: &str) -> bool {
    let fits = |(letter, form): (u8, u8)| match form {
        b'0' => letter.is_ascii_digit(),
        other => letter == other,
    };
    let number = |from: usize| {
        text.get(from..from + 2)
            .and_then(|it| it.parse::<u8>().ok())
    };
    text.len() == 10
        && text.bytes().zip(*b"0000-00-00").all(fits)
        && number(5).is_some_and(|month| (1..=12).contains(&month))
        && number(8).is_some_and(|day| (1..=31).contains(&day))
}

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else {
        return false;
    };
    let digits = time.bytes().take(8).zip(*b"00:00:00");
    let is_clock = time.len() > 8
        && digits.into_iter().all(|(letter, form)| match form {
            b'0' => letter.is_ascii_digit(),
            other => letter == other,
        });
    let has_zone = time.ends_with(['Z', 'z'])
        || time.len() > 13 && matches!(time.as_bytes()[time.len() - 6], b'+' | b'-');
    is_date(date) && is_clock && has_zone
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_field_is_checked() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 4},
            "mail": {"type": "string", "format": "email"},
            "page": {"type": "string", "format": "uri"},
            "day": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"},
            "age": {"type": "integer", "minimum": 1, "maximum": 99},
            "share": {"type": "number", "maximum": 1},
            "sure": {"type": "boolean"},
            "size": {"type": "string", "enum": ["s", "m"]},
            "color": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
            "tags": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["x", "y", "z"]}},
            "kinds": {"type": "array", "items": {"anyOf": [{"const": "k", "title": "K"}]}},
        }});
        let fits = json!({
            "name": "Ada", "mail": "a@b.c", "page": "https://a", "day": "2026-02-28", "at": "2026-02-28T10:00:00Z",
            "age": 7.0, "share": 0.5, "sure": false, "size": "m", "color": "b", "tags": ["x", "z"], "kinds": ["k"],
        });
        assert_eq!(problem(&schema, &fits), None);
        for (name, wrong, said) in [
            (
                "name",
                json!("A"),
                "\"name\" must be at least 2 characters long",
            ),
            (
                "name",
                json!("Adele"),
                "\"name\" must be at most 4 characters long",
            ),
            ("name", json!(1), "\"name\" must be a text"),
            ("mail", json!("a@"), "\"mail\" must be an e-mail address"),
            (
                "page",
                json!("a b"),
                "\"page\" must be an address with its scheme, such as https://",
            ),
            (
                "day",
                json!("2026-13-01"),
                "\"day\" must be a date, YYYY-MM-DD",
            ),
            (
                "at",
                json!("2026-02-28"),
                "\"at\" must be a date with a time, YYYY-MM-DDTHH:MM:SSZ",
            ),
            ("age", json!(1.5), "\"age\" must be a whole number"),
            ("age", json!("7"), "\"age\" must be a whole number"),
            ("age", json!(0), "\"age\" must be at least 1"),
            ("age", json!(100), "\"age\" must be at most 99"),
            ("share", json!(2), "\"share\" must be at most 1"),
            ("sure", json!("true"), "\"sure\" must be true or false"),
            ("size", json!("l"), "\"size\" must be one of \"s\", \"m\""),
            (
                "color",
                json!("Red"),
                "\"color\" must be one of \"r\", \"b\"",
            ),
            ("tags", json!("x"), "\"tags\" must be a list"),
            ("tags", json!([]), "\"tags\" must be a list of at least 1"),
            (
                "tags",
                json!(["x", "y", "z"]),
                "\"tags\" must be a list of at most 2",
            ),
            (
                "tags",
                json!(["w"]),
                "\"tags\" must be a list in which everything is one of \"x\", \"y\", \"z\"",
            ),
            (
                "kinds",
                json!(["K"]),
                "\"kinds\" must be a list in which everything is one of \"k\"",
            ),
            ("other", json!(1), "the form has no field \"other\""),
        ] {
            let mut answer = fits.clone();
            answer[name] = wrong;
            assert_eq!(problem(&schema, &answer).as_deref(), Some(said));
        }
        assert_eq!(
            problem(&schema, &json!({})).as_deref(),
            Some("\"name\" is missing")
        );
    }

    #[test]
    fn only_an_object_answers_a_form() {
        let empty = json!({"type": "object", "properties": {}});
        assert_eq!(problem(&empty, &json!({})), None);
        for answer in [json!(null), json!("yes"), json!(true), json!([{}])] {
            assert!(problem(&empty, &answer).is_some(), "{answer}");
        }
    }
}
