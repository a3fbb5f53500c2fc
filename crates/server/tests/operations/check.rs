//! `check-config`: everything that is wrong at once, as the start says it; and whether what is named can be reached.

use std::process::{Command, Stdio};

use adk_bridge::config::Config;
use adk_bridge_testkit::process::{Process, binary};
use adk_bridge_testkit::refused_in;
use adk_bridge_testkit::stand_in::{ReceivedRequest, StandIn, ok, refused};
use serde_json::json;
use tempfile::TempDir;

use super::{printed, run};

/// A configuration in which every kind of mistake is made, with what is to be said of each.
const WRONG: &str = r#"
[server]
listn = "127.0.0.1:80"
allowed_origins = ["http://a.example/"]
max_body_bytes = 0

[[auth.api_keys]]
key = "PLANTED"
user = "alice"

[approval]
timeout = "soon"

[limits]
turns = "many"
unread_bytes = 0

[[agents]]
id = "one"
kind = "gemini"
api_key_env = "NO_SUCH_VARIABLE"
[[agents]]
id = "two"
kind = "adk"
[[agents]]
id = "three"
kind = "oracle"
[[agents]]
id = "four"
tools = ["fly"]

[[tools.mcp]]
name = "no__name"
command = "true"
"#;

const KEYS: [&str; 12] = [
    "listn",
    "server.allowed_origins",
    "server.max_body_bytes",
    "auth.api_keys",
    "approval.timeout",
    "limits.turns",
    "limits.unread_bytes",
    "agents \"one\": api_key_env",
    "agents \"two\": app",
    "agents \"three\": kind",
    "agents \"four\": tools",
    "tools.mcp \"no__name\"",
];

fn check(directory: &TempDir, toml: &str, more: &[&str]) -> (Option<i32>, String) {
    std::fs::write(directory.path().join("a.toml"), toml).unwrap();
    let mut arguments = vec!["check-config", "--config", "a.toml"];
    arguments.extend(more);
    let output = run(
        directory.path(),
        &arguments,
        &[("GEMINI_API_KEY", "PLANTED-KEY-0123456789")],
    );
    let printed = printed(&output);
    assert!(!printed.contains("PLANTED-KEY"), "{printed}");
    (output.status.code(), printed)
}

#[test]
fn every_problem_is_said_at_once_and_no_value() {
    let directory = TempDir::new().unwrap();
    let (code, printed) = check(&directory, WRONG, &[]);
    assert_eq!(code, Some(1), "{printed}");
    for key in KEYS {
        let is_there = printed.lines().any(|line| line.contains(key));
        assert!(is_there, "{key} in {printed}");
    }
    assert!(!printed.contains("PLANTED"), "{printed}");
    for line in printed.lines() {
        assert!(line.starts_with("problem  "), "{line}");
    }
}

/// Two mistakes for each section, with what is to be said of both, and what may not be.
const PAIRS: [(&str, &str, [&str; 2]); 34] = [
    (
        "[server]\nallowed_hosts = [\"*\"]\nmax_json_bytes = 0",
        "",
        ["server.allowed_hosts", "server.max_json_bytes"],
    ),
    (
        "[server]\nlisten = \"here\"\nmax_json_bytes = 0",
        "",
        ["server.listen", "server.max_json_bytes"],
    ),
    (
        "[auth]\napi_keys = [{ key = \"short\", user = \"a\" }]\nlogin = { idle = \"0s\" }",
        "server.listen",
        ["auth.api_keys: a key must", "auth.login.idle"],
    ),
    (
        "[auth]\napi_keys = [{ key = \"short\", user = \"\" }]",
        "",
        ["16 characters", "every key needs a user"],
    ),
    (
        "[[auth.oidc]]\nissuer = \"http://a.example\"\naudience = \"a\"\nscopes = [\"email\"]",
        "",
        ["auth.oidc: issuer", "auth.oidc: scopes"],
    ),
    (
        "[[auth.oidc]]\nissuer = \"http://a.example\"\naudience = \"a\"\n[[auth.oidc]]\nissuer = \"https://b.example\"",
        "",
        [
            "(provider \"a.example\")",
            "set audience for tokens of programs, client_id for the page, or both (provider \"b.example\")",
        ],
    ),
    (
        "[[auth.oidc]]\nissuer = \"https://a.example\"\nclient_id = \"a\"\nclient_secret_env = \"NO_SUCH_ONE\"\n\
      [[auth.oidc]]\nissuer = \"https://b.example\"\nclient_id = \"a\"\nclient_secret_env = \"NO_SUCH_TWO\"",
        "",
        ["NO_SUCH_ONE", "NO_SUCH_TWO"],
    ),
    // An entry that is left out hides what is wrong with no other one.
    (
        "[server]\nlisten = \"0.0.0.0:80\"\n[[auth.oidc]]\nname = \"x\"\n[[auth.oidc]]\nissuer = \"http://a.example\"\naudience = \"a\"",
        "server.listen",
        ["issuer is missing", "auth.oidc: issuer"],
    ),
    (
        "[server]\nlisten = \"0.0.0.0:80\"\nmax_json_bytes = 0\n[auth]\napi_kyes = [\"x\"]",
        "server.listen",
        ["api_kyes", "server.max_json_bytes"],
    ),
    (
        "[auth.proxy]\nheader = \"cookie\"\njwks_url = \"http://a.example\"\naudience = \"a\"",
        "",
        ["auth.proxy: header", "auth.proxy: jwks_url"],
    ),
    (
        "[auth.login]\nidle = \"0s\"\nlongest = \"0s\"",
        "",
        ["auth.login.idle", "auth.login.longest"],
    ),
    (
        "[agent]\nkind = \"adk\"\napp = \"a\"\ntoken = { kind = \"file\", scopes = [\"a\"] }",
        "",
        ["only kind = \"google-access-token\"", "needs a path"],
    ),
    (
        "[agent]\nmax_steps = 0\nstate = { \"app:x\" = 1, \"temp:y\" = 2 }",
        "",
        ["app:x", "temp:y"],
    ),
    (
        "[agent]\nname = 5\nmax_steps = 0",
        "",
        ["agent.name", "agent.max_steps"],
    ),
    (
        "[[agents]]\nid = \"one\"\nmax_steps = \"x\"\nmodel = \"\"",
        "",
        ["agents.0.max_steps", "agents \"one\": model"],
    ),
    (
        "[agent]\nkind = \"adk\"\napp = \"a\"\ntoken = { kind = \"user\", from = \"cookie\" }\n[[auth.api_keys]]\nkey = \"short\"\nuser = \"a\"",
        "",
        ["agent.token", "auth.api_keys"],
    ),
    (
        "[approval]\ntimeout = \"0s\"\ntools = 5",
        "",
        ["approval.timeout", "approval.tools"],
    ),
    (
        "[tools]\ntimeout = \"0s\"\nclient_timeout = \"0s\"",
        "",
        ["tools.timeout", "tools.client_timeout"],
    ),
    (
        "[[tools.mcp]]\nname = \"a__b\"\ncommand = \"true\"\nurl = \"http://x\"",
        "",
        ["name: write letters", "write one of them"],
    ),
    (
        "[live]\nheartbeat = \"0s\"\nmax_video_bytes_per_second = 0",
        "",
        ["live.heartbeat", "live.max_video"],
    ),
    (
        "[demo]\npace = \"soon\"\npaces = 1",
        "",
        ["demo.pace", "paces"],
    ),
    (
        "[store]\nurl = \"mysql://h/d\"\nconnections = 0",
        "",
        ["store.url", "store.connections"],
    ),
    (
        "[store]\nurl = 5\nconnections = 0\n[cluster]\nname = \"x\"",
        "cluster",
        ["store.url", "store.connections"],
    ),
    (
        "[store]\nulr = \"postgres://h/d\"\nconnections = 0\n[cluster]\nname = \"x\"",
        "cluster",
        ["ulr", "store.connections"],
    ),
    (
        "[store]\nurl = \"postgres://h/d\"\n[cluster]\nname = \"a b\"\nkey = \"short\"",
        "",
        ["cluster.name", "cluster.key"],
    ),
    (
        "[files]\nurl = \"https://a.example\"\nendpoint = \"nowhere\"",
        "",
        ["files.url", "files.endpoint"],
    ),
    (
        "[file]\nurl = \"s3://x\"\n[files]\nurl = \"https://a.example\"",
        "",
        ["file", "files.url"],
    ),
    (
        "[audit]\nkey = \"short\"\nkey_env = \"NO_SUCH_VARIABLE\"",
        "",
        ["audit.key:", "audit.key_env"],
    ),
    (
        "[retention]\nchats = \"0d\"\nusage = \"0d\"",
        "",
        ["retention.chats", "retention.usage"],
    ),
    (
        "[budget]\ntokens_per_day = 0\ncurrency = \"a very long currency\"",
        "",
        ["budget.tokens_per_day", "budget.currency"],
    ),
    (
        "[limits]\nturns = \"many\"\nunread_bytes = 0",
        "",
        ["limits.turns", "limits.unread_bytes"],
    ),
    // What is compared with an unreadable value is not judged.
    (
        "[limits]\nchat_bytes = \"many\"\nloaded_bytes = 1000\nturns = 0",
        "limits.loaded_bytes",
        ["limits.chat_bytes", "limits.turns"],
    ),
    (
        "[log]\nformat = 5\ncolour = 1",
        "",
        ["log.format", "colour"],
    ),
    (
        "[telemetry]\ncontent = 5\nspans = 1",
        "",
        ["telemetry.content", "spans"],
    ),
];

#[test]
fn of_two_mistakes_in_a_section_both_are_said() {
    let directory = TempDir::new().unwrap();
    for (toml, follows, expected) in PAIRS {
        let (code, printed) = check(&directory, toml, &[]);
        assert_eq!(code, Some(1), "{toml}: {printed}");
        for words in expected {
            assert!(printed.contains(words), "{toml}: {words} in {printed}");
        }
        let follow = |line: &str| line.starts_with(&format!("problem  {follows}"));
        let is_free = follows.is_empty() || !printed.lines().any(follow);
        assert!(is_free, "{toml}: {follows} in {printed}");
    }
    // Whatever sections there are.
    let defaults = serde_json::to_value(Config::default()).unwrap();
    for section in defaults.as_object().unwrap().keys() {
        let toml = format!("[{section}]\nwrong_one = 1\nwrong_two = 2");
        let (_, printed) = check(&directory, &toml, &[]);
        for name in ["wrong_one", "wrong_two"] {
            assert!(printed.contains(name), "[{section}]: {printed}");
        }
    }
}

#[test]
fn the_start_refuses_what_the_check_refuses_in_the_same_words() {
    let cases = [
        "[server]\nallowed_origins = [\"*\"]\nmax_body_bytes = 0",
        "[agent]\nmax_steps = 0\n[limits]\nturns = 0",
        "[[agents]]\nid = \"one\"\nkind = \"adk\"\n[[agents]]\nid = \"two\"\nkind = \"oracle\"",
        "[agent]\ntools = [\"fly\"]",
        "[store]\nurl = \"mysql://u:PLANTED@h/d\"",
    ];
    for toml in cases {
        let directory = TempDir::new().unwrap();
        let refused = refused_in(&directory, toml, |_| {});
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
        let (code, printed) = check(&directory, toml, &[]);
        assert_eq!(code, Some(1), "{toml}: {printed}");
        assert!(!printed.contains("PLANTED"), "{printed}");
        for line in printed.lines() {
            let problem = line.strip_prefix("problem  ").unwrap();
            let start = format!("{refused}{log}");
            assert!(start.contains(problem), "{problem} in {start}");
        }
    }
}

#[test]
fn what_is_named_is_reached_for() {
    let directory = TempDir::new().unwrap();
    let mut model = Command::new(binary());
    model.arg("fake-gemini").stdin(Stdio::null());
    let model = Process::start(&mut model).unwrap();
    let gemini = |model_name: &str, more: &str| {
        let url = model.url();
        format!(
            "[[agents]]\nid = \"one\"\nkind = \"gemini\"\nmodel = \"{model_name}\"\nbase_url = \"{url}\"\n{more}"
        )
    };
    let fine = gemini("gemini-3.8-flash", "");
    let (code, printed) = check(&directory, &fine, &["--reach"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("ok       agent one:"), "{printed}");
    assert!(printed.contains("ok       store:"), "{printed}");

    let away = "[[agents]]\nid = \"two\"\nkind = \"adk\"\napp = \"a\"\nbase_url = \"http://127.0.0.1:9\"\n";
    let cases = [
        (gemini("no-such-model", ""), "agent one:", "agent.model"),
        (
            gemini("gemini-3.8-flash", away),
            "agent two:",
            "127.0.0.1:9",
        ),
        (
            format!(
                "{fine}[store]\nurl = \"postgres://u:PLANTED-KEY@127.0.0.1:9/d\"\n[cluster]\nkey = \"PLANTED-KEY-0123\""
            ),
            "store:",
            "cannot be reached",
        ),
        (
            format!("{fine}[files]\nurl = \"/proc/nothing\""),
            "files:",
            "files.url",
        ),
    ];
    for (toml, subject, word) in cases {
        let (code, printed) = check(&directory, &toml, &["--reach"]);
        assert_eq!(code, Some(2), "{printed}");
        let problem = printed.lines().find(|line| line.starts_with("problem"));
        let problem = problem.unwrap();
        assert!(
            problem.contains(subject) && problem.contains(word),
            "{printed}"
        );
    }
    // Looking makes nothing.
    assert!(!directory.path().join("data").exists());
}

/// Providers as they should be are tried with a real one, in `web/chat/login.test.mjs`.
#[tokio::test]
async fn providers_of_logins_are_reached_for() {
    // The first part of the path says what is wrong with it.
    let server = StandIn::start(|asked: &ReceivedRequest| {
        let host = asked.head.lines().find_map(|it| it.strip_prefix("host: "));
        let host = host.unwrap();
        let mut parts = asked.path.trim_start_matches('/').splitn(2, '/');
        let (kind, file) = (parts.next().unwrap(), parts.next().unwrap());
        let own = format!("http://{host}/{kind}");
        match (kind, file) {
            ("away", _) | ("no-key-file", "jwks") => refused(503, "text/plain", "PLANTED-KEY"),
            ("mute", ".well-known/openid-configuration") => {
                ok(&json!({"issuer": own, "jwks_uri": format!("{own}/jwks")}))
            }
            ("another", ".well-known/openid-configuration") => {
                ok(&json!({"issuer": "https://another.example", "jwks_uri": format!("{own}/jwks")}))
            }
            (_, ".well-known/openid-configuration") => ok(&json!({
                "issuer": own,
                "jwks_uri": format!("{own}/jwks"),
                "authorization_endpoint": format!("{own}/auth"),
                "token_endpoint": format!("{own}/token"),
            })),
            ("without-keys", "jwks") => ok(&json!({"keys": [{"kty": "oct", "k": "AAAA"}]})),
            ("no-list", "jwks") => ok(&json!({"key": "PLANTED-KEY"})),
            _ => ok(&json!({"keys": [{
                "kty": "OKP", "crv": "Ed25519", "kid": "1", "alg": "EdDSA", "use": "sig",
                "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
            }]})),
        }
    })
    .await;
    let url = |kind: &str| format!("http://{}/{kind}", server.address);
    let provider = |kind: &str, more: &str| {
        let issuer = url(kind);
        format!("[[auth.oidc]]\nname = \"corp\"\nissuer = \"{issuer}\"\n{more}\n")
    };
    let proxy = |kind: &str| {
        let keys = url(&format!("{kind}/jwks"));
        format!("[auth.proxy]\nheader = \"x-who\"\njwks_url = \"{keys}\"\naudience = \"a\"\n")
    };
    let (tokens, page) = ("audience = \"a\"", "client_id = \"bridge\"");
    let directory = TempDir::new().unwrap();

    for toml in [
        provider("good", page) + &proxy("good"),
        // Programs need no more of it than its keys.
        provider("mute", tokens),
    ] {
        let (code, printed) = check(&directory, &toml, &["--reach"]);
        assert_eq!(code, Some(0), "{printed}");
        for subject in ["auth.oidc corp", "auth.proxy"] {
            let line = format!("ok       {subject}: it publishes 1 keys");
            let is_named = subject == "auth.oidc corp" || toml.contains("[auth.proxy]");
            assert_eq!(printed.contains(&line), is_named, "{printed}");
        }
    }
    for (toml, subject, says) in [
        (provider("away", tokens), "auth.oidc corp:", "answers 503"),
        (provider("no-key-file", tokens), "auth.oidc corp:", "answers 503"),
        (provider("no-list", tokens), "auth.oidc corp:", "JSON Web Key Set"),
        (provider("without-keys", tokens), "auth.oidc corp:", "no key for RS256"),
        (provider("another", tokens), "auth.oidc corp:", "https://another.example"),
        (provider("mute", page), "auth.oidc corp:", "authorization_endpoint"),
        (proxy("away"), "auth.proxy:", "jwks_url"),
        (proxy("without-keys"), "auth.proxy:", "no key for RS256"),
        (
            "[auth.proxy]\nheader = \"x-who\"\njwks_url = \"http://127.0.0.1:9/jwks\"\naudience = \"a\"\n".to_owned(),
            "auth.proxy:",
            "127.0.0.1:9 cannot be reached",
        ),
    ] {
        let (code, printed) = check(&directory, &toml, &["--reach"]);
        assert_eq!(code, Some(2), "{printed}");
        let problem = printed.lines().find(|line| line.starts_with("problem"));
        let problem = problem.unwrap();
        assert!(problem.contains(subject) && problem.contains(says), "{printed}");
    }
    // Without `--reach` nobody is asked.
    let before = server.asked("").len();
    let (code, printed) = check(&directory, &provider("away", tokens), &[]);
    assert_eq!(
        (code, server.asked("").len()),
        (Some(0), before),
        "{printed}"
    );
    // A doctor asks, too.
    let arguments = ["doctor", "--config", "a.toml", "--listen", "127.0.0.1:0"];
    let looked = run(directory.path(), &arguments, &[]);
    assert_eq!(looked.status.code(), Some(2));
    assert!(super::printed(&looked).contains("problem  auth.oidc corp: "));
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_said() {
    let directory = TempDir::new().unwrap();
    let missing = run(
        directory.path(),
        &["check-config", "--config", "none.toml"],
        &[],
    );
    assert_eq!(missing.status.code(), Some(1));
    assert!(printed(&missing).contains("none.toml is not a file"));
    let (code, printed) = check(&directory, "[server\nPLANTED", &["--reach"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("line 1"), "{printed}");
    assert!(printed.contains("--reach"), "{printed}");
    assert!(!printed.contains("PLANTED"), "{printed}");
    let (code, printed) = check(&directory, "", &[]);
    assert_eq!((code, printed.lines().count()), (Some(0), 1), "{printed}");
}
