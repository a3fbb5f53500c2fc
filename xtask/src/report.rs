//! What became of the steps: verdicts, the closing table and the closing line.

use std::fmt::Write as _;
use std::time::Duration;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It ran and found nothing wrong; the text says how much it looked at.
    Passed(String),
    /// It ran and found something, or broke.
    Failed(String),
    /// What it needs cannot be had on this machine.
    NotRun(String),
}

/// One finished step.
pub(crate) struct Line {
    pub(crate) step: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
    /// What a failed step printed.
    pub(crate) output: String,
}

/// Programs say last what went wrong; more of it would push the table out of sight where only the end is shown.
const LAST_LINES: usize = 30;
const LAST_WIDTH: usize = 300;

/// What cargo does on its way, each on a line of its own, ending in this column.
const PROGRESS: [&str; 11] = [
    "Adding",
    "Blocking",
    "Checking",
    "Compiling",
    "Dirty",
    "Downloaded",
    "Downloading",
    "Finished",
    "Fresh",
    "Locking",
    "Updating",
];
const PROGRESS_COLUMN: usize = 12;

/// The test runners of JavaScript begin the line of a test that passed with one of these.
const PASSED: [char; 2] = ['✓', '✔'];

/// What a failed step printed, without colours and without the lines that say how far it was and what passed: they would
/// push the reason out of sight where only a part of a long log is shown.
pub(crate) fn without_progress(text: &str) -> String {
    let text = without_colours(text);
    let lines = text
        .lines()
        .filter(|line| !is_progress(line) && !has_passed(line));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn has_passed(line: &str) -> bool {
    line.trim_start().starts_with(PASSED) || line.starts_with("test ") && line.ends_with(" ... ok")
}

/// Colours are written as `ESC [`, numbers and a letter.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let letter = part.find(|c: char| c.is_ascii_alphabetic());
        text + letter.map_or("", |letter| &part[letter + 1..])
    })
}

fn is_progress(line: &str) -> bool {
    let verb = line.get(..PROGRESS_COLUMN).unwrap_or_default();
    PROGRESS.contains(&verb.trim_start()) && line[PROGRESS_COLUMN..].starts_with(' ')
}

/// The output of a failed step, marked as such.
pub(crate) fn output_of(step: &str, output: &str) -> String {
    format!("----- output of {step} -----\n{output}----- end of the output of {step} -----\n")
}

/// Tells whether the run is good. In CI nothing may be missing.
pub(crate) fn is_good(lines: &[Line], in_ci: bool) -> bool {
    count(lines, in_ci).1 == 0
}

/// The table of all steps with the time of all together, below it what failed steps said last, and `N passed, M failed` on a line of its own.
pub(crate) fn closing(lines: &[Line], in_ci: bool) -> String {
    let width = lines
        .iter()
        .map(|l| l.step.len())
        .max()
        .unwrap_or(0)
        .max("total".len());
    let mut text = format!("\n{:width$}  {:7}  {:>7}\n", "step", "result", "time");
    for line in lines {
        let (result, detail) = match &line.verdict {
            Verdict::Passed(detail) => ("passed", detail),
            Verdict::Failed(reason) => ("FAILED", reason),
            Verdict::NotRun(reason) => ("NOT RUN", reason),
        };
        let took = duration(line.took);
        let row = format!("{:width$}  {result:7}  {took:>7}  {detail}", line.step);
        let _ = writeln!(text, "{}", row.trim_end());
    }
    let total = duration(lines.iter().map(|line| line.took).sum());
    let _ = writeln!(text, "{:width$}  {:7}  {total:>7}", "total", "");
    for line in lines.iter().filter(|line| !line.output.is_empty()) {
        let _ = writeln!(text, "\nthe end of the output of {}:", line.step);
        let last: Vec<&str> = line.output.lines().rev().take(LAST_LINES).collect();
        for said in last.into_iter().rev() {
            let said: String = said.chars().take(LAST_WIDTH).collect();
            let _ = writeln!(text, "  {}", said.trim_end());
        }
    }
    let (passed, failed, skipped) = count(lines, in_ci);
    if in_ci && lines.iter().any(is_missing) {
        text.push_str("\nIn CI a step that cannot run counts as failed.\n");
    }
    let _ = write!(text, "\n{passed} passed, {failed} failed");
    if skipped > 0 {
        let _ = write!(text, ", {skipped} skipped");
    }
    text.push('\n');
    text
}

/// A duration as a person reads it.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds >= 60 {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1}s", duration.as_secs_f64())
    }
}

fn count(lines: &[Line], in_ci: bool) -> (usize, usize, usize) {
    let number = |wanted: fn(&Line) -> bool| lines.iter().filter(|line| wanted(line)).count();
    let passed = number(|line| matches!(line.verdict, Verdict::Passed(_)));
    let missing = number(is_missing);
    let failed = lines.len() - passed - missing;
    if in_ci {
        (passed, failed + missing, 0)
    } else {
        (passed, failed, missing)
    }
}

fn is_missing(line: &Line) -> bool {
    matches!(line.verdict, Verdict::NotRun(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_step_is_skipped_at_home_and_failed_in_ci() {
        let lines = lines(&[passed(), not_run()]);
        assert!(is_good(&lines, false));
        assert!(closing(&lines, false).ends_with("\n1 passed, 0 failed, 1 skipped\n"));
        assert!(!is_good(&lines, true));
        assert!(closing(&lines, true).ends_with("\n1 passed, 1 failed\n"));
        assert!(closing(&lines, true).contains("NOT RUN"));
    }

    #[test]
    fn a_failed_step_fails_everywhere_and_names_its_reason() {
        let lines = lines(&[passed(), Verdict::Failed("it broke".into())]);
        for in_ci in [false, true] {
            assert!(!is_good(&lines, in_ci));
            let text = closing(&lines, in_ci);
            assert!(text.contains("FAILED") && text.contains("it broke"));
            assert!(text.ends_with("\n1 passed, 1 failed\n"));
        }
    }

    #[test]
    fn what_a_failed_step_said_last_stands_below_the_table() {
        let said: Vec<String> = (0..1_000).map(|number| format!("line {number}.")).collect();
        let mut lines = lines(&[Verdict::Failed("it broke".into()), passed()]);
        lines[0].output = said.join("\n");
        let text = closing(&lines, true);
        assert!(text.contains("  line 999.\n") && !text.contains("line 900."));
        assert!(text.find("it broke") < text.find("line 999."));
        assert!(text.ends_with("\n1 passed, 1 failed\n"));
    }

    #[test]
    fn the_table_ends_with_the_time_of_all_steps() {
        let mut lines = lines(&[passed(), not_run(), passed()]);
        lines[0].took = Duration::from_secs(59);
        lines[2].took = Duration::from_secs(44 * 60);
        let text = closing(&lines, false);
        let total = text.lines().find(|line| line.starts_with("total "));
        assert_eq!(total, Some("total            44m59s"));
    }

    #[test]
    fn progress_of_cargo_is_left_out() {
        let log = "$ cargo build\n  Downloaded ring v0.17.14\n   Compiling ring v0.17.14\n    Checking a v1 (/a)\n\
            warning: unused\n     Running tests/crash.rs (target/crash)\n    Finished `dev` profile\n  Compiling is a word\n\
            Compiling too\n   é Compiling\n";
        let left = "$ cargo build\nwarning: unused\n     Running tests/crash.rs (target/crash)\n  Compiling is a word\n\
            Compiling too\n   é Compiling\n";
        assert_eq!(without_progress(log), left);
    }

    #[test]
    fn what_passed_and_colours_are_left_out() {
        let log = "\u{1b}[32m ✓\u{1b}[39m a test \u{1b}[33m4\u{1b}[2mms\n    ✔ another (5 ms)\n \u{1b}[41m\u{1b}[1m FAIL \u{1b}[22m\u{1b}[49m it ✓ broke\u{1b}[0m\n\
            \u{1b}[2Kkept\ntest a::b ... ok\ntest a::c ... FAILED\n";
        let left = "  FAIL  it ✓ broke\nkept\ntest a::c ... FAILED\n";
        assert_eq!(without_progress(log), left);
        assert_eq!(
            output_of("chat", "broken\n"),
            "----- output of chat -----\nbroken\n----- end of the output of chat -----\n"
        );
    }

    #[test]
    fn durations_are_readable() {
        let cases = [(340, "0.3s"), (59_900, "59.9s"), (61_000, "1m01s")];
        for (millis, shown) in cases {
            assert_eq!(duration(Duration::from_millis(millis)), shown);
        }
    }

    fn passed() -> Verdict {
        Verdict::Passed(String::new())
    }

    fn not_run() -> Verdict {
        Verdict::NotRun("node is missing".into())
    }

    fn lines(verdicts: &[Verdict]) -> Vec<Line> {
        let line = |verdict: &Verdict| Line {
            step: "step",
            verdict: verdict.clone(),
            took: Duration::ZERO,
            output: String::new(),
        };
        verdicts.iter().map(line).collect()
    }
}
