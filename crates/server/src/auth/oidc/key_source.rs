//! The keys of a provider, looked up again now and then.
//!
//! ```text
//!            looked up                      older than `keys_max_age`: looked up, and waited for
//!   Nothing ───────────▶ Known ◀──────────────────────────────────────────────────────────────┐
//!      ▲                   │ a token names another key: looked up, at most every few seconds   │
//!      └── a day old ──────┴────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A key that was withdrawn serves for `keys_max_age` and no longer, unless its provider cannot be asked: then the known ones
//! serve for [`LONGEST_USE`]. Whoever sends tokens with made-up keys makes the bridge ask at most every [`PAUSE`].

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::Client;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tokio::time::{Instant, timeout};
use url::Url;

use super::remote::{self, RemoteError, fetch, host_of, is_safe};
use crate::auth::jwt::KeySet;
use crate::metrics::{Background, Metrics};

/// How often a provider is asked at most, whatever tokens come: those that rotate publish a key before they use it.
const PAUSE: Duration = Duration::from_secs(10);
/// The same after a failure.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long a request waits for keys that are to replace old ones. A provider that takes longer counts as away; what it answers
/// in the end counts all the same.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// How long keys serve of a provider that cannot be reached; one that is away for longer may have withdrawn them.
const LONGEST_USE: Duration = Duration::from_secs(24 * 60 * 60);

const DESCRIPTION: &str = "the description of an OpenID provider";

/// Where the keys of a provider are found, and those that were.
#[derive(Debug)]
pub(crate) struct KeySource {
    place: Place,
    client: Client,
    max_age: Duration,
    state: Mutex<State>,
    /// Held while the provider is asked.
    asking: tokio::sync::Mutex<()>,
    metrics: OnceLock<Arc<Metrics>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// An issuer that describes itself.
    Issuer(String),
    Keys(Url),
}

#[derive(Debug, Default)]
struct State {
    known: Option<Arc<Known>>,
    /// When it was asked last: when that began, and from its failure on, when it failed.
    asked: Option<Instant>,
    is_asking: bool,
    problem: Option<RemoteError>,
}

/// What a provider has published.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) keys: KeySet,
    /// None where only keys are published.
    pub(crate) description: Option<Description>,
    at: Instant,
    /// Counts how often it was asked.
    pub(crate) generation: u64,
}

/// How a provider describes itself: OpenID Connect Discovery.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Description {
    issuer: String,
    #[serde(deserialize_with = "url")]
    jwks_uri: Url,
    #[serde(default, deserialize_with = "some_url")]
    pub(crate) authorization_endpoint: Option<Url>,
    #[serde(default, deserialize_with = "some_url")]
    pub(crate) token_endpoint: Option<Url>,
    #[serde(default, deserialize_with = "some_url")]
    pub(crate) userinfo_endpoint: Option<Url>,
    #[serde(default, deserialize_with = "some_url")]
    pub(crate) end_session_endpoint: Option<Url>,
    #[serde(default)]
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
}

impl KeySource {
    /// One of those that are known, if it is of the same place.
    pub(crate) fn of_issuer(
        issuer: &str,
        max_age: Duration,
        known: &[Arc<Self>],
    ) -> reqwest::Result<Arc<Self>> {
        let is_local = Url::parse(issuer).is_ok_and(|url| remote::is_local(&url));
        Self::at(Place::Issuer(issuer.to_owned()), is_local, max_age, known)
    }

    pub(crate) fn of_keys(
        url: Url,
        max_age: Duration,
        known: &[Arc<Self>],
    ) -> reqwest::Result<Arc<Self>> {
        let is_local = remote::is_local(&url);
        Self::at(Place::Keys(url), is_local, max_age, known)
    }

    fn at(
        place: Place,
        is_local: bool,
        max_age: Duration,
        known: &[Arc<Self>],
    ) -> reqwest::Result<Arc<Self>> {
        let is_same = |it: &&Arc<Self>| it.place == place && it.max_age == max_age;
        if let Some(known) = known.iter().find(is_same) {
            return Ok(known.clone());
        }
        Ok(Arc::new(Self {
            place,
            client: remote::client(is_local)?,
            max_age,
            state: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            metrics: OnceLock::new(),
        }))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Counts failures from here on, unless they are counted already.
    pub(crate) fn count(&self, metrics: &Arc<Metrics>) {
        let _ = self.metrics.set(metrics.clone());
    }

    /// Asks the provider, so that the first user does not wait for it.
    pub(crate) fn warm_up(self: &Arc<Self>) {
        let source = self.clone();
        tokio::spawn(async move { source.known().await });
    }

    /// What the provider publishes, not longer ago than `keys_max_age`. If it cannot be asked, what it published before.
    pub(crate) async fn known(self: &Arc<Self>) -> Result<Arc<Known>, RemoteError> {
        let Some(old) = self.at_hand() else {
            return self.ask(None).await;
        };
        if old.at.elapsed() < self.max_age {
            return Ok(old);
        }
        let wait = {
            let state = self.lock();
            let asked = state.asked.filter(|_| state.is_asking);
            LONGEST_WAIT.saturating_sub(asked.map_or(Duration::ZERO, |asked| asked.elapsed()))
        };
        // A look-up that takes longer goes on; whoever comes meanwhile waits no longer than the first one.
        match timeout(wait, self.ask(Some(old.generation))).await {
            Ok(Ok(known)) => Ok(known),
            Ok(Err(_)) => Ok(old),
            Err(_) => {
                // Who came later need not say it again.
                if wait == LONGEST_WAIT {
                    tracing::warn!(
                        "{} takes longer than {LONGEST_WAIT:?} to say its keys; those of {:?} ago serve meanwhile",
                        self.name(),
                        old.at.elapsed()
                    );
                }
                Ok(old)
            }
        }
    }

    /// What is known, however old, without asking anybody.
    pub(crate) fn at_hand(&self) -> Option<Arc<Known>> {
        let known = self.lock().known.clone()?;
        (known.at.elapsed() < LONGEST_USE.max(self.max_age)).then_some(known)
    }

    /// What the provider publishes if that is not what was known before, and if it was not asked a moment ago.
    pub(crate) async fn newer_than(self: &Arc<Self>, old: u64) -> Option<Arc<Known>> {
        let known = self.ask(Some(old)).await.ok()?;
        (known.generation > old).then_some(known)
    }

    /// In a task of its own: the answer counts for all, even if whoever asked has left.
    async fn ask(self: &Arc<Self>, old: Option<u64>) -> Result<Arc<Known>, RemoteError> {
        let source = self.clone();
        let asked = tokio::spawn(async move { source.ask_in_turn(old).await });
        asked.await.unwrap_or(Err(RemoteError::AskedBefore))
    }

    async fn ask_in_turn(&self, old: Option<u64>) -> Result<Arc<Known>, RemoteError> {
        let _asking = self.asking.lock().await;
        let generation = {
            let mut state = self.lock();
            let is_news = |known: &&Arc<Known>| old.is_none_or(|old| known.generation > old);
            let fresh = |known: &&Arc<Known>| known.at.elapsed() < LONGEST_USE.max(self.max_age);
            // Somebody else has asked while this one waited.
            if let Some(known) = state.known.as_ref().filter(is_news).filter(fresh) {
                return Ok(known.clone());
            }
            if self.was_asked_lately(&state) {
                return Err(state.problem.clone().unwrap_or(RemoteError::AskedBefore));
            }
            state.asked = Some(Instant::now());
            state.is_asking = true;
            state.known.as_ref().map_or(1, |known| known.generation + 1)
        };
        let found = self.look_up().await;
        let mut state = self.lock();
        state.is_asking = false;
        match found {
            Ok((keys, description)) => {
                let known = Arc::new(Known {
                    keys,
                    description,
                    at: Instant::now(),
                    generation,
                });
                state.problem = None;
                state.known = Some(known.clone());
                tracing::debug!(
                    keys = known.keys.len(),
                    "the keys of {} are known",
                    self.name()
                );
                Ok(known)
            }
            Err(problem) => {
                let meanwhile = match &state.known {
                    Some(known) => {
                        format!("; those of {:?} ago serve meanwhile", known.at.elapsed())
                    }
                    None => String::new(),
                };
                tracing::warn!(
                    "the keys of {} cannot be looked up: {problem}{meanwhile}",
                    self.name()
                );
                state.asked = Some(Instant::now());
                if let Some(metrics) = self.metrics.get() {
                    metrics.background_failed(Background::ProviderKeys);
                }
                state.problem = Some(problem.clone());
                Err(problem)
            }
        }
    }

    /// What the provider publishes now, which is not kept.
    pub(crate) async fn look(&self) -> Result<(usize, Option<Description>), RemoteError> {
        let (keys, description) = self.look_up().await?;
        Ok((keys.len(), description))
    }

    async fn look_up(&self) -> Result<(KeySet, Option<Description>), RemoteError> {
        let description = match &self.place {
            Place::Issuer(issuer) => Some(self.describe(issuer).await?),
            Place::Keys(_) => None,
        };
        let url = match (&self.place, &description) {
            (_, Some(description)) => &description.jwks_uri,
            (Place::Keys(url), None) => url,
            (Place::Issuer(_), None) => return Err(RemoteError::AskedBefore),
        };
        let body = fetch(self.client.get(url.clone()), url).await?;
        let keys = KeySet::read(&body).ok_or_else(|| RemoteError::Unreadable {
            host: host_of(url),
            expected: "a list of keys (JSON Web Key Set)",
        })?;
        Ok((keys, description))
    }

    async fn describe(&self, issuer: &str) -> Result<Description, RemoteError> {
        let place = issuer.trim_end_matches('/');
        let url = Url::parse(&format!("{place}/.well-known/openid-configuration"));
        let url = url.map_err(|_| RemoteError::Unreadable {
            host: issuer.to_owned(),
            expected: DESCRIPTION,
        })?;
        let body = fetch(self.client.get(url.clone()), &url).await?;
        Description::read(&body, issuer, &url)
    }

    fn was_asked_lately(&self, state: &State) -> bool {
        let pause = match &state.problem {
            Some(_) => PAUSE_AFTER_FAILURE,
            None => PAUSE.min(self.max_age),
        };
        state.asked.is_some_and(|asked| asked.elapsed() < pause)
    }

    fn name(&self) -> &str {
        match &self.place {
            Place::Issuer(issuer) => issuer,
            Place::Keys(url) => url.as_str(),
        }
    }

    /// Poisoning is ignored: no critical section can leave the state inconsistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Description {
    /// Reads what an issuer says of itself at an address.
    pub(crate) fn read(body: &[u8], issuer: &str, url: &Url) -> Result<Self, RemoteError> {
        let description: Self =
            serde_json::from_slice(body).map_err(|_| RemoteError::Unreadable {
                host: host_of(url),
                expected: DESCRIPTION,
            })?;
        let contradiction = |field, said: &str, expected| RemoteError::Contradiction {
            issuer: issuer.to_owned(),
            field,
            said: said.to_owned(),
            expected,
        };
        if description.issuer != issuer {
            let said = &description.issuer;
            let expected = "write exactly this in auth.oidc, if it is the one that you mean";
            return Err(contradiction("issuer", said, expected));
        }
        for (field, url) in description.addresses() {
            // A provider on this machine may be named by any port of it.
            if !is_safe(url) || remote::is_local(url) && !is_local_issuer(issuer) {
                let expected = "it must be an https:// address";
                return Err(contradiction(field, url.as_str(), expected));
            }
        }
        Ok(description)
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&'static str, &Url)> {
        let optional = [
            ("authorization_endpoint", &self.authorization_endpoint),
            ("token_endpoint", &self.token_endpoint),
            ("userinfo_endpoint", &self.userinfo_endpoint),
            ("end_session_endpoint", &self.end_session_endpoint),
        ];
        let optional = optional
            .into_iter()
            .filter_map(|(name, url)| Some((name, url.as_ref()?)));
        std::iter::once(("jwks_uri", &self.jwks_uri)).chain(optional)
    }
}

fn url<'de, D: Deserializer<'de>>(from: D) -> Result<Url, D::Error> {
    let text = String::deserialize(from)?;
    Url::parse(&text).map_err(D::Error::custom)
}

fn some_url<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Url>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let url = text.map(|text| Url::parse(&text).map_err(D::Error::custom));
    url.transpose()
}

fn is_local_issuer(issuer: &str) -> bool {
    Url::parse(issuer).is_ok_and(|url| remote::is_local(&url))
}
