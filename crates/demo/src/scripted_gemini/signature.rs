//! Thought signatures: a client must return them unchanged, with the part that they came with.
//!
//! A signature is a digest of its part, so it can be checked without remembering anything.

use adk_bridge_protocol::json_text::{Json, Level};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Number;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::fields::decode;

/// The signature of a function call.
pub(super) fn of_call(name: &str, args: &Json) -> String {
    STANDARD.encode(digest(&call_seal(name, args)))
}

/// The signature of an answer in words. Clients join and split words, so it does not cover them.
pub(super) fn of_text() -> String {
    STANDARD.encode(digest(TEXT_SEAL))
}

pub(super) fn fits_call(signature: &str, name: &str, args: &Json) -> bool {
    is_pass(signature)
        || decode(signature).is_some_and(|bytes| bytes == digest(&call_seal(name, args)))
}

pub(super) fn fits_text(signature: &str) -> bool {
    is_pass(signature) || decode(signature).is_some_and(|bytes| bytes == digest(TEXT_SEAL))
}

const TEXT_SEAL: &str = "text";

/// What Google accepts in place of a signature, for calls that its models never made.
const PASSES: [&str; 2] = [
    "skip_thought_signature_validator",
    "context_engineering_is_the_way_to_go",
];

fn is_pass(signature: &str) -> bool {
    PASSES.iter().any(|pass| {
        *pass == signature || decode(signature).is_some_and(|bytes| bytes == pass.as_bytes())
    })
}

fn call_seal(name: &str, args: &Json) -> String {
    let mut seal = format!("call {name} ");
    write_canonical(args.raw(), &mut seal);
    seal
}

fn digest(seal: &str) -> Vec<u8> {
    Sha256::digest(format!("scripted gemini {seal}")).to_vec()
}

/// JSON with sorted keys and one form for each number: clients may reorder keys and write 50 as 50.0.
fn write_canonical(value: &RawValue, out: &mut String) {
    match Level::of(value) {
        Level::Fields(mut fields) => {
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            for (key, value) in fields {
                out.push_str(&format!("{key:?}:"));
                write_canonical(value, out);
                out.push(',');
            }
        }
        Level::Items(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Level::Leaf(leaf) => match serde_json::from_str::<Number>(leaf) {
            Ok(number) => match number.as_f64() {
                Some(float) => out.push_str(&float.to_string()),
                None => out.push_str(leaf),
            },
            Err(_) => out.push_str(leaf),
        },
    }
}
