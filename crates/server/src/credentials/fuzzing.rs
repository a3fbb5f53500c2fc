//! What the fuzz targets read of logins that agents ask for: the request, and the query that a provider sends a user back with.

use adk_bridge_protocol::json_text::Json;
use serde_json::{Value, json};
use url::Url;
use url::form_urlencoded::parse;

use super::login::{Callback, Login};

const BACK: &str = "https://bridge.example/api/oauth/callback";
/// What an agent made, and waits for.
const THEIRS: &str = "the-state-of-the-agent";
const OURS: &str = "the-state-of-the-bridge";

/// Reads what an agent asks for: a user is sent to a page of the web only, with our state, and back to us.
pub fn credential_request(args: &str) {
    let Some(login) = Json::parse(args).ok().and_then(|args| Login::of(&args)) else {
        return;
    };
    let page = login.page_for(OURS, BACK);
    assert!(
        page.is_some() || !login.has_page(),
        "a login without its page"
    );
    if let Some(page) = page {
        assert!(matches!(page.scheme(), "http" | "https") && page.has_host());
        assert_eq!(values(page.query().unwrap_or_default(), "state"), [OURS]);
        let back = values(page.query().unwrap_or_default(), "redirect_uri");
        assert_eq!(back, [BACK]);
    }
    let _ = login.answer_of_provider("code=a&state=b", BACK);
    assert!(!login.wanted().is_empty());
}

/// Reads the query with which a provider sends a user back. The agent gets what it says, with the state that it knows.
pub fn credential_callback(query: &str) {
    let said = Callback::of(query);
    if let Callback::Refused(word) = &said {
        let is_plain = |it: u8| it.is_ascii_lowercase() || it == b'_';
        assert!(word.len() <= 64 && word.bytes().all(is_plain), "{word:?}");
    }
    if said == Callback::Granted {
        assert!(values(query, "code").len() == 1 && values(query, "state").len() < 2);
    }
    let page = format!("https://op.example/auth?state={THEIRS}");
    let asked = json!({"authConfig": {
        "authScheme": {"type": "oauth2"},
        "exchangedAuthCredential": {"oauth2": {"authUri": page, "state": THEIRS}},
    }});
    let login = Login::of(&asked.into());
    let answer = login.and_then(|login| login.answer_of_provider(query, BACK));
    let oauth2 = answer.map(|answer| answer["exchangedAuthCredential"]["oauth2"].clone());
    let oauth2 = oauth2.unwrap_or_default();
    let text = |name: &str| oauth2.get(name).and_then(Value::as_str);
    assert_eq!(text("redirectUri"), Some(BACK));
    let came_back = text("authResponseUri").and_then(|url| Url::parse(url).ok());
    let came_back = came_back.map(|url| url.query().unwrap_or_default().to_owned());
    let came_back = came_back.unwrap_or_default();
    let states = values(query, "state").len();
    assert_eq!(values(&came_back, "state"), vec![THEIRS; states]);
    assert_eq!(values(&came_back, "code"), values(query, "code"));
    assert_eq!(Callback::state_in(query).is_some(), states == 1);
}

fn values(query: &str, name: &str) -> Vec<String> {
    let pairs = parse(query.as_bytes()).filter(|(key, _)| key == name);
    pairs.map(|(_, value)| value.into_owned()).collect()
}
