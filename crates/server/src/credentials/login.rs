//! A login that an ADK agent asks for: where the user is sent to, and what the agent is sent afterwards.
//!
//! ADK writes the names of fields in camel case or in snake case, and reads both. What is added here follows what is there.

use adk_bridge_protocol::credentials::{asked, config_of};
use adk_bridge_protocol::json_text::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use url::Url;
use url::form_urlencoded::parse;

/// The longest address of a provider: it becomes a header, and proxies take headers of 8 kB.
const MAX_PAGE_BYTES: usize = 6 * 1024;
/// The longest query that a provider sends back; codes are short, and some providers add tokens.
const MAX_QUERY_BYTES: usize = 16 * 1024;
/// Errors that OAuth providers report are words of this length.
const MAX_ERROR_BYTES: usize = 64;

/// What a user is to grant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Login {
    /// ADK's whole configuration, which the answer repeats.
    config: Value,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    /// OAuth 2 or OpenID Connect, at a provider.
    Page,
    ApiKey,
    Basic,
    Bearer,
}

/// What a user types in.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum GivenSecret {
    #[serde(rename_all = "camelCase")]
    ApiKey {
        api_key: String,
    },
    Basic {
        username: String,
        password: String,
    },
    Bearer {
        token: String,
    },
    /// Only `false`: a front end cannot say that something was granted.
    Refused {
        granted: bool,
    },
}

/// What a provider sent the user back with.
#[derive(Debug, PartialEq, Eq)]
pub enum Callback {
    Granted,
    /// The provider's word for why not, if it is one.
    Refused(String),
    /// Neither.
    Unclear,
}

impl Login {
    /// The login in the arguments of a request, if a user can grant it here.
    pub fn of(args: &Json) -> Option<Self> {
        let config = config_of(args)?.to_value();
        let kind = asked(args).get("kind")?;
        let kind = match &*kind.as_str()? {
            "oauth2" | "oidc" => Kind::Page,
            "apiKey" => Kind::ApiKey,
            "basic" => Kind::Basic,
            "bearer" => Kind::Bearer,
            _ => return None,
        };
        let login = Self { config, kind };
        (kind != Kind::Page || login.page().is_some()).then_some(login)
    }

    /// Whether it is granted on a page of a provider.
    pub fn has_page(&self) -> bool {
        self.kind == Kind::Page
    }

    /// The page of the provider, which sends the user back to `redirect_uri` with this `state`.
    pub fn page_for(&self, state: &str, redirect_uri: &str) -> Option<Url> {
        let mut page = self.page()?;
        let rest: Vec<(String, String)> = page
            .query_pairs()
            .filter(|(name, _)| !matches!(&**name, "state" | "redirect_uri"))
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        page.query_pairs_mut()
            .clear()
            .extend_pairs(rest)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("state", state);
        Some(page)
    }

    /// What the agent is sent when the provider has sent the user back with this query.
    pub fn answer_of_provider(&self, query: &str, redirect_uri: &str) -> Option<Value> {
        let state = self.state();
        let mut came_back = Url::parse(redirect_uri).ok()?;
        {
            let mut pairs = came_back.query_pairs_mut();
            for (name, value) in parse(query.as_bytes()) {
                match (&*name, &state) {
                    // The agent knows the one that it made.
                    ("state", Some(state)) => drop(pairs.append_pair("state", state)),
                    ("state", None) => {}
                    _ => drop(pairs.append_pair(&name, &value)),
                }
            }
        }
        let mut credential = self.exchanged().cloned().unwrap_or_default();
        let oauth2 = field_mut(&mut credential, "oauth2")?;
        set(oauth2, "authResponseUri", json!(came_back.as_str()));
        set(oauth2, "redirectUri", json!(redirect_uri));
        Some(self.answer(credential))
    }

    /// What the agent is sent when the user has typed this in; `None` if it is of another kind.
    pub fn answer_with(&self, given: &GivenSecret) -> Option<Value> {
        let credential = match (self.kind, given) {
            (Kind::ApiKey, GivenSecret::ApiKey { api_key }) => {
                json!({"authType": "apiKey", "apiKey": api_key})
            }
            (Kind::Basic, GivenSecret::Basic { username, password }) => json!({
                "authType": "http",
                "http": {"scheme": "basic", "credentials": {"username": username, "password": password}},
            }),
            (Kind::Bearer, GivenSecret::Bearer { token }) => json!({
                "authType": "http",
                "http": {"scheme": "bearer", "credentials": {"token": token}},
            }),
            _ => return None,
        };
        Some(self.answer(as_object(credential)))
    }

    /// The fields that a user has to type in, for the error that says so.
    pub fn wanted(&self) -> &'static str {
        match self.kind {
            Kind::Page => "nothing: open authorizeUrl",
            Kind::ApiKey => "apiKey",
            Kind::Basic => "username and password",
            Kind::Bearer => "token",
        }
    }

    fn answer(&self, credential: Map<String, Value>) -> Value {
        let mut config = as_object(self.config.clone());
        set(&mut config, "exchangedAuthCredential", json!(credential));
        Value::Object(config)
    }

    /// The page that ADK made, as a browser may open it.
    fn page(&self) -> Option<Url> {
        let page = self.oauth2_text("authUri")?;
        let page = Url::parse(page).ok()?;
        let is_web = matches!(page.scheme(), "http" | "https") && page.has_host();
        (is_web && page.as_str().len() <= MAX_PAGE_BYTES).then_some(page)
    }

    /// The `state` that ADK made.
    fn state(&self) -> Option<String> {
        if let Some(state) = self.oauth2_text("state") {
            return Some(state.to_owned());
        }
        let page = self.page()?;
        let mut pairs = page.query_pairs();
        let (_, state) = pairs.find(|(name, _)| name == "state")?;
        Some(state.into_owned())
    }

    fn exchanged(&self) -> Option<&Map<String, Value>> {
        field(self.config.as_object()?, "exchangedAuthCredential")?.as_object()
    }

    fn oauth2_text(&self, name: &str) -> Option<&str> {
        let oauth2 = field(self.exchanged()?, "oauth2")?.as_object()?;
        field(oauth2, name)?.as_str()
    }
}

impl Callback {
    /// What the query of a provider's answer says. A repeated parameter may mean two things.
    pub fn of(query: &str) -> Self {
        let mut found: Map<String, Value> = Map::new();
        for (name, value) in parse(query.as_bytes()) {
            if matches!(&*name, "code" | "error" | "state")
                && found
                    .insert(name.into_owned(), json!(value.into_owned()))
                    .is_some()
            {
                return Self::Unclear;
            }
        }
        let text = |name: &str| found.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_word = |error: &str| {
            error.len() <= MAX_ERROR_BYTES
                && error
                    .bytes()
                    .all(|it| it.is_ascii_lowercase() || it == b'_')
        };
        match (text("code"), text("error")) {
            ("", "") => Self::Unclear,
            (_, "") if query.len() <= MAX_QUERY_BYTES => Self::Granted,
            ("", error) if is_word(error) => Self::Refused(error.to_owned()),
            ("", _) => Self::Refused("error".to_owned()),
            _ => Self::Unclear,
        }
    }

    /// The `state` in the query of a provider's answer.
    pub fn state_in(query: &str) -> Option<String> {
        let mut states = parse(query.as_bytes()).filter(|(name, _)| name == "state");
        let (_, state) = states.next()?;
        states.next().is_none().then(|| state.into_owned())
    }
}

/// A field, whichever case its name is written in.
fn field<'a>(object: &'a Map<String, Value>, camel: &str) -> Option<&'a Value> {
    object.get(camel).or_else(|| object.get(&snake(camel)))
}

fn field_mut<'a>(
    object: &'a mut Map<String, Value>,
    camel: &str,
) -> Option<&'a mut Map<String, Value>> {
    let name = name_in(object, camel);
    object.get_mut(&name)?.as_object_mut()
}

fn set(object: &mut Map<String, Value>, camel: &str, value: Value) {
    let name = name_in(object, camel);
    object.insert(name, value);
}

/// The name of a field in an object, in the case of its other names.
fn name_in(object: &Map<String, Value>, camel: &str) -> String {
    let snake = snake(camel);
    let is_snake = object.contains_key(&snake)
        || !object.contains_key(camel) && object.keys().any(|name| name.contains('_'));
    if is_snake { snake } else { camel.to_owned() }
}

fn snake(camel: &str) -> String {
    let mut snake = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn as_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const BACK: &str = "https://chat.example/api/oauth/callback";

    fn oauth(page: &str) -> Json {
        json!({"functionCallId": "c1", "authConfig": {
            "authScheme": {"type": "oauth2", "flows": {"authorizationCode": {"authorizationUrl": page, "tokenUrl": "https://id.example/token"}}},
            "rawAuthCredential": {"authType": "oauth2", "oauth2": {"clientId": "me", "clientSecret": "S"}},
            "exchangedAuthCredential": {"authType": "oauth2", "oauth2": {"clientId": "me", "authUri": page, "state": "ADK"}},
            "credentialKey": "k",
        }})
        .into()
    }

    /// The same with names in snake case.
    fn snaked(args: &Json) -> Json {
        fn rename(value: Value) -> Value {
            match value {
                Value::Object(fields) => fields
                    .into_iter()
                    .map(|(name, value)| match name.as_str() {
                        "authorizationCode" | "authorizationUrl" | "tokenUrl" => (name, value),
                        _ => (snake(&name), rename(value)),
                    })
                    .collect(),
                other => other,
            }
        }
        rename(args.to_value()).into()
    }

    #[test]
    fn the_provider_gets_our_state_and_the_agent_its_own() {
        let page = "https://id.example/auth?client_id=me&state=ADK&redirect_uri=http%3A%2F%2Felsewhere&code_challenge=x%20y";
        let camel = oauth(page);
        for (args, names) in [
            (
                camel.clone(),
                ["exchangedAuthCredential", "authResponseUri", "redirectUri"],
            ),
            (
                snaked(&camel),
                [
                    "exchanged_auth_credential",
                    "auth_response_uri",
                    "redirect_uri",
                ],
            ),
        ] {
            let login = Login::of(&args).unwrap();
            let opened = login.page_for("OURS", BACK).unwrap();
            assert_eq!(
                opened.as_str(),
                "https://id.example/auth?client_id=me&code_challenge=x+y&redirect_uri=https%3A%2F%2Fchat.example%2Fapi%2Foauth%2Fcallback&state=OURS"
            );
            let answer = login
                .answer_of_provider("state=OURS&code=a%26b&iss=https%3A%2F%2Fid.example", BACK)
                .unwrap();
            let [exchanged, response_uri, redirect_uri] = names;
            let oauth2 = &answer[exchanged]["oauth2"];
            assert_eq!(oauth2[redirect_uri], BACK);
            assert_eq!(
                oauth2[response_uri],
                format!("{BACK}?state=ADK&code=a%26b&iss=https%3A%2F%2Fid.example")
            );
            assert_eq!(oauth2["state"], "ADK");
        }
    }

    #[test]
    fn only_pages_of_the_web_are_opened() {
        for page in [
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "//id.example/auth",
            "/auth",
            "",
            "https://",
            &format!("https://id.example/?{}", "x".repeat(MAX_PAGE_BYTES)),
        ] {
            assert_eq!(Login::of(&oauth(page)), None, "{page:.80}");
        }
        for args in [
            json!({}),
            json!({"authConfig": "x"}),
            json!({"authConfig": {"authScheme": {"type": "http", "scheme": "digest"}}}),
            json!({"authConfig": {"authScheme": {"type": "oauth2", "flows": {}}}}),
            // What is shown of a question is no question.
            json!({"kind": "apiKey", "authorizeUrl": "https://elsewhere.example"}),
        ] {
            assert_eq!(Login::of(&args.clone().into()), None, "{args}");
        }
    }

    #[test]
    fn keys_and_passwords_are_answered_in_the_form_of_adk() {
        let of = |scheme: Value| {
            let args = json!({"auth_config": {"authScheme": scheme, "credentialKey": "k"}});
            Login::of(&args.into()).unwrap()
        };
        let logins = [
            of(json!({"type": "apiKey", "in": "header", "name": "x-key"})),
            of(json!({"type": "http", "scheme": "Basic"})),
            of(json!({"type": "http", "scheme": "bearer"})),
        ];
        let given: Vec<GivenSecret> = [
            json!({"apiKey": "K"}),
            json!({"username": "u", "password": "P"}),
            json!({"token": "T"}),
        ]
        .into_iter()
        .map(|given| serde_json::from_value(given).unwrap())
        .collect();
        let answers = [
            json!({"authType": "apiKey", "apiKey": "K"}),
            json!({"authType": "http", "http": {"scheme": "basic", "credentials": {"username": "u", "password": "P"}}}),
            json!({"authType": "http", "http": {"scheme": "bearer", "credentials": {"token": "T"}}}),
        ];
        for (place, login) in logins.iter().enumerate() {
            assert!(!login.has_page());
            for (other, given) in given.iter().enumerate() {
                let answer = login.answer_with(given);
                let expected = (place == other).then(|| &answers[place]);
                assert_eq!(
                    answer.as_ref().map(|it| &it["exchangedAuthCredential"]),
                    expected
                );
            }
        }
    }

    #[test]
    fn a_provider_grants_or_refuses_or_is_not_understood() {
        let refused = |word: &str| Callback::Refused(word.to_owned());
        for (query, says) in [
            ("code=x&state=s", Callback::Granted),
            (
                "error=access_denied&state=s&error_description=No",
                refused("access_denied"),
            ),
            ("error=%3Cscript%3E", refused("error")),
            ("", Callback::Unclear),
            ("state=s", Callback::Unclear),
            ("code=&error=", Callback::Unclear),
            ("code=x&error=access_denied", Callback::Unclear),
            ("code=x&code=y", Callback::Unclear),
            ("code=x&state=s&state=t", Callback::Unclear),
        ] {
            assert_eq!(Callback::of(query), says, "{query}");
        }
        assert_eq!(
            Callback::state_in("code=x&state=a%2Bb").as_deref(),
            Some("a+b")
        );
        assert_eq!(Callback::state_in("state=a&state=b"), None);
        assert_eq!(Callback::state_in("code=x"), None);
    }
}
