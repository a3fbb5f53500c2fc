//! How a program of ours says that it takes requests, and where.

use std::io::{BufRead as _, BufReader};
use std::process::Child;

/// Waits for the line; `None` if the program ends before, or says something else.
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
pub(crate) fn url_of(child: &mut Child) -> Option<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.take()?)
        .read_line(&mut line)
        .unwrap();
    line.trim_end()
        .strip_prefix("listening on ")
        .map(str::to_owned)
}
