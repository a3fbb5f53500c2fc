//! Reads a configuration as far as it can be read, and says everything that is wrong with it at once.

use figment::Figment;
use figment::error::Kind;
use figment::value::Value;

use super::{Config, ConfigError, without_secrets};

/// How many values that cannot be read are named; whoever has more than this has named the wrong file.
const MAX_UNREADABLE: usize = 100;

/// What a configuration says, without the values that cannot be read, and why these cannot.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) config: Config,
    problems: Vec<ConfigError>,
    gaps: Vec<Gap>,
}

/// What is missing in a configuration that was not read as a whole. Keys are dotted; numbers of list entries are left out.
#[derive(Debug, PartialEq, Eq)]
enum Gap {
    /// The value of a key.
    Value(String),
    /// An entry of a list.
    Entry(String),
    /// A key of this section, if the one that is not known is another one that was misspelt.
    Unknown(String),
}

impl Reading {
    pub(super) fn of(figment: &Figment) -> Self {
        let mut reading = Self::default();
        let mut error = match figment.extract() {
            Ok(config) => return Self { config, ..reading },
            Err(error) => error,
        };
        // A file that is not TOML has no values at all.
        let Ok(mut values) = figment.find_value("") else {
            reading.add(without_secrets(error));
            return reading;
        };
        while reading.problems.len() < MAX_UNREADABLE {
            let removed = remove(&mut values, &error);
            let is_unknown = unknown_key(&error).is_some();
            reading.add(without_secrets(error));
            let Some(removed) = removed else {
                break;
            };
            reading.gaps.push(Gap::of(&removed, is_unknown));
            error = match values.deserialize() {
                Ok(config) => return Self { config, ..reading },
                Err(error) => located(error, figment, &values),
            };
        }
        reading
    }

    pub(super) fn failed(problem: ConfigError) -> Self {
        let mut reading = Self::default();
        reading.add(problem);
        reading
    }

    pub(super) fn add(&mut self, problem: ConfigError) {
        let said = problem.to_string();
        // One message stands for all keys of a section that holds secrets.
        if self.problems.iter().all(|known| known.to_string() != said) {
            self.problems.push(problem);
        }
    }

    /// Adds what a rule says, unless that may only follow from what could not be read.
    pub(crate) fn judge(&mut self, problem: ConfigError) {
        let key = problem.key();
        let said = problem.to_string();
        if !self.gaps.iter().any(|gap| gap.may_cause(&key, &said)) {
            self.add(problem);
        }
    }

    /// Adds what the rules say.
    pub(super) fn with_rules(mut self) -> Self {
        for problem in self.config.problems() {
            self.judge(problem);
        }
        self
    }

    pub(crate) fn into_parts(self) -> (Config, Vec<ConfigError>) {
        (self.config, self.problems)
    }
}

impl Gap {
    fn of(removed: &[String], is_unknown: bool) -> Self {
        let is_number = |key: &&String| key.bytes().all(|byte| byte.is_ascii_digit());
        let mut keys: Vec<&str> = (removed.iter().filter(|key| !is_number(key)))
            .map(String::as_str)
            .collect();
        let is_entry = removed.last().as_ref().is_some_and(is_number);
        if is_unknown && !is_entry {
            keys.pop();
            return Self::Unknown(keys.join("."));
        }
        match is_entry {
            true => Self::Entry(keys.join(".")),
            false => Self::Value(keys.join(".")),
        }
    }

    /// Whether this gap alone may have broken a rule about this key.
    fn may_cause(&self, key: &str, said: &str) -> bool {
        match self {
            Self::Value(path) => {
                let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
                let is_beside = key == section || section_of(key) == section;
                is_within(key, path)
                    || names(said, path)
                    || is_beside && !section.is_empty() && has_word(&said[key_end(said)..], name)
            }
            // What is said of the other entries is true.
            Self::Entry(list) => !is_within(key, list) && names(said, list),
            Self::Unknown(section) => {
                !section.is_empty() && !is_within(key, section) && names(said, section)
            }
        }
    }
}

fn section_of(key: &str) -> &str {
    key.rsplit_once('.').map_or("", |(section, _)| section)
}

fn is_within(key: &str, path: &str) -> bool {
    let rest = key.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Where the text about a key begins.
fn key_end(said: &str) -> usize {
    said.find(": ").map_or(0, |at| at + 2)
}

/// Whether a text names a key by its whole path, or a key below it. The names of sections are common words as well.
fn names(said: &str, path: &str) -> bool {
    match path.contains('.') {
        true => has_word(said, path),
        false => has_word(said, &format!("{path}.")),
    }
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(|it| is_part(it) || it == '.')
            && (word.ends_with('.') || !after.starts_with(is_part))
    })
}

fn unknown_key(error: &figment::Error) -> Option<&String> {
    match &error.kind {
        Kind::UnknownField(name, _) => Some(name),
        _ => None,
    }
}

/// Takes out the value that an error is about, or what it is a part of, and says which it was.
fn remove(values: &mut Value, error: &figment::Error) -> Option<Vec<String>> {
    let mut path = error.path.clone();
    if let Some(name) = unknown_key(error)
        && path.last() != Some(name)
    {
        path.push(name.clone());
    }
    while let Some(last) = path.pop() {
        let parent = (path.iter()).try_fold(&mut *values, |value, key| child(value, key));
        let is_removed = match parent {
            Some(Value::Dict(_, keys)) => keys.remove(&last).is_some(),
            Some(Value::Array(_, items)) => match last.parse() {
                Ok(index) if index < items.len() => {
                    items.remove(index);
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if is_removed {
            path.push(last);
            return Some(path);
        }
    }
    None
}

fn child<'v>(value: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    match value {
        Value::Dict(_, keys) => keys.get_mut(key),
        Value::Array(_, items) => items.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Says where a value comes from, as errors of a whole configuration do.
fn located(mut error: figment::Error, figment: &Figment, values: &Value) -> figment::Error {
    let mut place = values;
    for key in &error.path {
        let next = match place {
            Value::Dict(_, keys) => keys.get(key),
            Value::Array(_, items) => key.parse().ok().and_then(|at: usize| items.get(at)),
            _ => None,
        };
        let Some(next) = next else { break };
        place = next;
    }
    error.metadata = figment.get_metadata(place.tag()).cloned();
    error.profile = Some(figment.profile().clone());
    error
}
