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

/// Of the output of a failed step this much is printed first: who sees only the beginning of a long log sees the reason.
const FIRST_SHOWN: usize = 60;

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

/// The text without the lines in which cargo tells how far it is.
pub(crate) fn without_progress(text: &str) -> String {
    let lines = text.lines().filter(|line| !is_progress(line));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn is_progress(line: &str) -> bool {
    let verb = line.get(..PROGRESS_COLUMN).unwrap_or_default();
    PROGRESS.contains(&verb.trim_start()) && line[PROGRESS_COLUMN..].starts_with(' ')
}

/// The output of a failed step, its end first.
pub(crate) fn output_of(step: &str, output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(FIRST_SHOWN));
    let mut text = format!(
        "----- output of {step}: its last {} lines -----\n",
        last.len()
    );
    let mut write = |lines: &[&str]| {
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
    };
    write(last);
    if !before.is_empty() {
        write(&[&format!("----- output of {step}: what came before -----")]);
        write(before);
    }
    write(&[&format!("----- end of the output of {step} -----")]);
    text
}

/// Tells whether the run is good. In CI nothing may be missing.
pub(crate) fn is_good(lines: &[Line], in_ci: bool) -> bool {
    count(lines, in_ci).1 == 0
}

/// The table of all steps, below it what failed steps said last, and `N passed, M failed` on a line of its own.
pub(crate) fn closing(lines: &[Line], in_ci: bool) -> String {
    let width = lines.iter().map(|l| l.step.len()).max().unwrap_or(0).max(4);
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
    fn progress_of_cargo_is_left_out() {
        let log = "$ cargo build\n  Downloaded ring v0.17.14\n   Compiling ring v0.17.14\n    Checking a v1 (/a)\n\
            warning: unused\n     Running tests/crash.rs (target/crash)\n    Finished `dev` profile\n  Compiling is a word\n\
            Compiling too\n   é Compiling\n";
        let left = "$ cargo build\nwarning: unused\n     Running tests/crash.rs (target/crash)\n  Compiling is a word\n\
            Compiling too\n   é Compiling\n";
        assert_eq!(without_progress(log), left);
    }

    #[test]
    fn the_end_of_the_output_comes_first() {
        let said: String = (1..=100)
            .map(|number| format!("line {number}.\n"))
            .collect();
        let text = output_of("chat", &said);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "----- output of chat: its last 60 lines -----");
        assert_eq!((lines[1], lines[60]), ("line 41.", "line 100."));
        assert_eq!(lines[61], "----- output of chat: what came before -----");
        assert_eq!((lines[62], lines[101]), ("line 1.", "line 40."));
        assert_eq!(lines[102], "----- end of the output of chat -----");
        assert_eq!(lines.len(), 103);
        let short = output_of("chat", "broken\n");
        assert_eq!(short.lines().count(), 3);
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
