//! The model's answer: the script's next steps, given the declared tools and the results so far.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use adk_bridge_protocol::json_text::Json;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::arithmetic;
use super::error::ApiError;
use super::request::{Conversation, Request};
use super::results::{describe, summary};
use super::script::{Call, Failure, Line, Step, parse};
use super::sentence::understand;
use crate::picture;

/// One answer, before it is cut into chunks.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) pieces: Vec<Piece>,
    pub(super) end: End,
    /// Whether its pieces come at the slow pace.
    pub(super) slow: bool,
    /// Whether there were thoughts before the words, which then have a signature.
    pub(super) thought: bool,
    pub(super) grounding: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Thought(String),
    Text(String),
    Words(usize),
    Call(Call),
    /// A part that is sent whole.
    Whole(Value),
    /// A picture of this prompt.
    Picture(String),
    /// A fault on the connection of a live conversation.
    Line(Line),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum End {
    #[default]
    Stop,
    MaxTokens,
    Safety,
    Malformed,
    /// The prompt was refused: there is no answer.
    Blocked,
    /// The connection drops.
    Cut,
    /// An error in place of the next chunk.
    Broken(ApiError),
    /// An error in place of the whole answer.
    Refused(ApiError),
}

/// How often each conversation has failed on request.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<[u8; 32], u32>>);

/// A test uses a handful; beyond this number, old ones do not matter any more.
const MAX_REMEMBERED_FAILURES: usize = 10_000;

pub(super) fn decide(request: &Request<'_>, contents: &RawValue, failures: &Failures) -> Answer {
    let conversation = request.conversation();
    let steps = parse(&conversation.prompt).unwrap_or_else(|| understand(&conversation));
    let is_call = |step: &Step| matches!(step, Step::Calls(_));
    let done = conversation.rounds.len();
    let round: Vec<&[Step]> = steps.split_inclusive(is_call).collect();
    let round = round.get(done).copied().unwrap_or_default();

    let mut answer = Answer::default();
    let speaks = |step: &Step| {
        matches!(
            step,
            Step::Say(_) | Step::Empty | Step::Long(_) | Step::Slow(_)
        )
    };
    if let Some(results) = conversation.rounds.last()
        && !round.iter().any(speaks)
    {
        let space = if round.iter().any(is_call) { " " } else { "" };
        answer.say(summary(results) + space);
    }
    for step in round {
        if !answer.take(step, request, &conversation, || {
            failures.again(contents, step)
        }) {
            break;
        }
    }
    let says_nothing = answer
        .pieces
        .iter()
        .all(|piece| matches!(piece, Piece::Line(_)));
    if says_nothing && !round.contains(&Step::Empty) {
        answer.fill();
    }
    answer
}

impl Answer {
    /// Performs a step. Returns whether the next step may follow.
    fn take(
        &mut self,
        step: &Step,
        request: &Request<'_>,
        conversation: &Conversation,
        fails_again: impl FnOnce() -> bool,
    ) -> bool {
        match step {
            Step::Empty => {}
            Step::Say(text) => self.say(text.clone()),
            Step::Think(text) => {
                self.thought = true;
                if request.wants_thoughts {
                    self.pieces.push(Piece::Thought(text.clone()));
                }
            }
            Step::Long(words) => self.pieces.push(Piece::Words(*words)),
            Step::Slow(words) => {
                self.slow = true;
                self.pieces.push(Piece::Words(*words));
            }
            Step::Describe => self.say(describe(&conversation.attachments)),
            Step::Search(query) => self.search(query, request),
            Step::Compute(sum) => self.compute(sum, request),
            Step::Calls(calls) => return self.call(calls, request),
            Step::Fail { how, .. } => {
                if fails_again() {
                    return self.fail(*how, request);
                }
            }
        }
        true
    }

    fn say(&mut self, text: String) {
        // Texts of one answer that were written separately stay separate.
        if let Some(Piece::Text(before)) = self.pieces.last_mut() {
            if !before.ends_with(char::is_whitespace) {
                before.push(' ');
            }
            before.push_str(&text);
            return;
        }
        self.pieces.push(Piece::Text(text));
    }

    fn call(&mut self, calls: &[Call], request: &Request<'_>) -> bool {
        if let [Call { name, args }] = calls
            && name == "generate_image"
            && request.tools.function(name).is_none()
            && request.wants_images
        {
            let prompt = args.get("prompt");
            let prompt = prompt.as_ref().and_then(Json::as_str).unwrap_or_default();
            self.say(format!("Here is {prompt}."));
            self.pieces.push(Piece::Picture(prompt.into_owned()));
            return true;
        }
        if let Some(call) = calls
            .iter()
            .find(|call| request.tools.function(&call.name).is_none())
        {
            self.say(format!(
                "I cannot do that: there is no tool named {} here.",
                call.name
            ));
            return false;
        }
        for call in calls {
            let mut call = call.clone();
            // Other clients declare the same tool with an argument of this name.
            if call.name == "get_weather"
                && request
                    .tools
                    .function(&call.name)
                    .is_some_and(|it| it.takes("city") && !it.takes("location"))
                && let Some(place) = call.args.get("location")
            {
                call.args = Json::object([("city", place)]);
            }
            self.pieces.push(Piece::Call(call));
        }
        true
    }

    fn search(&mut self, query: &str, request: &Request<'_>) {
        if !request.tools.google_search {
            self.say("I cannot search the web: no search tool is declared.".into());
            return;
        }
        let claim = format!("According to the encyclopedia, {query} is well documented.");
        let second = "The handbook agrees.";
        let text = format!("{claim} {second}");
        let segment = |from: usize, to: usize| json!({"startIndex": from, "endIndex": to, "text": &text[from..to]});
        self.grounding = Some(json!({
            "webSearchQueries": [query],
            "searchEntryPoint": {"renderedContent": "<div class=\"container\">Search suggestions</div>"},
            "groundingChunks": [
                {"web": {"uri": "https://encyclopedia.example.com/entry", "title": "encyclopedia.example.com"}},
                {"web": {"uri": "https://handbook.example.org/page", "title": "handbook.example.org"}},
            ],
            "groundingSupports": [
                {"segment": segment(0, claim.len()), "groundingChunkIndices": [0], "confidenceScores": [0.97]},
                {"segment": segment(claim.len() + 1, text.len()), "groundingChunkIndices": [0, 1], "confidenceScores": [0.81, 0.92]},
            ],
        }));
        self.say(text);
    }

    fn compute(&mut self, sum: &str, request: &Request<'_>) {
        let (outcome, output, words) = match arithmetic::compute(sum) {
            Ok(number) => (
                "OUTCOME_OK",
                format!("{number}\n"),
                format!("The result is {number}."),
            ),
            Err(error) => (
                "OUTCOME_FAILED",
                format!("{error}\n"),
                format!("That cannot be computed: {error}."),
            ),
        };
        if request.tools.code_execution {
            let code = format!("print({})", arithmetic::python(sum));
            self.pieces.push(Piece::Whole(
                json!({"executableCode": {"language": "PYTHON", "code": code}}),
            ));
            self.pieces.push(Piece::Whole(
                json!({"codeExecutionResult": {"outcome": outcome, "output": output}}),
            ));
        }
        self.say(words);
    }

    /// Returns whether anything may follow.
    fn fail(&mut self, how: Failure, request: &Request<'_>) -> bool {
        self.end = match how {
            Failure::Live(_) if !request.live => {
                self.say("That happens to live connections only.".into());
                return false;
            }
            Failure::Live(line) => {
                self.pieces.push(Piece::Line(line));
                return match line {
                    Line::GoAway(_) => true,
                    Line::Drop { after } | Line::Close { after, .. } => !after.is_zero(),
                };
            }
            Failure::Http(code) => End::Refused(ApiError::of_code(code)),
            Failure::HttpMidway(code) => End::Broken(ApiError::of_code(code)),
            Failure::Cut => End::Cut,
            Failure::CutBefore => {
                self.pieces = vec![Piece::Words(0)];
                End::Cut
            }
            Failure::Safety => End::Safety,
            Failure::Blocked => End::Blocked,
            Failure::MaxTokens => End::MaxTokens,
            Failure::Malformed => End::Malformed,
        };
        false
    }

    /// Gives an answer without words the words that fit its end.
    fn fill(&mut self) {
        let words = match self.end {
            End::Stop => "It worked this time.",
            End::Cut => "This answer breaks off before its",
            End::Broken(_) => "This answer is broken by an error after",
            End::Safety => "I was about to tell you something that I must",
            End::MaxTokens => "This answer has reached the limit of its length, so it stops in the",
            End::Malformed | End::Blocked | End::Refused(_) => return,
        };
        self.say(words.into());
    }
}

impl Failures {
    /// Counts a failure. If the conversation has failed as often as its step demands, the count starts again instead.
    fn again(&self, contents: &RawValue, step: &Step) -> bool {
        let Step::Fail {
            times: Some(times), ..
        } = step
        else {
            return true;
        };
        let key: [u8; 32] = Sha256::digest(contents.get()).into();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = counts.get(&key).copied().unwrap_or_default();
        if failed >= *times {
            counts.remove(&key);
            return false;
        }
        if counts.len() >= MAX_REMEMBERED_FAILURES {
            counts.clear();
        }
        counts.insert(key, failed + 1);
        true
    }
}

impl Piece {
    /// A picture as a part with its bytes.
    pub(super) fn picture_part(prompt: &str) -> Option<Value> {
        use base64::Engine;
        let png = picture::draw(prompt).ok()?;
        let data = base64::engine::general_purpose::STANDARD.encode(png);
        Some(json!({"inlineData": {"mimeType": "image/png", "data": data}}))
    }
}
