//! Merges metadata as the AI SDK's `mergeObjects` does: objects deeply, everything else replaced.
//!
//! Metadata is meant to be an object, but nothing enforces it. A plain value or an array has the effect of JavaScript's
//! spread syntax, and so it does here.

use serde_json::{Map, Value};

use super::FoldError;
use crate::json_text::Json;

/// `null` changes nothing at the top level; below it is a value.
pub(super) fn merge(metadata: &mut Option<Json>, new: &Json) -> Result<(), FoldError> {
    if new.is_null() {
        return Ok(());
    }
    let Some(old) = metadata.as_ref().filter(|old| !old.is_null()) else {
        *metadata = Some(new.clone());
        return Ok(());
    };
    // Repeated fields change nothing.
    if old.is_object() && old.text() == new.text() {
        return Ok(());
    }
    let (old, new) = (old.to_value(), entries(new.to_value()));
    let keeps_fields = old.is_object() || old.is_array();
    if !keeps_fields && new.keys().any(|name| !is_forbidden(name)) {
        return Err(FoldError::Metadata);
    }
    let mut fields = entries(old);
    merge_fields(&mut fields, new);
    *metadata = Some(Value::Object(fields).into());
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

/// These names lead to the prototype in JavaScript, so a merge leaves them out.
fn is_forbidden(name: &str) -> bool {
    matches!(name, "__proto__" | "constructor" | "prototype")
}

/// The fields that JavaScript sees in a value: the items of an array, the UTF-16 units of a string.
fn entries(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Array(items) => items
            .into_iter()
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
