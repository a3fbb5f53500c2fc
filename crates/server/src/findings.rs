//! What a look at a configuration or a machine has found, as people read it.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use crate::secrets;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Fine,
    Warning,
    Problem,
}

/// One thing that was looked at: what it is, and what is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    subject: String,
    says: String,
}

impl Finding {
    pub fn fine(subject: impl Into<String>, says: impl fmt::Display) -> Self {
        Self::new(Severity::Fine, subject, says)
    }

    pub fn warning(subject: impl Into<String>, says: impl fmt::Display) -> Self {
        Self::new(Severity::Warning, subject, says)
    }

    pub fn problem(subject: impl Into<String>, says: impl fmt::Display) -> Self {
        Self::new(Severity::Problem, subject, says)
    }

    /// A problem whose text begins with its key.
    pub fn of_config(error: &crate::config::ConfigError) -> Self {
        let text = error.to_string();
        match text.split_once(": ") {
            Some((key, says)) => Self::problem(key, says),
            None => Self::problem("configuration", text),
        }
    }

    fn new(severity: Severity, subject: impl Into<String>, says: impl fmt::Display) -> Self {
        Self {
            severity,
            subject: subject.into(),
            says: says.to_string(),
        }
    }
}

/// One line, without secrets; what others have said cannot make another one.
impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Fine => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        };
        let text = format!("{word:<8} {}: {}", self.subject, self.says);
        let is_plain = |c: char| !c.is_control();
        let text = text.replace(|c| !is_plain(c), " ");
        formatter.write_str(&secrets::hide(&text))
    }
}

/// Prints findings, the most serious last, where a terminal shows them.
pub fn print(findings: &mut [Finding]) -> std::io::Result<()> {
    findings.sort_by_key(|finding| finding.severity);
    let mut out = std::io::stdout().lock();
    for finding in &*findings {
        writeln!(out, "{finding}")?;
    }
    out.flush()
}

/// The most serious of them.
pub fn worst(findings: &[Finding]) -> Severity {
    let severities = findings.iter().map(|finding| finding.severity);
    severities.max().unwrap_or(Severity::Fine)
}

/// 0, 1 or 2.
impl From<Severity> for ExitCode {
    fn from(severity: Severity) -> Self {
        Self::from(severity as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding::warning("agent a", "it said\r\nproblem  store.url: \u{1b}[2K");
        let line = finding.to_string();
        assert_eq!(
            line, "warning  agent a: it said  problem  store.url:  [2K",
            "{line:?}"
        );
        let all = [Finding::fine("a", "b"), finding];
        assert_eq!(worst(&all), Severity::Warning);
        assert_eq!(worst(&[]), Severity::Fine);
    }
}
