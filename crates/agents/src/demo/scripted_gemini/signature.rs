//! Thought signatures: they must come back unchanged, and with the part that they came with.
//!
//! A signature is a digest of its part, so nothing has to be remembered to check one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::fields::decode;

/// The signature of a function call.
pub(super) fn of_call(name: &str, args: &Value) -> String {
    STANDARD.encode(digest(&call_seal(name, args)))
}

/// The signature of an answer in words. Words are joined and split on their way, so it seals none of them.
pub(super) fn of_text() -> String {
    STANDARD.encode(digest(TEXT_SEAL))
}

pub(super) fn fits_call(signature: &str, name: &str, args: &Value) -> bool {
    is_pass(signature)
        || decode(signature).is_some_and(|bytes| bytes == digest(&call_seal(name, args)))
}

pub(super) fn fits_text(signature: &str) -> bool {
    is_pass(signature) || decode(signature).is_some_and(|bytes| bytes == digest(TEXT_SEAL))
}

const TEXT_SEAL: &str = "text";

/// What Google lets pass in the place of a signature, for calls that a model of its own never made.
const PASSES: [&str; 2] = [
    "skip_thought_signature_validator",
    "context_engineering_is_the_way_to_go",
];

fn is_pass(signature: &str) -> bool {
    PASSES.iter().any(|pass| {
        *pass == signature || decode(signature).is_some_and(|bytes| bytes == pass.as_bytes())
    })
}

fn call_seal(name: &str, args: &Value) -> String {
    let mut seal = format!("call {name} ");
    write_canonical(args, &mut seal);
    seal
}

fn digest(seal: &str) -> Vec<u8> {
    Sha256::digest(format!("scripted gemini {seal}")).to_vec()
}

/// JSON with sorted keys and one form for each number: clients may reorder and write 50 as 50.0.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(entries) => {
            let mut keys: Vec<_> = entries.iter().collect();
            keys.sort_by_key(|(key, _)| *key);
            for (key, value) in keys {
                out.push_str(&format!("{key:?}:"));
                write_canonical(value, out);
                out.push(',');
            }
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Number(number) => match number.as_f64() {
            Some(float) => out.push_str(&float.to_string()),
            None => out.push_str(&number.to_string()),
        },
        other => out.push_str(&other.to_string()),
    }
}
