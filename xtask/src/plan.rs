//! Chooses the steps of `cargo xtask test` and carries them out.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use crate::process::Log;
use crate::report::{self, Line, Verdict};
use crate::setup::{self, Machine, Need};
use crate::steps::{CHECKS, Check};
use crate::workspace::Workspace;

/// One step: something to set up, or a check.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Setup(Need),
    Check(&'static Check),
}

/// The steps for these names with what they need; all steps when there is no name.
pub(crate) fn choose(names: &[String]) -> Result<Vec<Step>, String> {
    if let Some(unknown) = names.iter().find(|name| !is_step(name)) {
        return Err(format!(
            "unknown step `{unknown}`: `cargo xtask test --list` names them"
        ));
    }
    let named = |step: &str| names.is_empty() || names.iter().any(|name| name == step);
    let checks: Vec<&Check> = CHECKS.iter().filter(|check| named(check.name)).collect();
    let wanted = |need: &Need| {
        names.iter().any(|name| name == need.name())
            || checks.iter().any(|check| check.needs.contains(need))
    };
    let setups = setup::NEEDS.iter().filter(|need| wanted(need));
    Ok(setups
        .map(|need| Step::Setup(*need))
        .chain(checks.iter().map(|check| Step::Check(check)))
        .collect())
}

/// Names and purposes of all steps.
pub(crate) fn listing() -> String {
    let setups = setup::NEEDS.iter().map(|need| Step::Setup(*need));
    let steps = setups.chain(CHECKS.iter().map(Step::Check));
    steps.fold(String::new(), |mut text, step| {
        let _ = writeln!(text, "{:12}{}", step.name(), step.what());
        text
    })
}

/// Runs the steps, says what happens, and closes with a table.
pub(crate) fn carry_out(workspace: &Workspace, plan: &[Step]) -> ExitCode {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let mut machine = Machine::default();
    let mut lines: Vec<Line> = Vec::new();
    for (index, step) in plan.iter().enumerate() {
        println!(
            "[{}/{}] {}: {}",
            index + 1,
            plan.len(),
            step.name(),
            step.what()
        );
        let started = Instant::now();
        let (verdict, output) = match obstacle(step, &lines) {
            Some(reason) => (Verdict::NotRun(reason), String::new()),
            None => run(workspace, step, &mut machine),
        };
        let line = Line {
            step: step.name(),
            verdict,
            took: started.elapsed(),
            output,
        };
        announce(&line);
        lines.push(line);
    }
    print!("{}", report::closing(&lines, in_ci));
    if report::is_good(&lines, in_ci) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Setup(need) => need.name(),
            Self::Check(check) => check.name,
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Self::Setup(need) => need.what(),
            Self::Check(check) => check.what,
        }
    }
}

fn is_step(name: &str) -> bool {
    setup::NEEDS.iter().any(|need| need.name() == name)
        || CHECKS.iter().any(|check| check.name == name)
}

/// The reason why a step cannot run after what happened before it.
fn obstacle(step: &Step, lines: &[Line]) -> Option<String> {
    let Step::Check(check) = step else {
        return None;
    };
    let needs = |line: &&Line| check.needs.iter().any(|need| need.name() == line.step);
    lines
        .iter()
        .filter(needs)
        .find_map(|line| match &line.verdict {
            Verdict::Passed(_) => None,
            Verdict::Failed(_) => Some(format!("setting up {} failed", line.step)),
            Verdict::NotRun(reason) => Some(reason.clone()),
        })
}

/// Returns the output of a failed step too.
fn run(workspace: &Workspace, step: &Step, machine: &mut Machine) -> (Verdict, String) {
    let mut log = match Log::create(workspace.log(step.name())) {
        Ok(log) => log,
        Err(reason) => return (Verdict::Failed(reason), String::new()),
    };
    let verdict = match step {
        Step::Setup(need) => machine.set_up(*need, workspace, &mut log),
        Step::Check(check) => check.run(workspace, &mut log),
    };
    if !matches!(verdict, Verdict::Failed(_)) {
        return (verdict, String::new());
    }
    let output = report::without_progress(&log.text());
    print!("{}", report::output_of(step.name(), &output));
    (verdict, output)
}

fn announce(line: &Line) {
    let took = report::duration(line.took);
    match &line.verdict {
        Verdict::Passed(detail) if detail.is_empty() => println!("      passed in {took}"),
        Verdict::Passed(detail) => println!("      passed in {took}: {detail}"),
        Verdict::Failed(reason) => println!("      FAILED after {took}: {reason}"),
        Verdict::NotRun(reason) => println!("      NOT RUN: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_choose_steps_and_what_they_need() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["fmt"], &["fmt"]),
            (&["streams"], &["node", "streams"]),
            (&["google", "fmt"], &["python", "fmt", "google"]),
            (&["chromium"], &["chromium"]),
            (&["ui"], &["node", "python", "chromium", "ui"]),
            (&["client"], &["node", "chromium", "espeak", "client"]),
        ];
        for (names, expected) in cases {
            assert_eq!(chosen(names), *expected);
        }
    }

    #[test]
    fn all_steps_have_distinct_names() {
        let mut all = chosen(&[]);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(count, all.len());
        assert_eq!(listing().lines().count(), all.len());
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert!(choose(&["nonsense".into()]).is_err());
    }

    #[test]
    fn a_check_does_not_run_without_what_it_needs() {
        let streams = choose(&["streams".into()]).unwrap()[1];
        let cases = [
            (Verdict::Passed(String::new()), None),
            (Verdict::Failed("x".into()), Some("setting up node failed")),
            (Verdict::NotRun("no node".into()), Some("no node")),
        ];
        for (verdict, expected) in cases {
            let lines = [Line {
                step: "node",
                verdict,
                took: Duration::ZERO,
                output: String::new(),
            }];
            assert_eq!(obstacle(&streams, &lines).as_deref(), expected);
        }
    }

    fn chosen(names: &[&str]) -> Vec<&'static str> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let plan = choose(&names).unwrap();
        plan.iter().map(Step::name).collect()
    }
}
