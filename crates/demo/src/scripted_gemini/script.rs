//! The exact form in which a test writes what the model is to do.
//!
//! ```text
//! script  = step { " then " step }
//! step    = "call" NAME [JSON] { " && call" NAME [JSON] }    calls in parallel; the next step follows their results
//!         | "say" TEXT | "think" TEXT | "long" N | "slow" [N] | "empty"
//!         | failure [ "once" | "twice" | N "times" ]         fails that often for the same contents, then goes on
//! failure = "http" CODE [ "midway" ] | "cut" [ "before" ] | "safety" | "blocked" | "max tokens" | "malformed"
//!         | "go away" SPAN | "drop" [ "after" SPAN ] | "close" CODE [ "after" SPAN ]      live connections only
//! ```
//!
//! An event on a live connection that happens after a while does not delay the next steps.

use std::time::Duration;

use adk_bridge_protocol::json_text::Json;

/// One thing that the model does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Say(String),
    Think(String),
    /// This many words.
    Long(usize),
    /// This many words, slowly.
    Slow(usize),
    Calls(Vec<Call>),
    /// An answer without any content.
    Empty,
    Fail {
        how: Failure,
        times: Option<u32>,
    },
    /// Says what was attached.
    Describe,
    /// Answers from the web.
    Search(String),
    /// Runs code.
    Compute(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) args: Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Http(u16),
    HttpMidway(u16),
    Cut,
    CutBefore,
    Safety,
    Blocked,
    MaxTokens,
    Malformed,
    Live(Line),
}

/// A fault on the connection of a live conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// A warning; the connection is closed after this time.
    GoAway(Duration),
    Drop {
        after: Duration,
    },
    Close {
        code: u16,
        after: Duration,
    },
}

/// Longer answers are of no use, and a request must not be able to ask for an endless one.
const MAX_WORDS: usize = 1_000_000;
/// Long enough for a person to stop it in the middle.
const SLOW_WORDS: usize = 40;

/// No test waits longer.
const LONGEST_SPAN: Duration = Duration::from_secs(3_600);

/// Reads a script; a text in any other form is `None`.
pub(super) fn parse(text: &str) -> Option<Vec<Step>> {
    let mut rest = text.trim();
    let mut steps = Vec::new();
    loop {
        let (step, after) = step(rest)?;
        steps.push(step);
        if after.is_empty() {
            return Some(steps);
        }
        rest = word(after, "then")?;
    }
}

fn step(text: &str) -> Option<(Step, &str)> {
    if word(text, "call").is_some() {
        return calls(text);
    }
    let end = next_step(text).unwrap_or(text.len());
    let (own, after) = (text[..end].trim_end(), text[end..].trim_start());
    if let Some(said) = word(own, "say") {
        return Some((Step::Say(said.to_owned()), after));
    }
    if let Some(thought) = word(own, "think").filter(|thought| word(thought, "about").is_none()) {
        return Some((Step::Think(thought.to_owned()), after));
    }
    Some((fixed(own)?, after))
}

/// The position of a ` then ` before a valid step: sentences may contain the word, too.
fn next_step(text: &str) -> Option<usize> {
    text.match_indices(" then ").map(|(at, _)| at).find(|at| {
        let following = &text[at + " then ".len()..];
        let end = following.find(" then ").unwrap_or(following.len());
        ["call", "say", "think"]
            .iter()
            .any(|verb| word(following, verb).is_some())
            || fixed(following[..end].trim()).is_some()
    })
}

fn fixed(text: &str) -> Option<Step> {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let step = match words[..] {
        ["empty"] => Step::Empty,
        ["slow"] => Step::Slow(SLOW_WORDS),
        ["slow", count] => Step::Slow(count.parse::<usize>().ok()?.min(MAX_WORDS)),
        ["long", count] => Step::Long(count.parse::<usize>().ok()?.min(MAX_WORDS)),
        [ref failure @ .., "once"] => failing(failure, Some(1))?,
        [ref failure @ .., "twice"] => failing(failure, Some(2))?,
        [ref failure @ .., count, "times"] => failing(failure, Some(count.parse().ok()?))?,
        ref failure => failing(failure, None)?,
    };
    Some(step)
}

fn failing(words: &[&str], times: Option<u32>) -> Option<Step> {
    let code = |code: &str| code.parse().ok().filter(|code| (400..600).contains(code));
    let how = match words {
        ["http", status] => Failure::Http(code(status)?),
        ["http", status, "midway"] => Failure::HttpMidway(code(status)?),
        ["cut"] => Failure::Cut,
        ["cut", "before"] => Failure::CutBefore,
        ["safety"] => Failure::Safety,
        ["blocked"] => Failure::Blocked,
        ["max", "tokens"] => Failure::MaxTokens,
        ["malformed"] => Failure::Malformed,
        ["go", "away", left] => Failure::Live(Line::GoAway(span(left)?)),
        ["drop", after @ ..] => Failure::Live(Line::Drop {
            after: delay(after)?,
        }),
        ["close", code, after @ ..] => Failure::Live(Line::Close {
            code: code
                .parse()
                .ok()
                .filter(|code| (1000..5000).contains(code))?,
            after: delay(after)?,
        }),
        _ => return None,
    };
    Some(Step::Fail { how, times })
}

fn delay(words: &[&str]) -> Option<Duration> {
    match words {
        [] => Some(Duration::ZERO),
        ["after", after] => span(after),
        _ => None,
    }
}

/// `2s`, `500ms`.
fn span(text: &str) -> Option<Duration> {
    let milliseconds = match text.strip_suffix("ms") {
        Some(number) => number.parse().ok()?,
        None => text
            .strip_suffix('s')?
            .parse::<u64>()
            .ok()?
            .checked_mul(1_000)?,
    };
    Some(Duration::from_millis(milliseconds)).filter(|span| *span <= LONGEST_SPAN)
}

fn calls(text: &str) -> Option<(Step, &str)> {
    let mut rest = text;
    let mut calls = Vec::new();
    loop {
        let (call, after) = match call(word(rest, "call")?) {
            Ok(read) => read,
            Err(problem) => return Some((Step::Say(problem), "")),
        };
        calls.push(call);
        match after.strip_prefix("&&") {
            Some(next) => rest = next.trim_start(),
            None => return Some((Step::Calls(calls), after)),
        }
    }
}

/// The JSON itself determines where it ends: its strings may contain everything that joins steps.
fn call(text: &str) -> Result<(Call, &str), String> {
    let end = text
        .find(|c: char| c.is_whitespace() || c == '{')
        .unwrap_or(text.len());
    let (name, rest) = (&text[..end], text[end..].trim_start());
    let name = name.to_owned();
    if !rest.starts_with('{') {
        return Ok((
            Call {
                name,
                args: Json::empty(),
            },
            rest,
        ));
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Json>();
    match values.next() {
        Some(Ok(args)) => {
            let after = rest[values.byte_offset()..].trim_start();
            Ok((Call { name, args }, after))
        }
        Some(Err(error)) => Err(format!("I cannot read the arguments of {name}: {error}.")),
        None => Err(format!("I cannot read the arguments of {name}.")),
    }
}

/// The text after the first word, if that is `wanted`.
fn word<'t>(text: &'t str, wanted: &str) -> Option<&'t str> {
    let start = text
        .get(..wanted.len())
        .filter(|start| start.eq_ignore_ascii_case(wanted))?;
    let rest = &text[start.len()..];
    rest.starts_with(char::is_whitespace)
        .then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, args: serde_json::Value) -> Call {
        Call {
            name: name.into(),
            args: args.into(),
        }
    }

    fn fail(how: Failure, times: Option<u32>) -> Step {
        Step::Fail { how, times }
    }

    #[test]
    fn scripts_are_read() {
        let say = |text: &str| Step::Say(text.into());
        let weather = || call("get_weather", json!({"location": "Tokyo"}));
        let cases = [
            ("say hello", vec![say("hello")]),
            ("Say hello then goodbye", vec![say("hello then goodbye")]),
            ("say a then say b", vec![say("a"), say("b")]),
            (
                "call get_location",
                vec![Step::Calls(vec![call("get_location", json!({}))])],
            ),
            (
                r#"call get_weather {"location":"Tokyo"}"#,
                vec![Step::Calls(vec![weather()])],
            ),
            (
                r#"call get_weather {"location":"Tokyo"} && call get_location && call x{"a":" && call y then call z }"}"#,
                vec![Step::Calls(vec![
                    weather(),
                    call("get_location", json!({})),
                    call("x", json!({"a": " && call y then call z }"})),
                ])],
            ),
            (
                r#"say one moment then call a {} && call b {} then call c then say done"#,
                vec![
                    say("one moment"),
                    Step::Calls(vec![call("a", json!({})), call("b", json!({}))]),
                    Step::Calls(vec![call("c", json!({}))]),
                    say("done"),
                ],
            ),
            (
                "think hard then say yes",
                vec![Step::Think("hard".into()), say("yes")],
            ),
            ("http 503", vec![fail(Failure::Http(503), None)]),
            ("HTTP 503 twice", vec![fail(Failure::Http(503), Some(2))]),
            (
                "http 429 3 times then say ok",
                vec![fail(Failure::Http(429), Some(3)), say("ok")],
            ),
            (
                "http 500 midway",
                vec![fail(Failure::HttpMidway(500), None)],
            ),
            ("cut", vec![fail(Failure::Cut, None)]),
            ("cut before once", vec![fail(Failure::CutBefore, Some(1))]),
            (
                "say half then cut",
                vec![say("half"), fail(Failure::Cut, None)],
            ),
            (
                "call a then http 503",
                vec![
                    Step::Calls(vec![call("a", json!({}))]),
                    fail(Failure::Http(503), None),
                ],
            ),
            ("safety", vec![fail(Failure::Safety, None)]),
            ("blocked", vec![fail(Failure::Blocked, None)]),
            ("max tokens", vec![fail(Failure::MaxTokens, None)]),
            ("malformed", vec![fail(Failure::Malformed, None)]),
            ("empty", vec![Step::Empty]),
            (
                "go away 2s then say bye",
                vec![
                    fail(Failure::Live(Line::GoAway(Duration::from_secs(2))), None),
                    say("bye"),
                ],
            ),
            (
                "close 1011 once",
                vec![fail(
                    Failure::Live(Line::Close {
                        code: 1011,
                        after: Duration::ZERO,
                    }),
                    Some(1),
                )],
            ),
            (
                "drop after 50ms twice",
                vec![fail(
                    Failure::Live(Line::Drop {
                        after: Duration::from_millis(50),
                    }),
                    Some(2),
                )],
            ),
            ("long 7", vec![Step::Long(7)]),
            ("long 99999999999", vec![Step::Long(MAX_WORDS)]),
            ("slow", vec![Step::Slow(SLOW_WORDS)]),
            ("slow 3", vec![Step::Slow(3)]),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn sentences_are_no_scripts() {
        let sentences = [
            "",
            "hello",
            "say",
            "cut the cake",
            "call",
            "caller id",
            "http 200",
            "http 5000",
            "long time",
            "think about cats",
            "max",
            "call a b",
            "call a {} and more",
            "safety first",
            "go away",
            "drop it",
            "close 11",
            "drop after 2h",
        ];
        for text in sentences {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn unreadable_arguments_are_reported() {
        let Some(steps) = parse(r#"call a {"x": } && call b"#) else {
            panic!("not a script");
        };
        assert!(
            matches!(&steps[..], [Step::Say(said)] if said.starts_with("I cannot read the arguments of a: "))
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "((call|say|then|&&|cut|http|503|\\{|\\}|\"|日本|a) ?){0,12}") {
            let _: Option<Vec<Step>> = parse(&text);
        }

        #[test]
        fn what_shall_be_said_is_said(text in "[a-z日本語,.!?]{1,10}( [a-z日本語,.!?]{1,10}){0,5}") {
            proptest::prop_assume!(next_step(&text).is_none());
            proptest::prop_assert_eq!(parse(&format!("say {text}")), Some(vec![Step::Say(text)]));
        }
    }
}
