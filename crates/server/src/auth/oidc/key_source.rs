//! The keys of a provider, looked up again now and then.
//!
//! ```text
//!            looked up                      older than `keys_max_age`: looked up, and waited for
//!   Nothing ───────────▶ Known ◀──────────────────────────────────────────────────────────────┐
//!      ▲                   │ a token names another key: looked up, a few times at most         │
//!      └── a day old ──────┴────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A key that was withdrawn serves for `keys_max_age` and no longer, unless its provider cannot be asked: then the known ones
//! serve for [`LONGEST_USE`]. How often tokens with made-up keys make the bridge ask is up to [`Unknown`].

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::Client;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tokio::time::{Instant, timeout};
use url::Url;

use super::remote::{self, RemoteError, fetch, host_of, is_safe};
use super::unknown::{Unknown, Verdict};
use crate::auth::jwt::KeySet;
use crate::metrics::{Background, Metrics};

/// How often a provider is asked at most that has just failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long a request waits for keys that are to replace known ones. A provider that takes longer counts as away; what it answers
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
    unknown: Unknown,
}

/// Why keys are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// None are known, or they are too old.
    Age,
    /// A token names one that is not known: whoever has made the token decides how often.
    UnknownKey,
}

/// What a provider has published.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) keys: KeySet,
    /// None where only keys are published.
    pub(crate) description: Option<Description>,
    at: Instant,
    /// When it was asked for that.
    pub(crate) asked: Instant,
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
            return self.ask(None, Reason::Age).await;
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
        match timeout(wait, self.ask(Some(old.generation), Reason::Age)).await {
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

    /// What the provider publishes after `old`, for a token that names a key which was not part of that. `None` if the provider
    /// was asked for this key a moment ago; an error says that it cannot be found out now whether there is such a key.
    pub(crate) async fn newer_than(
        self: &Arc<Self>,
        old: &Known,
        key: Option<&str>,
    ) -> Result<Option<Arc<Known>>, RemoteError> {
        if self.lock().unknown.is_absent(key, Instant::now()) {
            return Ok(None);
        }
        let asked = self.ask(Some(old.generation), Reason::UnknownKey);
        // A look-up that takes longer goes on, and counts for the next request.
        match timeout(LONGEST_WAIT, asked).await {
            Ok(Ok(known)) => Ok(Some(known)),
            Ok(Err(RemoteError::AskedOften)) if self.lock().unknown.was_absent(key) => Ok(None),
            Ok(Err(problem)) => Err(problem),
            Err(_) => Err(RemoteError::Slow),
        }
    }

    /// Notes that the provider was asked for a key, and has not published it.
    pub(crate) fn note_absent(&self, key: Option<&str>) {
        self.lock().unknown.note_absent(key, Instant::now());
    }

    /// In a task of its own: the answer counts for all, even if whoever asked has left.
    async fn ask(
        self: &Arc<Self>,
        old: Option<u64>,
        reason: Reason,
    ) -> Result<Arc<Known>, RemoteError> {
        let source = self.clone();
        let asked = tokio::spawn(async move { source.ask_in_turn(old, reason).await });
        asked.await.unwrap_or(Err(RemoteError::AskedBefore))
    }

    async fn ask_in_turn(
        &self,
        old: Option<u64>,
        reason: Reason,
    ) -> Result<Arc<Known>, RemoteError> {
        let _asking = self.asking.lock().await;
        let (generation, asked) = {
            let mut state = self.lock();
            let is_news = |known: &&Arc<Known>| old.is_none_or(|old| known.generation > old);
            let fresh = |known: &&Arc<Known>| known.at.elapsed() < LONGEST_USE.max(self.max_age);
            // Somebody else has asked while this one waited.
            if let Some(known) = state.known.as_ref().filter(is_news).filter(fresh) {
                return Ok(known.clone());
            }
            if let Some(problem) = state.lately_failed() {
                return Err(problem);
            }
            let now = Instant::now();
            if reason == Reason::UnknownKey && state.unknown.may_ask(now) == Verdict::TooOften {
                return Err(RemoteError::AskedOften);
            }
            state.asked = Some(now);
            state.is_asking = true;
            let generation = state.known.as_ref().map_or(1, |known| known.generation + 1);
            (generation, now)
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
                    asked,
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

impl State {
    /// Why the provider did not answer, if that was a moment ago.
    fn lately_failed(&self) -> Option<RemoteError> {
        let is_recent = (self.asked).is_some_and(|asked| asked.elapsed() < PAUSE_AFTER_FAILURE);
        self.problem.clone().filter(|_| is_recent)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use axum::http::StatusCode;
    use axum::routing::get;
    use axum::{Json, Router};
    use futures_util::future::join_all;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A list of keys at an address of this machine.
    struct Published {
        url: Url,
        shared: Arc<Shared>,
    }

    struct Shared {
        keys: Mutex<Vec<&'static str>>,
        asked: AtomicUsize,
        /// How many may be answered.
        answers: Semaphore,
    }

    impl Published {
        async fn new(keys: &[&'static str]) -> Self {
            let shared = Arc::new(Shared {
                keys: Mutex::new(keys.to_vec()),
                asked: AtomicUsize::new(0),
                answers: Semaphore::new(1_000),
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let state = shared.clone();
            let answer = get(move || async move { state.answer().await });
            let server = axum::serve(listener, Router::new().route("/", answer));
            tokio::spawn(async move { server.await });
            let url = url.parse().unwrap();
            Self { url, shared }
        }

        fn source(&self, max_age: Duration) -> Arc<KeySource> {
            KeySource::of_keys(self.url.clone(), max_age, &[]).unwrap()
        }

        fn rotate(&self, keys: &[&'static str]) {
            *self.shared.keys.lock().unwrap() = keys.to_vec();
        }

        fn asked(&self) -> usize {
            self.shared.asked.load(Relaxed)
        }
    }

    impl Shared {
        async fn answer(&self) -> Result<Json<Value>, StatusCode> {
            self.asked.fetch_add(1, Relaxed);
            let answer = self.answers.acquire().await;
            let away = |_| StatusCode::SERVICE_UNAVAILABLE;
            answer.map_err(away)?.forget();
            let keys = self.keys.lock().unwrap();
            let keys = keys
                .iter()
                .map(|name| json!({"kty": "OKP", "crv": "Ed25519", "kid": name, "x": "AAAA"}));
            Ok(Json(json!({"keys": keys.collect::<Vec<_>>()})))
        }
    }

    #[tokio::test]
    async fn a_rotation_right_after_the_start_is_noticed_at_once() {
        let published = Published::new(&["first"]).await;
        let source = published.source(HOUR);
        source.warm_up();
        let known = source.known().await.unwrap();
        published.rotate(&["second", "third"]);
        let newer = source
            .newer_than(&known, Some("second"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((newer.keys.len(), published.asked()), (2, 2));
        // And once more.
        published.rotate(&["fourth", "fifth", "sixth"]);
        let newer = source
            .newer_than(&newer, Some("fourth"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((newer.keys.len(), published.asked()), (3, 3));
    }

    #[tokio::test]
    async fn requests_at_the_same_moment_ask_once() {
        let published = Published::new(&["first"]).await;
        let source = published.source(Duration::ZERO);
        let known = source.known().await.unwrap();
        let found = join_all((0..20).map(|_| source.known())).await;
        assert!(found.iter().all(|it| it.as_ref().unwrap().generation == 2));
        assert_eq!(published.asked(), 2);
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let asking = names
            .iter()
            .map(|name| source.newer_than(&known, Some(name)));
        let found = join_all(asking).await;
        assert!(found.iter().all(|it| it.as_ref().unwrap().is_some()));
        assert_eq!(published.asked(), 2, "what was asked for meanwhile counts");
    }

    #[tokio::test]
    async fn made_up_keys_do_not_become_a_flood_and_are_not_called_wrong() {
        let published = Published::new(&["first"]).await;
        let source = published.source(HOUR);
        let mut known = source.known().await.unwrap();
        let mut unavailable = 0;
        for number in 0..100 {
            let name = format!("made-up-{number}");
            match source.newer_than(&known, Some(&name)).await {
                Ok(newer) => known = newer.unwrap(),
                Err(problem) => {
                    assert_eq!(problem, RemoteError::AskedOften);
                    unavailable += 1;
                }
            }
            assert_eq!(source.known().await.unwrap().generation, known.generation);
        }
        let asked = published.asked();
        assert!(asked <= 7 && unavailable >= 90, "{asked} {unavailable}");
        // What is certain is said even now.
        source.note_absent(Some("withdrawn"));
        let again = source.newer_than(&known, Some("withdrawn")).await.unwrap();
        assert!(again.is_none());
        assert_eq!(published.asked(), asked);
    }

    #[tokio::test]
    async fn a_slow_provider_is_not_waited_for_and_counts_in_the_end() {
        let published = Published::new(&["first"]).await;
        let source = published.source(HOUR);
        let known = source.known().await.unwrap();
        published.rotate(&["first", "second"]);
        let held = published.shared.answers.acquire_many(999).await.unwrap();
        let asked = source.newer_than(&known, Some("second")).await;
        assert_eq!(asked.unwrap_err(), RemoteError::Slow);
        assert_eq!(source.known().await.unwrap().generation, known.generation);
        drop(held);
        let newer = source
            .newer_than(&known, Some("second"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((newer.keys.len(), published.asked()), (2, 2));
    }

    #[tokio::test]
    async fn a_provider_that_is_away_makes_no_key_wrong() {
        let published = Published::new(&["first"]).await;
        let source = published.source(HOUR);
        let known = source.known().await.unwrap();
        published.shared.answers.close();
        for _ in 0..10 {
            let asked = source.newer_than(&known, Some("second")).await;
            assert!(
                matches!(asked, Err(RemoteError::Refused { status: 503, .. })),
                "{asked:?}"
            );
        }
    }
}
