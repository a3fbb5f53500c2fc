//! Credentials that an ADK agent asks for: what a user may see of the question; everything else about them is withheld.
//!
//! ADK puts the whole configuration of a login into the call `adk_request_credential`, into the actions of the tool's
//! response and into the state of the session. Depending on the server's version it contains the client's secret, and an
//! answer contains the user's tokens. Python writes names in camel case, TypeScript in snake case; both are recognised.
//!
//! Arguments and results of all other tools are left as they are: a human consents to what is shown.

use std::borrow::Cow;

use memchr::memmem;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::event::{REQUEST_CONFIRMATION, REQUEST_CREDENTIAL};
use crate::json_text::{Json, Level, text_of};

/// Fields that the bridge adds to what is shown of a question: where the user grants it, until when, and the call that
/// waits for it.
pub const LINK: &str = "authorizeUrl";
/// When the request for credentials ends.
pub const EXPIRES: &str = "expiresAt";
/// The call that needs them.
pub const CALL: &str = "functionCallId";

/// What is shown of a question: enough for every real one, little enough to be read.
const MAX_SCOPES: usize = 64;
const MAX_WORD_BYTES: usize = 256;
/// The longest link that counts as one of the bridge.
const MAX_LINK_BYTES: usize = 4096;
const KINDS: &[&str] = &["oauth2", "oidc", "apiKey", "basic", "bearer", "http"];

/// Without one of these a text holds nothing that is withheld. Names may be written in any case, and their letters as escapes.
const MARKS: &[&str] = &[
    REQUEST_CREDENTIAL,
    "uthC",
    "uth_c",
    "uth_C",
    "uth-c",
    "uth-C",
    "uthT",
    "uth_t",
    "uth_T",
    "uth-t",
    "uth-T",
    "ecret",
    "efresh",
    "ccessT",
    "ccess_t",
    "ccess_T",
    "ccess-t",
    "ccess-T",
    "ACCESS",
    "AUTH",
    "SECRET",
    "REFRESH",
    "\\u00",
];

/// Fields that hold a configuration or a credential, without case, underscores and hyphens.
const CONFIGURATIONS: &[&str] = &[
    "authconfig",
    "requestedauthconfigs",
    "rawauthcredential",
    "exchangedauthcredential",
    "authcredential",
];

/// Fields that only credentials have, in the same form.
const SECRETS: &[&str] = &["authtype", "clientsecret", "refreshtoken", "accesstoken"];

/// What a value is part of.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// An event, a message or a call, whose other fields are known.
    Known,
    /// The whole state or metadata.
    State,
    /// A value in it: every object may be a credential.
    Free,
}

impl Place {
    /// The place of what is inside of a value here.
    fn inner(self) -> Self {
        match self {
            Self::Known => Self::Known,
            Self::State | Self::Free => Self::Free,
        }
    }
}

/// What is kept of a request for credentials that was stored: all of it, if it is what a user may see.
pub fn shown_request(args: &Json) -> Json {
    match is_shown(args) {
        true => args.clone(),
        false => asked(args),
    }
}

/// The same with the agent's own id of the call that waits, which a restored session needs.
fn stored_request(args: &Json) -> Json {
    let shown = shown_request(args);
    match asker_of(args).filter(|asker| asker.len() <= MAX_WORD_BYTES) {
        Some(asker) => shown.with(CALL, &asker.as_str().into()),
        None => shown,
    }
}

/// The whole configuration in the arguments of a request. It holds secrets.
pub fn config_of(args: &Json) -> Option<Json> {
    field(args, "authconfig").filter(Json::is_object)
}

/// The id of the agent's call that waits for the credentials.
pub fn asker_of(args: &Json) -> Option<String> {
    Some(field(args, "functioncallid")?.as_str()?.into_owned())
}

/// What a user may see of a request for credentials, given its arguments: the kind of login, the provider's host and the
/// scopes.
pub fn asked(args: &Json) -> Json {
    let config = field(args, "authconfig").unwrap_or_default();
    let scheme = field(&config, "authscheme").unwrap_or_default().to_value();
    let word = |key: &str| scheme.get(key).and_then(Value::as_str);
    let kind = match (word("type").or(word("type_")), word("scheme")) {
        (Some("openIdConnect"), _) => Some("oidc"),
        (Some("http"), Some(scheme)) if scheme.eq_ignore_ascii_case("basic") => Some("basic"),
        (Some("http"), Some(scheme)) if scheme.eq_ignore_ascii_case("bearer") => Some("bearer"),
        (Some(known @ ("oauth2" | "apiKey" | "http")), _) => Some(known),
        _ => None,
    };
    // Where the user is sent to, whatever the scheme says: a page in a form that browsers read differently has no name.
    let page = field(&config, "exchangedauthcredential")
        .and_then(|credential| field(&credential, "oauth2"))
        .and_then(|oauth2| field(&oauth2, "authuri"));
    let page = page.as_ref().and_then(Json::as_str);
    let endpoints = ["authorizationEndpoint", "authorization_endpoint"];
    let mut provider = match &page {
        Some(page) => host(page),
        None => endpoints.iter().find_map(|key| word(key)).and_then(host),
    };
    let mut scopes: Vec<&str> = texts(scheme.get("scopes"));
    let flows = scheme.get("flows").and_then(Value::as_object);
    for flow in flows.into_iter().flat_map(|flows| flows.values()) {
        scopes.extend(texts(flow.get("scopes")));
        let urls = [
            "authorizationUrl",
            "authorization_url",
            "tokenUrl",
            "token_url",
        ];
        let mut urls = urls.iter().filter_map(|key| flow.get(key)?.as_str());
        if page.is_none() {
            provider = provider.or_else(|| urls.find_map(host));
        }
    }
    scopes.retain(|scope| scope.len() <= MAX_WORD_BYTES);
    scopes.dedup();
    scopes.truncate(MAX_SCOPES);
    let scopes = (!scopes.is_empty()).then(|| json!(scopes).into());
    let fields = [
        ("kind", kind.map(Json::from)),
        ("provider", provider.map(Json::from)),
        ("scopes", scopes),
    ];
    let fields = fields.into_iter();
    Json::object(fields.filter_map(|(name, value)| Some((name, value?))))
}

/// An event, a message or the record of a reply without credentials; `None` if it holds none.
pub fn withhold(raw: &RawValue) -> Option<Json> {
    changed(raw, Place::Known)
}

/// The same for state or metadata of an agent.
pub fn withhold_in_state(value: &Json) -> Option<Json> {
    changed(value.raw(), Place::State)
}

/// The same for an event that is kept as text.
pub fn line_without_credentials(line: String) -> String {
    if !is_marked(&line) {
        return line;
    }
    match serde_json::from_str::<&RawValue>(&line) {
        Ok(raw) => match withhold(raw) {
            Some(rest) => rest.to_string(),
            None => line,
        },
        // It cannot be looked into, and is not read again either.
        Err(_) => Json::empty().to_string(),
    }
}

/// Whether these arguments are what is shown of others: what is stored is read again.
fn is_shown(args: &Json) -> bool {
    let fields = args.fields();
    !fields.is_empty()
        && fields.iter().all(|(name, raw)| match &**name {
            "kind" => text_of(raw).is_some_and(|kind| KINDS.contains(&&*kind)),
            "provider" => text_of(raw).is_some_and(|host| is_host(&host)),
            "scopes" => serde_json::from_str::<Vec<&str>>(raw.get())
                .is_ok_and(|scopes| scopes.iter().all(|scope| scope.len() <= MAX_WORD_BYTES)),
            LINK => text_of(raw).is_some_and(|link| link.len() <= MAX_LINK_BYTES),
            EXPIRES => serde_json::from_str::<u64>(raw.get()).is_ok(),
            CALL => text_of(raw).is_some_and(|call| call.len() <= MAX_WORD_BYTES),
            _ => false,
        })
}

fn changed(raw: &RawValue, place: Place) -> Option<Json> {
    if !is_marked(raw.get()) {
        return None;
    }
    match Level::of(raw) {
        Level::Leaf(_) if place == Place::Known => None,
        Level::Leaf(leaf) => changed_text(leaf, raw),
        Level::Items(items) => {
            let inner = place.inner();
            let new: Vec<Option<Json>> = items.iter().map(|item| changed(item, inner)).collect();
            new.iter().any(Option::is_some).then(|| {
                let items: Vec<Json> = items
                    .into_iter()
                    .zip(new)
                    .map(|(old, new)| new.unwrap_or_else(|| kept(old)))
                    .collect();
                Json::array(&items)
            })
        }
        Level::Fields(fields) => changed_object(&fields, place),
    }
}

fn changed_object(fields: &[(Cow<'_, str>, &RawValue)], place: Place) -> Option<Json> {
    let is_secret = |name: &str| SECRETS.contains(&name);
    if place == Place::Free && fields.iter().any(|(name, _)| is_secret(&plain(name))) {
        return Some(Json::empty());
    }
    let named = |key: &str| {
        let mut fields = fields.iter();
        fields.find_map(|(name, raw)| if name == key { text_of(raw) } else { None })
    };
    // A call or response of an agent, a call of a reply's record, or a part of a message.
    let tool = named("name")
        .or_else(|| named("toolName"))
        .or_else(|| Some(named("type")?.strip_prefix("tool-")?.to_owned().into()));
    let asks = tool.as_deref() == Some(REQUEST_CREDENTIAL);
    let is_known = tool.is_some() && tool.as_deref() != Some(REQUEST_CONFIRMATION);
    let mut is_changed = false;
    let mut rest: Vec<(&str, Json)> = Vec::with_capacity(fields.len());
    for (name, raw) in fields {
        let plain = plain(name);
        let new = match plain.as_str() {
            "args" | "input" | "rawinput" if asks => Some(stored_request(&kept(raw))),
            "response" | "output" if asks => Some(Json::empty()),
            "partialargs" | "early" | "parts" if asks => {
                is_changed = true;
                continue;
            }
            "args" | "input" | "rawinput" | "response" | "output" if is_known => None,
            known if CONFIGURATIONS.contains(&known) => {
                is_changed = true;
                continue;
            }
            // The other keys of a state have nothing to do with it.
            secret if place == Place::State && is_secret(secret) => {
                is_changed = true;
                continue;
            }
            "statedelta" | "custommetadata" => changed(raw, Place::State),
            _ => changed(raw, place.inner()),
        };
        is_changed |= new.is_some();
        rest.push((name, new.unwrap_or_else(|| kept(raw))));
    }
    is_changed.then(|| Json::object(rest))
}

/// Google's own clients keep their credentials in the state as a text that is JSON.
fn changed_text(leaf: &str, raw: &RawValue) -> Option<Json> {
    let text = leaf.starts_with('"').then(|| text_of(raw)).flatten()?;
    let inner: &RawValue = serde_json::from_str(text.trim()).ok()?;
    let is_text = inner.get().starts_with('"');
    let rest = changed(inner, Place::Free).filter(|_| !is_text)?;
    Some(rest.text().into())
}

fn kept(raw: &RawValue) -> Json {
    // It is a part of what was read before; what cannot be read is withheld.
    Json::read_raw(raw).unwrap_or_default()
}

fn is_marked(text: &str) -> bool {
    let text = text.as_bytes();
    MARKS
        .iter()
        .any(|mark| memmem::find(text, mark.as_bytes()).is_some())
}

/// A field, whichever case its name is written in.
fn field(object: &Json, wanted: &str) -> Option<Json> {
    let mut fields = object.fields().into_iter();
    fields.find_map(|(name, raw)| (plain(&name) == wanted).then(|| kept(raw)))
}

fn plain(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The names of an object, or the texts of a list.
fn texts(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::Object(fields)) => fields.keys().map(String::as_str).collect(),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The host of a URL, without the user and password that it may contain.
fn host(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority.rsplit('@').next()?;
    let is_web = ["http", "https"]
        .iter()
        .any(|web| scheme.eq_ignore_ascii_case(web));
    (is_web && is_host(host)).then_some(host)
}

fn is_host(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    !text.is_empty() && text.len() <= MAX_WORD_BYTES && text.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "PLANTED-VALUE";

    fn credential() -> Value {
        json!({"authType": "oauth2", "oauth2": {"clientId": "me", "clientSecret": SECRET, "accessToken": SECRET}})
    }

    fn config() -> Value {
        json!({
            "authScheme": {"type": "oauth2", "flows": {"authorizationCode": {
                "authorizationUrl": "https://user:PLANTED-VALUE@login.example.com/authorize?x=PLANTED-VALUE",
                "tokenUrl": "https://login.example.com/token",
                "scopes": {"mail.read": "Read your mail", "profile": ""},
            }}},
            "rawAuthCredential": credential(), "exchangedAuthCredential": credential(), "credentialKey": "k",
        })
    }

    /// The same with names in snake case.
    fn snake(value: &Value) -> Value {
        let text = value.to_string();
        let names = [
            ("authScheme", "auth_scheme"),
            ("rawAuthCredential", "raw_auth_credential"),
            ("exchangedAuthCredential", "exchanged_auth_credential"),
            ("authConfig", "auth_config"),
            ("functionCallId", "function_call_id"),
            ("authType", "auth_type"),
            ("clientSecret", "client_secret"),
            ("requestedAuthConfigs", "requested_auth_configs"),
        ];
        let text = names
            .iter()
            .fold(text, |text, (camel, snake)| text.replace(camel, snake));
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_question_shows_kind_provider_and_scopes() {
        let args = json!({"functionCallId": "_adk_toolset_auth_x", "authConfig": config()});
        let oauth = json!({"kind": "oauth2", "provider": "login.example.com", "scopes": ["mail.read", "profile"]});
        let scheme = |scheme: Value| json!({"authConfig": {"authScheme": scheme}});
        let at_page = |page: &str| {
            let mut config = config();
            config["exchangedAuthCredential"]["oauth2"]["authUri"] = json!(page);
            json!({"authConfig": config})
        };
        let unnamed = json!({"kind": "oauth2", "scopes": ["mail.read", "profile"]});
        for (args, shown) in [
            (args.clone(), oauth.clone()),
            (snake(&args), oauth),
            (
                scheme(
                    json!({"type": "openIdConnect", "authorizationEndpoint": "https://id.example:8443/a", "scopes": ["openid", 7]}),
                ),
                json!({"kind": "oidc", "provider": "id.example:8443", "scopes": ["openid"]}),
            ),
            (
                scheme(json!({"type": "apiKey", "in": "header", "name": SECRET})),
                json!({"kind": "apiKey"}),
            ),
            (
                scheme(json!({"type": "http", "scheme": "Basic"})),
                json!({"kind": "basic"}),
            ),
            (
                scheme(json!({"type": "http", "scheme": "bearer"})),
                json!({"kind": "bearer"}),
            ),
            (
                scheme(json!({"type": "http", "scheme": SECRET})),
                json!({"kind": "http"}),
            ),
            (
                scheme(json!({"type": SECRET, "scopes": ["x".repeat(MAX_WORD_BYTES + 1)]})),
                json!({}),
            ),
            (
                scheme(
                    json!({"type": "oauth2", "flows": {"x": {"tokenUrl": "javascript:PLANTED-VALUE"}}}),
                ),
                json!({"kind": "oauth2"}),
            ),
            (
                at_page("HTTPS://user@id.example:443\\@login.example.com/"),
                json!({"kind": "oauth2", "provider": "id.example:443", "scopes": ["mail.read", "profile"]}),
            ),
            (at_page("https:///elsewhere.example/"), unnamed.clone()),
            (at_page("https:elsewhere.example/"), unnamed.clone()),
            (at_page("https://else\twhere.example/"), unnamed.clone()),
            (at_page("javascript:alert(1)"), unnamed.clone()),
            (json!({"authConfig": SECRET}), json!({})),
            (json!(SECRET), json!({})),
            (json!(null), json!({})),
        ] {
            assert_eq!(shown_request(&args.clone().into()), shown, "{args}");
        }
    }

    #[test]
    fn nothing_of_a_credential_is_left_wherever_it_stands() {
        let call = json!({"id": "r", "name": REQUEST_CREDENTIAL, "args": {"functionCallId": "c", "authConfig": config()}});
        let answer = json!({"id": "r", "name": REQUEST_CREDENTIAL, "response": config()});
        let event =
            |part: Value| json!({"content": {"parts": [{"text": "hi"}, part]}, "author": "a"});
        let google =
            json!({"token": SECRET, "refresh_token": SECRET, "client_secret": SECRET}).to_string();
        for value in [
            event(json!({"functionCall": call})),
            event(
                json!({"functionCall": {"name": REQUEST_CREDENTIAL, "args": SECRET, "partialArgs": [{"stringValue": SECRET}]}}),
            ),
            event(json!({"functionResponse": answer})),
            event(
                json!({"functionCall": {"name": REQUEST_CONFIRMATION, "args": {"originalFunctionCall": call}}}),
            ),
            json!({"actions": {"requestedAuthConfigs": {"c": config()}, "stateDelta": {"temp:adk_oauth2_1": credential()}}}),
            json!({"actions": {"stateDelta": {"nested": [{"deep": credential()}], "google": google, "flat": {"client_secret": SECRET}}}}),
            json!({"customMetadata": {"a2a:response": {"parts": [{"kind": "data", "data": call}, {"data": answer}]}}}),
            json!({"type": "tool-adk_request_credential", "input": call["args"], "rawInput": config(), "output": config()}),
            json!({"type": "dynamic-tool", "toolName": REQUEST_CREDENTIAL, "input": config()}),
            json!({"message": {"metadata": {"stateDelta": {"k": credential()}}}, "calls": [{"name": REQUEST_CREDENTIAL, "input": config(), "early": {"output": config()}}]}),
        ] {
            for value in [value.clone(), snake(&value)] {
                let line = value.to_string();
                assert!(line.contains(SECRET));
                let rest = line_without_credentials(line);
                assert!(!rest.contains(SECRET), "{rest}");
                // It is stored once more without harm.
                assert_eq!(line_without_credentials(rest.clone()), rest);
            }
        }
        // A letter may be written as an escape, and a name in another case.
        let state = |name: &str| json!({"actions": {"stateDelta": {"k": {name: SECRET}}}});
        for line in [
            event(json!({"functionCall": call}))
                .to_string()
                .replace("authConfig", "auth\\u0043onfig")
                .replace("_credential", "_credenti\\u0061l"),
            state("clientSecret")
                .to_string()
                .replace("Secret", "\\u0053ecret"),
            state("Client_Secret").to_string(),
            state("CLIENT_SECRET").to_string(),
            state("client-secret").to_string(),
            state("REFRESH_TOKEN").to_string(),
            state("Auth-Type").to_string(),
            state("access_token").to_string(),
            state("accessToken").to_string(),
        ] {
            let rest = line_without_credentials(line);
            assert!(!rest.contains(SECRET), "{rest}");
        }
        let state = json!({"actions": {"stateDelta": {"access_token": SECRET, "locale": "en"}}});
        assert_eq!(
            line_without_credentials(state.to_string()),
            json!({"actions": {"stateDelta": {"locale": "en"}}}).to_string()
        );
        let not_json = format!("{{\"authConfig\": \"{SECRET}");
        assert_eq!(line_without_credentials(not_json), "{}");
    }

    #[test]
    fn everything_else_is_left_as_it_is() {
        for value in [
            json!({"content": {"parts": [{"functionCall": {"name": "sign_in", "args": {"authType": "basic", "client_secret": "mine"}}}]}}),
            json!({"content": {"parts": [{"functionResponse": {"name": "sign_in", "response": {"authConfig": 1, "refresh_token": "mine"}}}]}}),
            json!({"content": {"parts": [{"text": "{\"client_secret\": \"what the user wrote\"}"}]}}),
            json!({"type": "tool-sign_in", "input": {"authConfig": {"x": 1}}, "output": {"authType": 2}}),
            json!({"actions": {"stateDelta": {"note": "the client_secret is asked for", "n": 1.50}}}),
        ] {
            let line = value.to_string();
            assert_eq!(line_without_credentials(line.clone()), line);
        }
    }
}
