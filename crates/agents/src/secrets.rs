//! Hides the bridge's secrets in foreign texts, and the agent's address from users.
//!
//! A gateway may quote the refused request, and with it the key. Hide before shortening such a text: a secret that is
//! cut in two is not recognised.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock};

/// The replacement of a secret.
const HIDDEN: &str = "[hidden]";
/// A shorter secret occurs in ordinary text, and protects nothing.
const MIN_BYTES: usize = 8;
/// How many tokens are hidden, those that were used last: they are the ones that an answer may quote. Every line of the log is
/// searched for them.
const MAX_TOKENS: usize = 256;

/// One for the process, like the log.
static OURS: RwLock<HiddenStrings> = RwLock::new(HiddenStrings {
    secrets: Vec::new(),
    tokens: VecDeque::new(),
    addresses: Vec::new(),
});

/// The strings that are hidden.
#[derive(Default)]
pub struct HiddenStrings {
    secrets: Vec<String>,
    /// Secrets that expire; those that were used last come last.
    tokens: VecDeque<String>,
    addresses: Vec<String>,
}

/// Hides these from now on, in addition to those of other servers in this process.
pub fn keep(hidden: HiddenStrings) {
    let mut ours = OURS.write().unwrap_or_else(PoisonError::into_inner);
    ours.secrets.extend(hidden.secrets);
    ours.addresses.extend(hidden.addresses);
    ours.put_in_order();
}

/// Hides a token that is used, until many others were.
pub fn keep_token(token: &str) {
    let mut ours = OURS.write().unwrap_or_else(PoisonError::into_inner);
    ours.keep_token(token);
}

/// The text without secrets, for the log.
pub fn hide(text: &str) -> Cow<'_, str> {
    // Poisoning is ignored: no writer can leave the lists inconsistent.
    let ours = OURS.read().unwrap_or_else(PoisonError::into_inner);
    ours.hide(text)
}

/// The text without secrets and without the agent's address.
pub fn hide_from_users(text: &str) -> Cow<'_, str> {
    let ours = OURS.read().unwrap_or_else(PoisonError::into_inner);
    ours.hide_from_users(text)
}

impl HiddenStrings {
    /// Addresses are `HOST:PORT`, or `HOST` alone.
    pub fn new(mut secrets: Vec<String>, mut addresses: Vec<String>) -> Self {
        secrets.retain(|secret| secret.trim().len() >= MIN_BYTES);
        addresses.retain(|address| !address.is_empty());
        for address in &mut addresses {
            address.make_ascii_lowercase();
        }
        let mut hidden = Self {
            secrets,
            tokens: VecDeque::new(),
            addresses,
        };
        hidden.put_in_order();
        hidden
    }

    fn keep_token(&mut self, token: &str) {
        if token.len() < MIN_BYTES {
            return;
        }
        let used = match self.tokens.iter().position(|it| it == token) {
            Some(at) => self.tokens.remove(at),
            None => None,
        };
        if self.tokens.len() == MAX_TOKENS {
            self.tokens.pop_front();
        }
        let used = used.unwrap_or_else(|| token.to_owned());
        self.tokens.push_back(used);
    }

    /// Longer ones first: one may be a part of another.
    fn put_in_order(&mut self) {
        for texts in [&mut self.secrets, &mut self.addresses] {
            texts.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            texts.dedup();
        }
    }

    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut shown = Cow::Borrowed(text);
        for secret in self.secrets.iter().chain(&self.tokens) {
            if shown.contains(secret.as_str()) {
                shown = Cow::Owned(shown.replace(secret.as_str(), HIDDEN));
            }
        }
        shown
    }

    pub fn hide_from_users<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut shown = self.hide(text);
        if let Some(begun) = self.begun_at_the_end(&shown) {
            shown = Cow::Owned(format!("{}{HIDDEN}", &shown[..begun]));
        }
        for address in &self.addresses {
            if let Some(without) = without_address(&shown, address) {
                shown = Cow::Owned(without);
            }
        }
        shown
    }

    /// Where a truncated secret begins at the end of a text: the close reason of a WebSocket has room for 123 bytes.
    fn begun_at_the_end(&self, text: &str) -> Option<usize> {
        let text = text.trim_end_matches(['…', '.', ' ']);
        let secrets = self.secrets.iter().chain(&self.tokens);
        let begun = secrets.filter_map(|secret| {
            let mut ends = (MIN_BYTES..secret.len()).rev();
            let end = ends.find(|end| secret.get(..*end).is_some_and(|it| text.ends_with(it)))?;
            Some(text.len() - end)
        });
        begun.min()
    }
}

/// The text without an address (given in lower case), if the text contains it as a whole name.
fn without_address(text: &str, address: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let mut shown = String::new();
    let mut from = 0;
    for (at, _) in lower.match_indices(address) {
        let end = at + address.len();
        let before = lower[..at].chars().next_back();
        let mut after = lower[end..].chars();
        let goes_on = match after.next() {
            // The end of a sentence is the end of a name.
            Some('.') => after.next().is_some_and(is_name),
            next => next.is_some_and(is_name),
        };
        if goes_on || before.is_some_and(|c| is_name(c) || c == '.') {
            continue;
        }
        shown += &text[from..at];
        shown += HIDDEN;
        from = end;
    }
    (from > 0).then(|| shown + &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden() -> HiddenStrings {
        let secrets = ["a-key-of-alice-0123", "short"].map(str::to_owned);
        let addresses = ["ADK.internal:8000", "adk.internal", "localhost:80"];
        HiddenStrings::new(secrets.into(), addresses.map(str::to_owned).into())
    }

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        for (text, shown) in [
            ("nothing to hide, short", "nothing to hide, short"),
            ("key=a-key-of-alice-0123.", "key=[hidden]."),
            ("a-key-of-alice-0123a-key-of-alice-0123", "[hidden][hidden]"),
            ("http://adk.internal:8000/x", "http://adk.internal:8000/x"),
        ] {
            assert_eq!(hidden().hide(text), shown);
        }
    }

    #[test]
    fn the_tokens_that_were_used_last_are_hidden() {
        let mut hidden = hidden();
        for number in 0..=MAX_TOKENS {
            hidden.keep_token(&format!("token-{number:05}"));
            hidden.keep_token("token-00001");
        }
        hidden.keep_token("short");
        assert_eq!(hidden.hide("token-00256, short"), "[hidden], short");
        assert_eq!(hidden.hide("token-00001"), "[hidden]");
        assert_eq!(hidden.hide("token-00000"), "token-00000");
        assert_eq!(
            hidden.hide_from_users("it was token-0025…"),
            "it was [hidden]"
        );
    }

    #[test]
    fn users_are_shown_neither_half_a_secret_nor_an_address() {
        for (text, shown) in [
            ("it was a-key-of-alice-0", "it was [hidden]"),
            ("it was a-key-of-…", "it was [hidden]"),
            ("it was a-key-of...", "it was [hidden]"),
            ("it was a-key-", "it was a-key-"),
            ("a-key-of the endpoint", "a-key-of the endpoint"),
            ("at http://adk.internal:8000/x", "at http://[hidden]/x"),
            ("HOST: ADK.INTERNAL:8000, ü", "HOST: [hidden], ü"),
            ("adk.internal. Try again", "[hidden]. Try again"),
            ("not adk.internal.example", "not adk.internal.example"),
            ("not my.adk.internal", "not my.adk.internal"),
            ("localhost, localhost:8080", "localhost, localhost:8080"),
            ("localhost:80/x", "[hidden]/x"),
        ] {
            assert_eq!(hidden().hide_from_users(text), shown);
        }
    }
}
