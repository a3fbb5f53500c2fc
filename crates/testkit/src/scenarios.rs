//! The conversations of `fixtures/scenarios`, one case for each row of their matrices.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fixtures;

/// One conversation, in the form that `fixtures/scenarios/README.md` describes, without its matrix.
#[derive(Debug)]
pub struct Scenario {
    /// The name of its file, and the values of its row.
    pub name: String,
    pub case: Value,
}

/// All cases, in the order of their files.
pub fn all() -> Vec<Scenario> {
    let folder = fixtures::directory().join("scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    paths.sort();
    let mut scenarios = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy();
        let text = std::fs::read_to_string(&path).unwrap();
        let file: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        scenarios.extend(expanded(&name, &file));
    }
    scenarios
}

/// An axis and its value in a row.
type Axis<'f> = (&'f str, &'f str);

fn expanded(name: &str, file: &Value) -> Vec<Scenario> {
    let mut unused = row_keys(file);
    let scenarios = rows(file)
        .iter()
        .map(|row| {
            let mut case = filled(file, row);
            let fields = case.as_object_mut().unwrap();
            fields.remove("matrix");
            for (axis, value) in row {
                if matches!(*axis, "dialect" | "mode") {
                    fields.insert((*axis).to_owned(), Value::from(*value));
                }
            }
            for turn in case["turns"].as_array_mut().unwrap() {
                let expect = turn["expect"].take();
                turn["expect"] = expected(name, expect, row, &mut unused);
            }
            let values = row.iter().map(|(_, value)| *value);
            let words: Vec<&str> = std::iter::once(name).chain(values).collect();
            Scenario {
                name: words.join("-"),
                case,
            }
        })
        .collect();
    assert!(unused.is_empty(), "{name}: no row is {unused:?}");
    scenarios
}

/// Every combination of the values of the axes; without a matrix, one empty row.
fn rows(file: &Value) -> Vec<Vec<Axis<'_>>> {
    let mut rows = vec![Vec::new()];
    for (axis, values) in file["matrix"].as_object().into_iter().flatten() {
        let values = values.as_array().unwrap();
        rows = rows
            .into_iter()
            .flat_map(|row: Vec<Axis<'_>>| {
                values.iter().map(move |value| {
                    let mut row = row.clone();
                    row.push((axis.as_str(), value.as_str().unwrap()));
                    row
                })
            })
            .collect();
    }
    rows
}

/// The file with every `{axis}` replaced by its value in the row.
fn filled(value: &Value, row: &[Axis<'_>]) -> Value {
    match value {
        Value::String(text) => {
            let text = row.iter().fold(text.clone(), |text, (axis, value)| {
                text.replace(&format!("{{{axis}}}"), value)
            });
            assert!(!text.contains('{'), "no axis for {text}");
            Value::String(text)
        }
        Value::Array(items) => items.iter().map(|item| filled(item, row)).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, field)| (name.clone(), filled(field, row)))
                .collect(),
        ),
        other => other.clone(),
    }
}

/// The expectation for a row: the list itself, or the one list whose words are all in the row.
fn expected(name: &str, expect: Value, row: &[Axis<'_>], unused: &mut BTreeSet<String>) -> Value {
    let Value::Object(lists) = expect else {
        return expect;
    };
    let is_meant = |key: &str| {
        key.split(' ')
            .all(|word| row.iter().any(|(_, value)| *value == word))
    };
    let mut meant: Vec<_> = lists.into_iter().filter(|(key, _)| is_meant(key)).collect();
    assert_eq!(meant.len(), 1, "{name} {row:?}: {meant:?}");
    let (key, list) = meant.remove(0);
    unused.remove(&key);
    list
}

fn row_keys(file: &Value) -> BTreeSet<String> {
    let turns = file["turns"].as_array().into_iter().flatten();
    turns
        .filter_map(|turn| turn["expect"].as_object())
        .flat_map(|lists| lists.keys().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Scenario, expanded};

    #[test]
    fn a_matrix_is_a_case_for_each_row() {
        let file = json!({
            "matrix": {"answer": ["approve", "deny"], "mode": ["http", "live"]},
            "turns": [{"client": ["{answer} it"], "expect": {"approve": ["output"], "deny": ["denied"]}}],
        });
        let cases: Vec<(String, Value)> = expanded("single", &file)
            .into_iter()
            .map(|Scenario { name, case }| (name, case))
            .collect();
        let case = |mode: &str, act: &str, shape: &str| {
            json!({
                "mode": mode, "turns": [{"client": [act], "expect": [shape]}],
            })
        };
        let expected = [
            ("single-approve-http", case("http", "approve it", "output")),
            ("single-approve-live", case("live", "approve it", "output")),
            ("single-deny-http", case("http", "deny it", "denied")),
            ("single-deny-live", case("live", "deny it", "denied")),
        ]
        .map(|(name, case)| (name.to_owned(), case));
        assert_eq!(cases, expected);
    }

    #[test]
    fn a_file_without_a_matrix_is_one_case() {
        let file = json!({"mode": "http", "turns": [{"client": ["user"], "expect": []}]});
        let cases = expanded("plain", &file);
        assert_eq!(cases.len(), 1);
        assert_eq!((&*cases[0].name, &cases[0].case), ("plain", &file));
    }

    #[test]
    #[should_panic(expected = "no row is {\"approved\"}")]
    fn an_expectation_that_nobody_has_is_a_mistake() {
        let expect = json!({"approve": [], "deny": [], "approved": []});
        let file = json!({"matrix": {"answer": ["approve", "deny"]}, "turns": [{"client": [], "expect": expect}]});
        expanded("single", &file);
    }
}
