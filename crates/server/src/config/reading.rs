//! Reads a configuration as far as it can be read, and says everything that is wrong with it at once.

use figment::Figment;
use figment::error::Kind;
use figment::value::Value;

use super::{Config, ConfigError, without_secrets};

/// How many values that cannot be read are named; whoever has more than this has named the wrong file.
const MAX_UNREADABLE: usize = 100;

/// What a configuration says, without the values that cannot be read, and why these cannot.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) config: Config,
    problems: Vec<ConfigError>,
    /// The sections whose values are not all known.
    incomplete: Vec<String>,
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
            reading
                .incomplete
                .extend(error.path.first().or(unknown_key(&error)).cloned());
            let is_removed = remove(&mut values, &error);
            reading.add(without_secrets(error));
            if !is_removed {
                break;
            }
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

    /// Adds what the rules say. What may only follow from a value that could not be read is left out.
    pub(super) fn with_rules(mut self) -> (Config, Vec<ConfigError>) {
        for problem in self.config.problems() {
            let said = problem.to_string();
            let is_sure = !self.incomplete.iter().any(|section| {
                said.starts_with(section.as_str()) || (section == "store" && is_of_cluster(&said))
            });
            if is_sure {
                self.add(problem);
            }
        }
        (self.config, self.problems)
    }
}

/// Only a shared database has a cluster.
fn is_of_cluster(said: &str) -> bool {
    said.starts_with("cluster") || said.starts_with("server.advertise")
}

fn unknown_key(error: &figment::Error) -> Option<&String> {
    match &error.kind {
        Kind::UnknownField(name, _) => Some(name),
        _ => None,
    }
}

/// Takes out the value that an error is about, or what it is a part of.
fn remove(values: &mut Value, error: &figment::Error) -> bool {
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
            return true;
        }
    }
    false
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
