//! Agents that want a token which expires: from a file, from Google's metadata server, and for the credentials of a service
//! account or of workload identity federation, each played by a stand-in.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use adk_bridge_protocol::base64;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stand_in::{ReceivedRequest, StandIn, events, fine, ok, refused, well};
use crate::support::socket::Client;
use crate::support::{Bridge, folded, refused as refused_to_start, text_of, within};

/// Made for these tests, and used nowhere else.
const KEY: &str = include_str!("../../../../fixtures/tokens/test-service-account.pem");

/// The token of a request; heads are read in lower case.
fn bearer<'a>(asked: &'a ReceivedRequest, header: &str) -> Option<&'a str> {
    let mut lines = asked.head.lines();
    lines.find_map(|line| line.strip_prefix(header)?.strip_prefix(": bearer "))
}

fn unauthorized() -> Vec<u8> {
    refused(
        401,
        "text/html",
        "<p>Your client does not have permission</p>",
    )
}

/// An ADK server behind something that takes only one token, which a test may change.
async fn guarded(good: &Arc<Mutex<String>>, header: &'static str) -> StandIn {
    let good = good.clone();
    StandIn::start(move |asked| {
        match bearer(asked, header) == Some(good.lock().unwrap().to_lowercase().as_str()) {
            true => answered(asked),
            false => unauthorized(),
        }
    })
    .await
}

/// A run that saves an artifact, so that everything which asks for something is used.
fn answered(asked: &ReceivedRequest) -> Vec<u8> {
    match asked.path.as_str() {
        "/run_sse" => {
            let saved = json!({"author": "app", "actions": {"artifactDelta": {"a.txt": 0}}});
            events(format!("data: {saved}\n\n{}", fine()))
        }
        path if path.contains("/artifacts/") => ok(&json!({"text": "saved"})),
        _ => well(asked),
    }
}

/// What an ordinary user gets.
async fn says(bridge: &Bridge, chat: &str) -> String {
    let events = bridge.ask(chat, "hello").await.events().await;
    text_of(&folded(&events))
}

async fn error(bridge: &Bridge, chat: &str) -> String {
    let events = bridge.ask(chat, "hello").await.events().await;
    let chunks = events
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let mut errors = chunks.filter_map(|chunk| chunk["errorText"].as_str().map(str::to_owned));
    errors.next().unwrap_or_else(|| panic!("{events:?}"))
}

/// Credentials of this machine must not be found.
fn without_google(command: &mut Command) {
    command
        .env_remove("GOOGLE_APPLICATION_CREDENTIALS")
        .env("CLOUDSDK_CONFIG", "/nowhere");
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_secs()
}

/// An ID token that nobody signed, valid for so many seconds.
fn id_token(name: &str, seconds: u64) -> String {
    let claims = json!({"name": name, "exp": now() + seconds}).to_string();
    format!("e30.{}.signature", url_safe(claims.as_bytes()))
}

fn url_safe(bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    text.replace('+', "-")
        .replace('/', "_")
        .trim_end_matches('=')
        .to_owned()
}

fn part_of(token: &str, index: usize) -> Vec<u8> {
    let part = token.split('.').nth(index).unwrap();
    base64::decode(part).unwrap()
}

fn claims_of(token: &str) -> Value {
    serde_json::from_slice(&part_of(token, 1)).unwrap()
}

/// Checks that the key of the tests has signed this.
fn check_signature(token: &str) {
    let der: String = KEY.lines().filter(|line| !line.starts_with('-')).collect();
    let key = RsaKeyPair::from_pkcs8(&base64::decode(&der).unwrap()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public().as_ref());
    let (signed, _) = token.rsplit_once('.').unwrap();
    public
        .verify(signed.as_bytes(), &part_of(token, 2))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_file_is_read_again() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("token");
    let good = Arc::new(Mutex::new("first-token-4711".to_owned()));
    let header = "x-serverless-authorization";
    let stand_in = guarded(&good, header).await;
    std::fs::write(&path, "first-token-4711\n").unwrap();
    let token = format!("token = {{ kind = \"file\", path = {path:?}, header = \"{header}\" }}\n");
    let bridge = Bridge::with(&(stand_in.toml() + &token), |command| {
        command.env("RUST_LOG", "trace");
    });
    assert_eq!(says(&bridge, "c").await, "fine");
    let is_ready = async || bridge.get("/ready").await;
    assert_eq!(is_ready().await.status, 200);

    // Somebody renews it.
    *good.lock().unwrap() = "second-token-4712".into();
    std::fs::write(&path, "second-token-4712").unwrap();
    assert_eq!(says(&bridge, "c").await, "fine");
    let asked = stand_in.asked("/");
    assert!(asked.iter().any(|asked| asked.path.contains("/artifacts/")));
    assert!(asked.iter().all(|asked| bearer(asked, header).is_some()));

    // One that is refused is not sent again if it is the only one.
    std::fs::write(&path, "wrong-token-4713").unwrap();
    let runs = stand_in.asked("/run_sse").len();
    let said = error(&bridge, "c").await;
    assert!(
        said.contains("401") && said.contains("agent.token"),
        "{said}"
    );
    assert_eq!(stand_in.asked("/run_sse").len(), runs + 1);

    std::fs::remove_file(&path).unwrap();
    let said = error(&bridge, "c").await;
    assert!(
        said.contains("no token") && !said.contains("token\""),
        "{said}"
    );
    assert_eq!(stand_in.asked("/run_sse").len(), runs + 1);
    let ready = is_ready().await;
    let body = String::from_utf8_lossy(&ready.body).into_owned();
    assert_eq!(ready.status, 503, "{body}");
    assert!(
        body.contains("no_agent") && body.contains(": app"),
        "{body}"
    );
    std::fs::write(&path, "second-token-4712").unwrap();
    within(async {
        while is_ready().await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(says(&bridge, "c").await, "fine");
    let log = bridge.log();
    assert!(
        log.contains(path.to_str().unwrap()),
        "the log names the file"
    );
    for token in ["first-token", "second-token", "wrong-token"] {
        assert!(!log.contains(token), "{token}");
    }
}

/// A token that is refused although it seemed good is replaced before the user learns of it, also in a live connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_token_is_replaced_once() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "token-0").unwrap();
    let renewed = AtomicUsize::new(0);
    let file = path.clone();
    let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
        path if path.starts_with("/run_live") || path == "/run_sse" => {
            // Every second token is good.
            let token = bearer(asked, "authorization").unwrap();
            let number: usize = token.strip_prefix("token-").unwrap().parse().unwrap();
            if number % 2 == 1 {
                return answered(asked);
            }
            let next = renewed.fetch_add(2, Ordering::Relaxed) + 1;
            std::fs::write(&file, format!("token-{next}")).unwrap();
            unauthorized()
        }
        _ => answered(asked),
    })
    .await;
    let token = format!("token = {{ kind = \"file\", path = {path:?} }}\n");
    let bridge = Bridge::configured(&(stand_in.toml() + &token));
    assert_eq!(says(&bridge, "c").await, "fine");
    let sent = |path: &str| -> Vec<String> {
        let asked = stand_in.asked(path);
        let sent = asked
            .iter()
            .filter_map(|asked| bearer(asked, "authorization"));
        sent.map(str::to_owned).collect()
    };
    assert_eq!(sent("/run_sse"), ["token-0", "token-1"]);
    std::fs::write(&path, "token-2").unwrap();
    let mut client = Client::open(&bridge, "/live?chat=v").await;
    client
        .send(json!({"type": "modality", "modality": "audio"}))
        .await;
    client.say("hello").await;
    within(async {
        // The stand-in speaks no WebSocket: that the handshake is sent again is enough.
        while sent("/run_live").len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(sent("/run_live")[..2], ["token-2", "token-3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_tokens_of_the_metadata_server_are_renewed_before_they_end() {
    let issued = Arc::new(Mutex::new(Vec::new()));
    let seconds = Arc::new(AtomicUsize::new(0));
    let (given, life) = (issued.clone(), seconds.clone());
    let metadata = StandIn::start(move |asked| {
        if !asked.head.contains("\nmetadata-flavor: google") {
            return refused(403, "text/plain", "no flavor");
        }
        let mut issued = given.lock().unwrap();
        let name = format!("{} of {}", issued.len(), asked.path);
        issued.push(id_token(&name, life.load(Ordering::Relaxed) as u64));
        http_text(issued.last().unwrap())
    })
    .await;
    let good = issued.clone();
    let stand_in = StandIn::start(move |asked| {
        let good = good.lock().unwrap();
        let token = bearer(asked, "authorization").unwrap_or_default();
        match good.iter().any(|good| good.to_lowercase() == token) {
            true => answered(asked),
            false => unauthorized(),
        }
    })
    .await;
    let toml = stand_in.toml() + "token = { kind = \"google-id-token\" }\n";
    let bridge = Bridge::with(&toml, |command| {
        without_google(command);
        command
            .env("GCE_METADATA_HOST", metadata.address.to_string())
            .env("RUST_LOG", "trace");
    });
    let fetched = || metadata.asked("/identity").len();
    // Tokens that end at once are fetched for every request.
    let before = fetched();
    assert_eq!(says(&bridge, "c").await, "fine");
    assert!(fetched() > before);
    let audience = format!(
        "audience=http%3A%2F%2F127.0.0.1%3A{}",
        stand_in.address.port()
    );
    for asked in metadata.asked("/") {
        assert!(asked.path.contains(&audience), "{}", asked.path);
        assert!(asked.path.contains("format=full"), "{}", asked.path);
    }
    // One that lasts is fetched once, however many need it.
    seconds.store(3600, Ordering::Relaxed);
    let before = fetched();
    let many = (0..10).map(|number| {
        let bridge = &bridge;
        async move { says(bridge, &format!("c{number}")).await }
    });
    for said in futures_util::future::join_all(many).await {
        assert_eq!(said, "fine");
    }
    // Once more is for a machine so busy that the bridge still looks at its app.
    let now = fetched();
    assert!((1..=2).contains(&(now - before)), "{}", now - before);
    // It is refused before its end.
    let old = std::mem::take(&mut *issued.lock().unwrap());
    assert_eq!(says(&bridge, "c").await, "fine");
    assert_eq!(fetched(), now + 1);
    let log = bridge.log();
    for token in old.iter().chain(&*issued.lock().unwrap()) {
        assert!(!log.contains(token), "{token}");
    }
}

fn http_text(text: &str) -> Vec<u8> {
    refused(200, "text/plain", text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_tokens_of_the_metadata_server() {
    let good = Arc::new(Mutex::new("ya29.metadata-0001".to_owned()));
    let broken = Arc::new(AtomicUsize::new(0));
    let (given, is_broken) = (good.clone(), broken.clone());
    let metadata = StandIn::start(move |asked| match is_broken.load(Ordering::Relaxed) {
        0 if asked.path.contains("/service-accounts/default/token") => ok(&json!({
            "access_token": *given.lock().unwrap(), "expires_in": 0, "token_type": "Bearer",
        })),
        _ => refused(503, "text/plain", "the metadata server is tired"),
    })
    .await;
    let stand_in = guarded(&good, "authorization").await;
    let toml = stand_in.toml() + "token = { kind = \"google-access-token\" }\n";
    // What may pass does not keep the bridge from starting.
    broken.store(1, Ordering::Relaxed);
    let bridge = Bridge::with(&toml, |command| {
        without_google(command);
        command.env("GCE_METADATA_HOST", metadata.address.to_string());
    });
    let said = error(&bridge, "c").await;
    assert!(said.contains("agent.token"), "{said}");
    assert!(!said.contains("tired"), "{said}");
    assert!(bridge.log().contains("503"), "{}", bridge.log());
    assert!(bridge.log().contains("GOOGLE_APPLICATION_CREDENTIALS"));
    assert_eq!(bridge.get("/ready").await.status, 503);
    broken.store(0, Ordering::Relaxed);
    within(async {
        while bridge.get("/ready").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(says(&bridge, "c").await, "fine");
    let asked = metadata.asked("/token").pop().unwrap();
    assert!(
        asked.path.ends_with("auth%2Fcloud-platform"),
        "{}",
        asked.path
    );
}

/// The key file of a service account.
fn key_file(directory: &Path, token_server: &StandIn) -> std::path::PathBuf {
    let path = directory.join("key.json");
    let key = json!({
        "type": "service_account", "client_email": "bridge@p.iam.gserviceaccount.com", "private_key_id": "k1",
        "private_key": KEY, "project_id": "p", "token_uri": format!("http://{}/token", token_server.address),
    });
    std::fs::write(&path, key.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_tokens_for_the_key_of_a_service_account() {
    let good = Arc::new(Mutex::new(id_token("key", 3600)));
    let given = good.clone();
    let server = StandIn::start(move |_| ok(&json!({"id_token": *given.lock().unwrap()}))).await;
    let stand_in = guarded(&good, "authorization").await;
    let directory = TempDir::new().unwrap();
    let key = key_file(directory.path(), &server);
    let toml =
        stand_in.toml() + "token = { kind = \"google-id-token\", audience = \"iap-client\" }\n";
    let bridge = Bridge::with(&toml, |command| {
        command.env("GOOGLE_APPLICATION_CREDENTIALS", &key);
    });
    assert_eq!(says(&bridge, "c").await, "fine");
    let asked = server.asked("/token").pop().unwrap();
    let form = asked.body.as_str().unwrap();
    assert!(form.contains("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"));
    let assertion = form.rsplit("assertion=").next().unwrap();
    check_signature(assertion);
    let claims = claims_of(assertion);
    assert_eq!(claims["target_audience"], "iap-client");
    assert_eq!(claims["iss"], "bridge@p.iam.gserviceaccount.com");
    assert_eq!(claims["aud"], format!("http://{}/token", server.address));
    let lasts = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
    assert!(lasts <= 3600, "{lasts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_tokens_for_the_key_of_a_service_account_are_signed_here() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tokens = seen.clone();
    let stand_in = StandIn::start(move |asked| {
        tokens
            .lock()
            .unwrap()
            .extend(bearer(asked, "authorization").map(str::to_owned));
        answered(asked)
    })
    .await;
    let nobody = StandIn::start(|_| refused(500, "text/plain", "")).await;
    let directory = TempDir::new().unwrap();
    let key = key_file(directory.path(), &nobody);
    let toml =
        stand_in.toml() + "token = { kind = \"google-access-token\", scopes = [\"a\", \"b\"] }\n";
    let bridge = Bridge::with(&toml, |command| {
        command.env("GOOGLE_APPLICATION_CREDENTIALS", &key);
    });
    assert_eq!(says(&bridge, "c").await, "fine");
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty());
    assert!(
        seen.iter().all(|token| token.split('.').count() == 3),
        "{seen:?}"
    );
    assert!(nobody.asked("/").is_empty());
}

/// An identity of another system, which a file holds, is exchanged for an access token; for an ID token it acts as a service
/// account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workload_identity_federation() {
    let directory = TempDir::new().unwrap();
    let subject = directory.path().join("subject");
    std::fs::write(&subject, "kubernetes-token-0815").unwrap();
    let id = id_token("federated", 3600);
    let given = id.clone();
    let google = StandIn::start(move |asked| match asked.path.as_str() {
        "/sts" => ok(&json!({
            "access_token": "federated-access-0001", "token_type": "Bearer", "expires_in": 3600,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        })),
        "/iam:generateIdToken" => ok(&json!({"token": given})),
        _ => refused(404, "text/plain", "what?"),
    })
    .await;
    let server = format!("http://{}", google.address);
    let mut credentials = json!({
        "type": "external_account", "audience": "//iam.googleapis.com/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": format!("{server}/sts"),
        "credential_source": {"file": subject},
    });
    let path = directory.path().join("credentials.json");
    for kind in ["google-access-token", "google-id-token"] {
        let good = match kind {
            "google-id-token" => {
                let url = format!("{server}/iam:generateAccessToken");
                credentials["service_account_impersonation_url"] = json!(url);
                id.clone()
            }
            _ => "federated-access-0001".to_owned(),
        };
        std::fs::write(&path, credentials.to_string()).unwrap();
        let stand_in = guarded(&Arc::new(Mutex::new(good)), "authorization").await;
        let toml = stand_in.toml() + &format!("token = {{ kind = \"{kind}\" }}\n");
        let bridge = Bridge::with(&toml, |command| {
            command.env("GOOGLE_APPLICATION_CREDENTIALS", &path);
        });
        assert_eq!(says(&bridge, "c").await, "fine", "{kind}: {}", bridge.log());
    }
    let exchanged = google.asked("/sts");
    assert!(
        exchanged
            .iter()
            .all(|asked| asked.body.to_string().contains("kubernetes-token-0815"))
    );
    let generated = google.asked("/iam").pop().unwrap();
    assert_eq!(
        bearer(&generated, "authorization"),
        Some("federated-access-0001")
    );
    let audience = generated.body["audience"].as_str().unwrap();
    assert!(audience.starts_with("http://127.0.0.1:"), "{audience}");
}

#[test]
fn a_source_that_cannot_work_is_said_at_start() {
    let directory = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let empty = file("empty.json", "{}");
    let other = file("other.json", r#"{"type": "magic"}"#);
    let keyless = file(
        "keyless.json",
        r#"{"type": "service_account", "client_email": "a@b"}"#,
    );
    let login = file(
        "login.json",
        r#"{"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}"#,
    );
    let nowhere = directory.path().join("nowhere");
    for (kind, credentials, word) in [
        ("google-access-token", &nowhere, "nowhere"),
        ("google-access-token", &empty, "empty.json"),
        ("google-access-token", &other, "magic"),
        ("google-id-token", &keyless, "private_key"),
        ("google-id-token", &login, "service account"),
    ] {
        for form in ["[agent]\n", "[[agents]]\nid = \"shop\"\n"] {
            let toml = format!(
                "{form}kind = \"adk\"\nbase_url = \"http://127.0.0.1:1\"\napp = \"app\"\ntoken = {{ kind = \"{kind}\" }}\n"
            );
            let said = refused_to_start(&toml, |command| {
                command.env("GOOGLE_APPLICATION_CREDENTIALS", credentials);
            });
            assert!(
                said.contains("token") && said.contains(word),
                "{kind}: {said}"
            );
            let is_named = said.contains(if form.contains("agents") {
                "\"shop\""
            } else {
                "agent.token"
            });
            assert!(is_named, "{said}");
        }
    }
    let missing = format!("token = {{ kind = \"file\", path = {nowhere:?} }}\n");
    for apps in ["app = \"a\"", "apps = \"*\""] {
        let toml = format!(
            "[agent]\nkind = \"adk\"\nbase_url = \"http://127.0.0.1:1\"\n{apps}\n{missing}"
        );
        let said = refused_to_start(&toml, |_| {});
        assert!(
            said.contains("agent.token") && said.contains("nowhere"),
            "{said}"
        );
    }
}
