//! What a `tool_result` frame means for the call that it names: only a clear word decides an approval.
//!
//! | the call | the frame | means |
//! |---|---|---|
//! | waits for an approval | `approved`, or `confirmed: true` | yes; a client tool's output may come with it |
//! | | `rejected`, or `confirmed: false` | no |
//! | | anything else, or both, or a result next to `approved` that is not a clear yes | unclear: nothing happens |
//! | | one of these with another field that says the opposite, that it failed, or names another approval | unclear |
//! | waits for its output | a result | the output |
//! | | `rejected` | the tool failed |
//!
//! `confirmed` is an answer under the approval's id, and also under the call's id if the result cannot be the output of
//! a client tool. For a tool that is not the client's, a result next to `approved` that does not mention an approval is
//! refused, while the approval counts.

use std::borrow::Cow;

use adk_bridge_protocol::approval::Approval;
use adk_bridge_protocol::calls::{Call, RunsOn};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::reply::{Stance, stance_of, stance_of_fields};
use adk_bridge_protocol::wire::live::{ToolResult, ToolStatus};

use super::error::ChatError;

/// What a frame says.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning<'a> {
    Approve {
        payload: Option<Json>,
        output: Option<&'a Json>,
    },
    Deny {
        reason: Option<String>,
        payload: Option<Json>,
    },
    Output(&'a Json),
    Fail(Option<String>),
    Unclear(FrameProblem),
}

/// Why a frame is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameProblem {
    NoClearWord,
    Contradiction,
    NoResult,
}

/// The state of the call when the frame arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Situation {
    stands: CallStanding,
    /// Whether the frame names the call, and not its approval.
    by_call: bool,
    on_client: bool,
    /// Whether the frame also names another approval.
    names_another: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStanding {
    /// A human has to decide.
    Asked,
    /// Nobody is asked about this call.
    Unasked,
    /// A client tool that was approved and has no output.
    Approved,
    /// A human was asked, and the question is closed.
    Over,
}

impl Situation {
    /// A call that a human has to decide about.
    pub(super) fn asked(by_call: bool, on_client: bool) -> Self {
        Self {
            stands: CallStanding::Asked,
            by_call,
            on_client,
            names_another: false,
        }
    }

    pub(super) fn of(call: &Call, frame: &ToolResult) -> Self {
        let stands = match &call.approval {
            None => CallStanding::Unasked,
            Some(approval) if Approval::is_open(approval) => CallStanding::Asked,
            Some(_) if call.is_half_answered() => CallStanding::Approved,
            Some(_) => CallStanding::Over,
        };
        Self {
            stands,
            by_call: call.id == frame.tool_call_id,
            on_client: call.runs_on == RunsOn::Client,
            names_another: (call.approval.as_ref()).is_some_and(|it| !it.is_meant_by(&frame.extra)),
        }
    }
}

/// Reads a frame.
pub(super) fn meaning(frame: &ToolResult, call: Situation) -> Meaning<'_> {
    let means = meaning_of_words(frame, call);
    let said = match &means {
        Meaning::Approve { .. } => Stance::Clear(true),
        Meaning::Deny { .. } => Stance::Clear(false),
        _ => return means,
    };
    let agrees = said.and(stance_of_fields(&frame.extra)) == said && !call.names_another;
    match agrees || call.stands != CallStanding::Asked {
        true => means,
        false => Meaning::Unclear(FrameProblem::Contradiction),
    }
}

/// What `status` and `result` say.
fn meaning_of_words(frame: &ToolResult, call: Situation) -> Meaning<'_> {
    let result = frame.result.as_ref();
    let status = match &frame.status {
        Some(ToolStatus::Approved) => Some(true),
        Some(ToolStatus::Rejected) => Some(false),
        Some(ToolStatus::Other(_)) if call.stands == CallStanding::Asked => {
            return Meaning::Unclear(FrameProblem::NoClearWord);
        }
        Some(ToolStatus::Other(_)) | None => None,
    };
    let word = |name: &str| result.and_then(|result| result.get(name));
    if call.by_call && call.on_client || call.stands == CallStanding::Unasked {
        let says_no_to = |yes: bool| {
            let no = Some(Json::from(!yes));
            word("confirmed") == no || word("approved") == no
        };
        return match call.stands == CallStanding::Asked && status.is_some_and(says_no_to) {
            true => Meaning::Unclear(FrameProblem::Contradiction),
            false => decided(status, result, None, call),
        };
    }
    let confirmed = word("confirmed");
    let speaks = confirmed.is_some() || word("approved").is_some();
    let said = match result {
        // The output of a client tool may use these words for anything.
        Some(result) if speaks || !call.on_client => stance_of(result),
        _ => Stance::Absent,
    };
    match (status, said) {
        (None, Stance::Clear(yes)) if confirmed.is_some() => decided(Some(yes), None, result, call),
        (None, _) => match confirmed.map(|it| it.as_bool()) {
            None => decided(None, result, None, call),
            Some(Some(_)) => Meaning::Unclear(FrameProblem::Contradiction),
            Some(None) => Meaning::Unclear(FrameProblem::NoClearWord),
        },
        (Some(yes), Stance::Clear(said)) if said == yes => decided(status, None, result, call),
        (Some(_), Stance::Absent) => decided(status, result, None, call),
        // A no needs no clear words, as long as they do not say yes.
        (Some(false), Stance::Unclear)
            if !speaks && result.and_then(Json::as_bool) != Some(true) =>
        {
            decided(status, result, None, call)
        }
        (Some(_), _) => Meaning::Unclear(FrameProblem::Contradiction),
    }
}

/// `result` is the output or, for a no, the reason; `answer` is the object that contains `confirmed`.
fn decided<'a>(
    verdict: Option<bool>,
    result: Option<&'a Json>,
    answer: Option<&Json>,
    call: Situation,
) -> Meaning<'a> {
    let payload = answer.and_then(|answer| answer.get("payload"));
    let reason = result.and_then(Json::as_str).map(Cow::into_owned);
    match (call.stands, verdict) {
        (CallStanding::Unasked | CallStanding::Approved, Some(false)) => Meaning::Fail(reason),
        (CallStanding::Asked | CallStanding::Over, Some(false)) => {
            Meaning::Deny { reason, payload }
        }
        (CallStanding::Asked | CallStanding::Approved | CallStanding::Over, Some(true)) => {
            Meaning::Approve {
                payload,
                // Only the output of a client tool can be null; otherwise some clients write null for an absent result.
                output: result.filter(|result| call.on_client || !result.is_null()),
            }
        }
        (CallStanding::Asked, None) => Meaning::Unclear(FrameProblem::NoClearWord),
        (_, _) => match result {
            Some(result) => Meaning::Output(result),
            None if call.stands == CallStanding::Unasked => {
                Meaning::Unclear(FrameProblem::NoResult)
            }
            None => Meaning::Unclear(FrameProblem::NoClearWord),
        },
    }
}

impl From<FrameProblem> for ChatError {
    fn from(why: FrameProblem) -> Self {
        match why {
            FrameProblem::NoClearWord => Self::UnclearToolResult,
            FrameProblem::Contradiction => Self::ContradictoryToolResult,
            FrameProblem::NoResult => Self::MissingToolResult,
        }
    }
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::message::Extra;
    use serde_json::{Value, json};

    use super::*;

    const YES: Meaning<'_> = Meaning::Approve {
        payload: None,
        output: None,
    };
    const NO: Meaning<'_> = Meaning::Deny {
        reason: None,
        payload: None,
    };
    const NEITHER: Meaning<'_> = Meaning::Unclear(FrameProblem::NoClearWord);
    const BOTH: Meaning<'_> = Meaning::Unclear(FrameProblem::Contradiction);

    /// A frame in every situation of an open approval: a server tool, a client tool named by its approval, and one
    /// named by its call, whose result may be its output.
    #[test]
    fn only_a_clear_word_decides() {
        let output = |value| Meaning::Approve {
            payload: None,
            output: Some(value),
        };
        let because = |reason: &str| Meaning::Deny {
            reason: Some(reason.to_owned()),
            payload: None,
        };
        let [
            once,
            null,
            word,
            confirmed,
            refused,
            closed,
            false_word,
            half,
            torn,
        ] = [
            json!({"at": "once"}),
            json!(null),
            json!({"confirmed": "true"}),
            json!({"confirmed": true}),
            json!({"confirmed": false}),
            json!({"error": "closed"}),
            json!(false),
            json!({"approved": "false"}),
            json!({"confirmed": true, "status": "rejected"}),
        ]
        .map(Json::from);
        let cases = [
            (json!({"status": "approved"}), YES, YES, YES),
            (json!({"status": "rejected"}), NO, NO, NO),
            (
                json!({"status": "rejected", "result": "too much"}),
                because("too much"),
                because("too much"),
                because("too much"),
            ),
            (json!({"result": confirmed}), YES, YES, NEITHER),
            (json!({"result": refused}), NO, NO, NEITHER),
            (
                json!({"status": "approved", "result": confirmed}),
                YES,
                YES,
                output(&confirmed),
            ),
            (json!({"status": "rejected", "result": refused}), NO, NO, NO),
            (
                json!({"status": "approved", "result": refused}),
                BOTH,
                BOTH,
                BOTH,
            ),
            (
                json!({"status": "rejected", "result": confirmed}),
                BOTH,
                BOTH,
                BOTH,
            ),
            (
                json!({"status": "approved", "result": {"confirmed": "true"}}),
                BOTH,
                BOTH,
                output(&word),
            ),
            (
                json!({"status": "approved", "result": once}),
                output(&once),
                output(&once),
                output(&once),
            ),
            (
                json!({"status": "approved", "result": closed}),
                BOTH,
                output(&closed),
                output(&closed),
            ),
            (
                json!({"status": "approved", "result": false_word}),
                BOTH,
                output(&false_word),
                output(&false_word),
            ),
            (
                json!({"status": "approved", "result": {"approved": "false"}}),
                BOTH,
                BOTH,
                output(&half),
            ),
            (
                json!({"status": "approved", "result": {"confirmed": true, "status": "rejected"}}),
                BOTH,
                BOTH,
                output(&torn),
            ),
            (
                json!({"result": {"confirmed": true, "approved": "false"}}),
                BOTH,
                BOTH,
                NEITHER,
            ),
            (
                json!({"result": {"confirmed": true, "approved": null}}),
                BOTH,
                BOTH,
                NEITHER,
            ),
            (
                json!({"result": {"confirmed": true, "status": "rejected"}}),
                BOTH,
                BOTH,
                NEITHER,
            ),
            (json!({"status": "rejected", "result": closed}), NO, NO, NO),
            (json!({"status": "rejected", "result": true}), BOTH, NO, NO),
            (
                json!({"status": "rejected", "result": {"approved": true}}),
                BOTH,
                BOTH,
                BOTH,
            ),
            (
                json!({"status": "approved", "result": null}),
                YES,
                output(&null),
                output(&null),
            ),
            (
                json!({"status": null, "result": null}),
                NEITHER,
                NEITHER,
                NEITHER,
            ),
            (json!({"result": once}), NEITHER, NEITHER, NEITHER),
            (json!({"result": true}), NEITHER, NEITHER, NEITHER),
            (json!({"result": "approved"}), NEITHER, NEITHER, NEITHER),
            (
                json!({"result": ["confirmed", true]}),
                NEITHER,
                NEITHER,
                NEITHER,
            ),
            (
                json!({"result": {"confirmed": "true"}}),
                NEITHER,
                NEITHER,
                NEITHER,
            ),
            (
                json!({"result": {"confirmed": 1}}),
                NEITHER,
                NEITHER,
                NEITHER,
            ),
            (
                json!({"result": {"confirmed": null}}),
                NEITHER,
                NEITHER,
                NEITHER,
            ),
            (
                json!({"result": {"Confirmed": true}}),
                NEITHER,
                NEITHER,
                NEITHER,
            ),
            (
                json!({"result": {"approved": true}}),
                NEITHER,
                NEITHER,
                NEITHER,
            ),
            (json!({"status": "denied"}), NEITHER, NEITHER, NEITHER),
            (json!({"status": "Approved"}), NEITHER, NEITHER, NEITHER),
            (json!({"status": "approved "}), NEITHER, NEITHER, NEITHER),
            (json!({"status": ""}), NEITHER, NEITHER, NEITHER),
            (
                json!({"status": "done", "result": confirmed}),
                NEITHER,
                NEITHER,
                NEITHER,
            ),
        ];
        for (fields, server, by_approval, by_call) in cases {
            let frame = frame(&fields);
            for (by_call, on_client, expected) in [
                (true, false, &server),
                (false, false, &server),
                (false, true, &by_approval),
                (true, true, &by_call),
            ] {
                let call = Situation {
                    stands: CallStanding::Asked,
                    by_call,
                    on_client,
                    names_another: false,
                };
                assert_eq!(&meaning(&frame, call), expected, "{fields} {call:?}");
            }
        }
    }

    #[test]
    fn what_the_human_filled_in_comes_with_the_answer() {
        let call = Situation {
            stands: CallStanding::Asked,
            by_call: false,
            on_client: false,
            names_another: false,
        };
        for verdict in [true, false] {
            let frame = frame(&json!({"result": {"confirmed": verdict, "payload": {"days": 3}}}));
            let payload = Some(json!({"days": 3}).into());
            let expected = match verdict {
                true => Meaning::Approve {
                    payload,
                    output: None,
                },
                false => Meaning::Deny {
                    reason: None,
                    payload,
                },
            };
            assert_eq!(meaning(&frame, call), expected);
        }
    }

    /// Without an open question, the output of a client tool may use these words for anything.
    #[test]
    fn without_an_open_question_a_result_is_an_output() {
        let [refused, once] = [json!({"confirmed": false}), json!({"at": "once"})].map(Json::from);
        let missing = Meaning::Unclear(FrameProblem::NoResult);
        let failed = Meaning::Fail(None);
        let cases = [
            (
                CallStanding::Unasked,
                true,
                json!({"result": refused}),
                Meaning::Output(&refused),
            ),
            (
                CallStanding::Unasked,
                true,
                json!({"result": once, "status": "done"}),
                Meaning::Output(&once),
            ),
            (
                CallStanding::Unasked,
                true,
                json!({"status": "approved"}),
                missing,
            ),
            (
                CallStanding::Unasked,
                true,
                json!({"status": "rejected"}),
                Meaning::Fail(None),
            ),
            (
                CallStanding::Approved,
                true,
                json!({"result": refused}),
                Meaning::Output(&refused),
            ),
            (
                CallStanding::Approved,
                true,
                json!({"status": "rejected"}),
                failed,
            ),
            (
                CallStanding::Approved,
                false,
                json!({"result": once}),
                Meaning::Output(&once),
            ),
            (
                CallStanding::Approved,
                false,
                json!({"result": {"confirmed": true}}),
                YES,
            ),
            (
                CallStanding::Approved,
                false,
                json!({"result": {"confirmed": "yes"}}),
                NEITHER,
            ),
            (
                CallStanding::Approved,
                true,
                json!({"status": "done"}),
                NEITHER,
            ),
            (
                CallStanding::Over,
                true,
                json!({"result": once}),
                Meaning::Output(&once),
            ),
            (CallStanding::Over, true, json!({"status": "rejected"}), NO),
            (
                CallStanding::Over,
                false,
                json!({"result": {"confirmed": true}}),
                YES,
            ),
        ];
        for (stands, by_call, fields, expected) in cases {
            let call = Situation {
                stands,
                by_call,
                on_client: true,
                names_another: false,
            };
            assert_eq!(
                meaning(&frame(&fields), call),
                expected,
                "{fields} {call:?}"
            );
        }
    }

    fn frame(fields: &Value) -> ToolResult {
        let text = |field: &Value| field.as_str().map(str::to_owned);
        ToolResult {
            tool_call_id: "id".into(),
            extra: Extra::default(),
            result: fields.get("result").map(Json::from),
            status: fields
                .get("status")
                .and_then(text)
                .map(|word| match word.as_str() {
                    "approved" => ToolStatus::Approved,
                    "rejected" => ToolStatus::Rejected,
                    _ => ToolStatus::Other(word),
                }),
        }
    }
}
