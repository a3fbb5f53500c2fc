//! The project's commands: `cargo xtask run | test | format | fuzz | fleet | bench | release`.
//!
//! It has no dependencies, so that the first command on a fresh machine starts at once.

#![allow(
    clippy::print_stdout,
    reason = "a command line tool talks to its user on standard output"
)]

mod fuzz;
mod guard;
mod launch;
mod plan;
mod process;
mod report;
mod setup;
mod steps;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  run [--release] [ARGUMENTS]
                       build the page, the documents and the server, then start `adk-bridge serve ARGUMENTS`; --release makes a fast one
  test [STEP]...       set up what the checks need, then run them all, or only the named ones
  test --list          name the steps
  format               format the code in every language, and mend what linters can
  fleet [--kills N] [--seed N] [--only TEXT]
                       kill replicas (500 times) while stock chats talk; `test fleet` is its short form
  fuzz TARGET [SECONDS]
                       search for input that a parser does not survive; crates/fuzz/src/lib.rs lists the targets
  bench guard [--base REV]
                       compare what the server takes with a base commit, by counted instructions and system calls
  bench [protocol|server|profile|crowd|delay|data|page|overload|fleet] [ARGUMENTS]
                       measure the protocol crate, the server's CPU and memory under load, the instructions and system
                       calls of a turn and a delta by component, thousands of connections, the delay of a delta, a store with a
                       million messages, the page, more clients than are allowed, and hand-overs of replicas
  release              build what a release consists of for this platform into target/release-artifacts
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    let rest: Vec<String> = arguments.collect();
    let workspace = match Workspace::find() {
        Ok(workspace) => workspace,
        Err(problem) => return fail(&problem),
    };
    match command.as_deref() {
        Some("run") => launch::run(&workspace, &rest).unwrap_or_else(|problem| fail(&problem)),
        Some("bench") => launch::bench(&workspace, &rest).unwrap_or_else(|problem| fail(&problem)),
        Some("fleet") => launch::fleet(&workspace, &rest).unwrap_or_else(|problem| fail(&problem)),
        Some("fuzz") => fuzz::run(&workspace, &rest).unwrap_or_else(|problem| fail(&problem)),
        Some("release") => {
            launch::release(&workspace, &rest).unwrap_or_else(|problem| fail(&problem))
        }
        Some("format") => launch::format(&workspace).unwrap_or_else(|problem| fail(&problem)),
        Some("test") => test(&workspace, &rest),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some(other) => misuse(&format!("unknown command `{other}`")),
        None => misuse("no command given"),
    }
}

fn test(workspace: &Workspace, arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|a| a == "--list") {
        print!("{}", plan::listing());
        return ExitCode::SUCCESS;
    }
    match plan::choose(arguments) {
        Ok(plan) => plan::carry_out(workspace, &plan),
        Err(problem) => misuse(&problem),
    }
}

fn misuse(problem: &str) -> ExitCode {
    eprintln!("{problem}\n\n{USAGE}");
    ExitCode::from(2)
}

fn fail(problem: &str) -> ExitCode {
    eprintln!("{problem}");
    ExitCode::FAILURE
}
