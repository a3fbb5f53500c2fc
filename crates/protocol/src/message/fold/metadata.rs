//! Merges metadata as the AI SDK's `mergeObjects` does: objects deeply, everything else replaced.
//!
//! Metadata is meant to be an object, but nothing says so. What a plain value or an array does is a matter of how
//! JavaScript spreads it, and is followed here.

use serde_json::{Map, Value};

use super::FoldError;

/// `null` at the top changes nothing; below it is a value.
pub(super) fn merge(metadata: &mut Option<Value>, new: &Value) -> Result<(), FoldError> {
    if new.is_null() {
        return Ok(());
    }
    match metadata.as_mut().filter(|old| !old.is_null()) {
        None => *metadata = Some(new.clone()),
        Some(Value::Object(old)) => merge_fields(old, entries(new)),
        Some(old) => {
            let new = entries(new);
            if !old.is_array() && new.keys().any(|name| !is_forbidden(name)) {
                return Err(FoldError::Metadata);
            }
            let mut fields = entries(old);
            merge_fields(&mut fields, new);
            *old = Value::Object(fields);
        }
    }
    Ok(())
}

fn merge_fields(old: &mut Map<String, Value>, new: Map<String, Value>) {
    for (name, value) in new {
        if is_forbidden(&name) {
            continue;
        }
        match (old.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge_fields(old, new),
            (_, value) => drop(old.insert(name, value)),
        }
    }
}

/// These names lead to the prototype in JavaScript, and are left out of a merge.
fn is_forbidden(name: &str) -> bool {
    matches!(name, "__proto__" | "constructor" | "prototype")
}

/// The fields that JavaScript sees in a value: of an array its items, of a string its UTF-16 units.
fn entries(value: &Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields.clone(),
        Value::Array(items) => items
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, item)| (index.to_string(), item))
            .collect(),
        Value::String(text) => text
            .encode_utf16()
            .enumerate()
            .map(|(index, unit)| (index.to_string(), String::from_utf16_lossy(&[unit]).into()))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Map::new(),
    }
}
