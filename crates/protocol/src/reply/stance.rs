//! What parts, results and frames say about an approval: the one judge of a yes or a no.
//!
//! | word | says yes | says no |
//! |---|---|---|
//! | `approved`, `confirmed` | `true` | `false` |
//! | `rejected`, `denied` | `false` | `true` |
//! | `status` | `"approved"` | `"rejected"` |
//! | `error`, `errorText`, `isError` (except `false`), an error's `type` | | that something failed |
//!
//! Any other value of these words is unclear, and so are the words in other letters (`Approved`). `result`, `output`,
//! `value`, `approval` and `data` may contain the words again; `"denied"` or `"rejected"` in `approval` counts as a
//! failure. All words must agree, wherever they stand; other fields say nothing.

use serde_json::value::RawValue;

use crate::event::REQUEST_CONFIRMATION;
use crate::json_text::{Json, fields_of};
use crate::message::{Extra, ToolPart, ToolState};

/// The words, which in other letters or with other values are unclear.
const WORDS: [&str; 8] = [
    "approved",
    "confirmed",
    "rejected",
    "denied",
    "status",
    "error",
    "errorText",
    "isError",
];

/// How deep words are looked for; no client repeats its answer more often.
const MAX_COPIES: usize = 8;

/// What is said about an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stance {
    /// Nothing was said.
    Absent,
    /// A clear yes or no.
    Clear(bool),
    /// That something failed: this goes with a no, contradicts a yes, and alone is no answer.
    Failed,
    /// Something that is neither.
    Unclear,
}

impl Stance {
    /// What both say together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (said, Self::Absent) | (Self::Absent, said) => said,
            (one, other) if one == other => one,
            (Self::Failed, Self::Clear(false)) | (Self::Clear(false), Self::Failed) => {
                Self::Clear(false)
            }
            _ => Self::Unclear,
        }
    }

    /// Whether nothing was said.
    pub fn is_absent(self) -> bool {
        self == Self::Absent
    }
}

/// What a part says about the approval of its call. A yes or a no counts only if the state of the part and everything
/// around it agree.
pub fn stance_in(tool: &ToolPart) -> Stance {
    match (stance_by_state(tool), stance_around(tool)) {
        (Stance::Absent, Stance::Absent) => Stance::Absent,
        // Words in another place than the decision's do not decide.
        (Stance::Absent, _) => Stance::Unclear,
        (said, beside) => said.and(beside),
    }
}

/// What a part's result says, where the result is the answer. Only one that is finished and successful can be.
pub fn stance_of_result(tool: &ToolPart) -> Stance {
    let is_success = tool.state == ToolState::OutputAvailable && tool.preliminary != Some(true);
    let said = tool.output.as_ref().map_or(Stance::Absent, stance_of);
    match (said, stance_around(tool)) {
        (Stance::Absent, Stance::Absent) => Stance::Absent,
        (Stance::Clear(_), Stance::Absent) if is_success => said,
        (Stance::Clear(_), beside) if is_success && beside == said => said,
        _ => Stance::Unclear,
    }
}

/// What a result says about an approval. Anything but an object is unclear, and so is a failure.
pub fn stance_of(result: &Json) -> Stance {
    match result.is_object() {
        true => stance_of_copy(result.raw(), MAX_COPIES),
        false if result.is_null() => Stance::Absent,
        false => Stance::Unclear,
    }
}

/// What fields next to a decision say.
pub fn stance_of_fields(fields: &Extra) -> Stance {
    let words = fields.entries();
    let said = words
        .iter()
        .map(|(word, value)| stance_of_word(word, value, MAX_COPIES));
    said.fold(Stance::Absent, Stance::and)
}

/// What the output of a confirmation says, or nothing if it is unclear or contradicts itself.
pub(super) fn confirmed_by(output: &Json) -> Option<bool> {
    output.get("confirmed")?;
    match stance_of(output) {
        Stance::Clear(confirmed) => Some(confirmed),
        _ => None,
    }
}

pub(super) fn is_confirmation(tool: &ToolPart) -> bool {
    tool.name == REQUEST_CONFIRMATION
}

/// What the flag says, if the state of the part agrees with it.
fn stance_by_state(tool: &ToolPart) -> Stance {
    let approved = tool.approval.as_ref().and_then(|field| field.approved);
    let confirms = is_confirmation(tool);
    match (&tool.state, approved) {
        (ToolState::OutputAvailable, _) if confirms => confirmed_in(tool, approved),
        (ToolState::OutputError, Some(_)) if confirms => Stance::Unclear,
        // There is no output yet, or it says the same.
        (ToolState::ApprovalResponded, Some(approved)) => match &tool.output {
            Some(output) if !output.is_null() && confirmed_by(output) != Some(approved) => {
                Stance::Unclear
            }
            _ => Stance::Clear(approved),
        },
        (ToolState::OutputDenied, Some(false)) => Stance::Clear(false),
        (ToolState::OutputAvailable, Some(true)) => Stance::Clear(true),
        (ToolState::OutputError, Some(approved)) => Stance::Clear(approved),
        (ToolState::ApprovalResponded | ToolState::OutputDenied, _) | (_, Some(_)) => {
            Stance::Unclear
        }
        (_, None) => Stance::Absent,
    }
}

/// What a confirmation with an output says.
fn confirmed_in(tool: &ToolPart, approved: Option<bool>) -> Stance {
    let confirmed = tool.output.as_ref().and_then(confirmed_by);
    let is_preliminary = tool.preliminary == Some(true);
    match (confirmed, stance_of_result(tool)) {
        (Some(_), said) => approved.map_or(Stance::Absent, Stance::Clear).and(said),
        (None, Stance::Absent) if is_preliminary && approved.is_none() => Stance::Absent,
        (None, _) => Stance::Unclear,
    }
}

/// What is said next to a part's decision: in fields that have no meaning of their own there, and by an error in
/// another state than that of an error.
fn stance_around(tool: &ToolPart) -> Stance {
    let field = tool.approval.as_ref().map(|field| &field.extra);
    let said = field.map_or(Stance::Absent, stance_of_fields);
    let said = said.and(stance_of_fields(&tool.extra));
    let has_failed = tool.state == ToolState::OutputError;
    match (said, &tool.error_text) {
        (Stance::Failed, _) if has_failed => Stance::Absent,
        (said, Some(_)) if !has_failed => said.and(Stance::Failed),
        (said, _) => said,
    }
}

fn stance_of_word(word: &str, value: &RawValue, copies: usize) -> Stance {
    match (word, value.get()) {
        ("approved" | "confirmed", "true") | ("rejected" | "denied", "false") => {
            Stance::Clear(true)
        }
        ("approved" | "confirmed", "false") | ("rejected" | "denied", "true") => {
            Stance::Clear(false)
        }
        ("status", "\"approved\"") => Stance::Clear(true),
        ("status", "\"rejected\"") => Stance::Clear(false),
        ("isError", "false") => Stance::Absent,
        ("error" | "errorText" | "isError", _)
        | ("type", "\"execution-denied\"" | "\"error-text\"" | "\"error-json\"") => Stance::Failed,
        // A word of other systems, which decides nothing here and must not contradict a yes.
        ("approval", "\"denied\"" | "\"rejected\"") => Stance::Failed,
        ("result" | "output" | "value" | "approval" | "data", _) => match copies.checked_sub(1) {
            Some(copies) => stance_of_copy(value, copies),
            None => Stance::Unclear,
        },
        _ if WORDS.iter().any(|known| known.eq_ignore_ascii_case(word)) => Stance::Unclear,
        _ => Stance::Absent,
    }
}

/// What the words in an object say. A failure in it is unclear.
fn stance_of_copy(object: &RawValue, copies: usize) -> Stance {
    let words = fields_of(object).unwrap_or_default();
    let said = words
        .iter()
        .map(|(word, value)| match stance_of_word(word, value, copies) {
            Stance::Failed => Stance::Unclear,
            said => said,
        });
    said.fold(Stance::Absent, Stance::and)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_word_of_a_result_must_agree() {
        use Stance::{Absent, Clear, Unclear};
        let deep = (0..=MAX_COPIES).fold(json!({}), |copy, _| json!({"result": copy}));
        let cases = [
            (json!(null), Absent),
            (json!({}), Absent),
            (json!({"balance": 5, "payload": false}), Absent),
            (json!({"confirmed": true}), Clear(true)),
            (json!({"approved": false}), Clear(false)),
            (
                json!({"status": "approved", "confirmed": true}),
                Clear(true),
            ),
            (
                json!({"status": "rejected", "approved": false}),
                Clear(false),
            ),
            (json!({"confirmed": true, "approved": false}), Unclear),
            (json!({"confirmed": true, "approved": "false"}), Unclear),
            (json!({"confirmed": true, "approved": null}), Unclear),
            (json!({"approved": true, "status": "rejected"}), Unclear),
            (json!({"approved": true, "status": "done"}), Unclear),
            (json!({"confirmed": true, "error": null}), Unclear),
            (json!({"error": "closed"}), Unclear),
            (json!({"confirmed": false, "errorText": "closed"}), Unclear),
            (json!({"confirmed": true, "isError": true}), Unclear),
            (json!({"confirmed": true, "isError": false}), Clear(true)),
            (json!({"confirmed": true, "rejected": true}), Unclear),
            (json!({"confirmed": true, "denied": "no"}), Unclear),
            (json!({"confirmed": true, "Confirmed": false}), Unclear),
            (json!({"confirmed": true, "rejected": false}), Clear(true)),
            (json!({"confirmed": false, "denied": true}), Clear(false)),
            (
                json!({"type": "execution-denied", "approved": true}),
                Unclear,
            ),
            (
                json!({"confirmed": true, "result": {"confirmed": false}}),
                Unclear,
            ),
            (
                json!({"confirmed": true, "output": {"value": {"error": 1}}}),
                Unclear,
            ),
            (json!({"approved": true, "approval": "denied"}), Unclear),
            (json!({"approval": "rejected", "confirmed": true}), Unclear),
            (
                json!({"approved": true, "approval": "manager"}),
                Clear(true),
            ),
            (json!({"confirmed": true, "result": "no"}), Clear(true)),
            (
                json!({"confirmed": true, "payload": {"confirmed": false}}),
                Clear(true),
            ),
            (deep, Unclear),
            (json!({"status": "completed"}), Unclear),
            (json!(true), Unclear),
            (json!(false), Unclear),
            (json!("no"), Unclear),
            (json!([]), Unclear),
        ];
        for (result, said) in cases {
            assert_eq!(stance_of(&Json::from(&result)), said, "{result}");
        }
    }

    /// The order of what is said makes no difference.
    #[test]
    fn a_failure_goes_with_a_no_only() {
        use Stance::{Absent, Clear, Failed, Unclear};
        let cases = [
            (Absent, Clear(true), Clear(true)),
            (Absent, Failed, Failed),
            (Failed, Failed, Failed),
            (Failed, Clear(false), Clear(false)),
            (Failed, Clear(true), Unclear),
            (Clear(false), Clear(true), Unclear),
            (Clear(false), Clear(false), Clear(false)),
            (Unclear, Clear(false), Unclear),
            (Unclear, Absent, Unclear),
        ];
        for (one, other, both) in cases {
            assert_eq!((one.and(other), other.and(one)), (both, both));
        }
    }
}
