//! The description of the API is that of the router, and of PROTOCOL.md.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::Bridge;
use crate::support::users::KEYS;

const PROTOCOL: &str = include_str!("../../../../PROTOCOL.md");
/// The original front end's endpoints are there only if they are configured.
const COMPAT: &str = "[server]\ncompat = [\"adk-stream-protocol\"]\n";
/// What any path answers to a method that it has not, and what only replicas answer each other.
const NOT_OF_AN_OPERATION: [(u16, &str); 2] = [(405, "method_not_allowed"), (409, "not_owner")];

async fn description(bridge: &Bridge) -> Value {
    let answer = bridge.get("/api/openapi.json").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

/// Each operation with its path and its method.
fn operations(description: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = description["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(|(method, operation)| (path.as_str(), method.as_str(), operation))
    });
    operations.collect()
}

/// A path that can be asked for.
fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => "some",
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_route_and_method_is_described_and_nothing_else() {
    for toml in ["", COMPAT] {
        let bridge = Bridge::configured(toml);
        let description = description(&bridge).await;
        let paths = description["paths"].as_object().unwrap();
        assert_eq!(paths.contains_key("/stream"), !toml.is_empty());
        for (path, methods) in paths {
            // No router knows this method, so that it says which it has.
            let answer = bridge.send("BREW", &filled(path), &[], "").await;
            assert_eq!(answer.status, 405, "{path} is described, and not routed");
            let allowed = answer.header("allow").unwrap_or_default();
            let routed: BTreeSet<String> = allowed
                .split(',')
                .map(str::to_ascii_lowercase)
                .filter(|method| method != "head")
                .collect();
            let methods = methods.as_object().unwrap().keys().cloned().collect();
            assert_eq!(routed, methods, "{path}: what is routed, what is described");
        }
    }
}

/// PROTOCOL.md names every endpoint; those that differ by a slash or by the agent in their address are one there.
#[tokio::test]
async fn the_protocol_names_the_same_endpoints() {
    let bridge = Bridge::configured(COMPAT);
    let description = description(&bridge).await;
    let plain = |path: &str| -> String {
        let path = path.replacen("/api/agents/{agent}/chat", "/api/chat", 1);
        let path = match path.strip_suffix('/') {
            Some("") | None => path.as_str(),
            Some(shorter) => shorter,
        };
        let parts = path.split('/').map(|part| match part.starts_with('{') {
            true => "{}",
            false => part,
        });
        parts.collect::<Vec<_>>().join("/")
    };
    let described: BTreeSet<String> = operations(&description)
        .iter()
        .map(|(path, method, _)| format!("{} {}", method.to_ascii_uppercase(), plain(path)))
        .collect();
    let table = rows("## The endpoints").flat_map(|row| words(row.split(" | ").next().unwrap()));
    let named: BTreeSet<String> = table
        .filter_map(|word| {
            let (method, path) = word.split_once(' ')?;
            let method = if method == "WS" { "GET" } else { method };
            Some(format!(
                "{method} {}",
                plain(path.split('?').next().unwrap())
            ))
        })
        .collect();
    assert_eq!(
        named, described,
        "named in PROTOCOL.md, described by the router"
    );
}

#[tokio::test]
async fn the_protocol_explains_the_same_refusals() {
    let bridge = Bridge::configured(COMPAT);
    let description = description(&bridge).await;
    let mut described =
        BTreeSet::from(NOT_OF_AN_OPERATION.map(|(status, code)| (status, code.to_owned())));
    for (_, _, operation) in operations(&description) {
        for (status, answer) in operation["responses"].as_object().unwrap() {
            let codes = &answer["headers"]["x-error-code"]["schema"]["enum"];
            for code in codes.as_array().into_iter().flatten() {
                described.insert((status.parse().unwrap(), code.as_str().unwrap().to_owned()));
            }
        }
    }
    let mut explained = BTreeSet::new();
    for row in rows("### Error responses") {
        let mut cells = row.trim_start_matches('|').split(" | ");
        let statuses = cells.next().unwrap().split(',');
        let codes = words(cells.next().unwrap());
        for status in statuses {
            let status: u16 = status.trim().parse().unwrap();
            explained.extend(codes.iter().map(|code| (status, code.clone())));
        }
    }
    assert_eq!(explained, described, "explained in PROTOCOL.md, described");
}

#[tokio::test]
async fn every_operation_says_what_a_reader_needs() {
    let bridge = Bridge::configured(COMPAT);
    let description = description(&bridge).await;
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&description) {
        let place = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap();
        assert!(
            ids.insert(id),
            "{place}: {id} is the id of another operation"
        );
        let text = operation["description"].as_str().unwrap();
        let (_, meaning) = text.rsplit_once("Meaning: PROTOCOL.md, \"").unwrap();
        let heading = meaning.strip_suffix("\".").unwrap();
        let is_there = PROTOCOL
            .lines()
            .any(|line| line.trim_start_matches('#') == format!(" {heading}"));
        assert!(is_there, "{place}: PROTOCOL.md has no heading {heading:?}");
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let mut in_path = BTreeSet::new();
        for parameter in parameters {
            let name = parameter["name"].as_str().unwrap();
            let said = parameter["description"].as_str().unwrap_or_default();
            assert!(
                !said.is_empty(),
                "{place}: nothing is said of {name}; describe it with `path`, or in openapi/document.rs if it means the \
                 same everywhere"
            );
            if parameter["in"] == "path" {
                in_path.insert(format!("{{{name}}}"));
            }
        }
        let wanted = path.split('/').filter(|part| part.starts_with('{'));
        let wanted: BTreeSet<String> = wanted.map(str::to_owned).collect();
        assert_eq!(in_path, wanted, "{place}");
        let answers = operation["responses"].as_object().unwrap();
        let is_answered = answers
            .keys()
            .any(|status| status.starts_with(['1', '2', '3']));
        assert!(is_answered, "{place} only refuses");
        let bodies = answers.values().chain(operation.get("requestBody"));
        for content in bodies.filter_map(|body| body["content"].as_object()) {
            for (kind, media) in content {
                let has_example = media.get("example").is_some() || media.get("examples").is_some();
                assert!(has_example, "{place}: {kind} has no example");
            }
        }
    }
}

/// Where keys are configured, the description says which operations need one, and those do.
#[tokio::test]
async fn operations_need_the_key_that_they_ask_for() {
    let bridge = Bridge::configured(KEYS);
    let description = description(&bridge).await;
    assert_eq!(
        description["components"]["securitySchemes"]["key"]["scheme"],
        "bearer"
    );
    for (path, method, operation) in operations(&description) {
        let needs_key = !operation["security"].as_array().unwrap().is_empty();
        let has_answer = operation["responses"].get("401").is_some();
        let method = method.to_ascii_uppercase();
        let upgrade = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let opens = operation["responses"].get("101").is_some();
        let headers = if opens { &upgrade[..] } else { &[] };
        let answer = bridge.send(&method, &filled(path), headers, "").await;
        assert_eq!(needs_key, answer.status == 401, "{method} {path}");
        assert!(has_answer || !needs_key, "{method} {path}");
    }
}

/// Each way to log in that is configured, and no other, is one of the description.
#[tokio::test]
async fn every_way_to_log_in_is_described() {
    let oidc = "[[auth.oidc]]\nname = \"corp\"\nissuer = \"http://127.0.0.1:9/realm/\"\n";
    let (tokens, page) = ("audience = \"a\"\n", "client_id = \"bridge\"\n");
    let proxy =
        "[auth.proxy]\nheader = \"x-who\"\njwks_url = \"http://127.0.0.1:9/k\"\naudience = \"a\"\n";
    let https = "[server]\npublic_url = \"https://chat.example\"\n";
    for (toml, names) in [
        (String::new(), &[][..]),
        (KEYS.to_owned(), &["key"]),
        (format!("{KEYS}{COMPAT}"), &["key", "xApiKey"]),
        (format!("{oidc}{tokens}"), &["oidc-corp"]),
        (format!("{oidc}{page}"), &["login"]),
        (
            format!("{oidc}{tokens}{page}{proxy}{KEYS}"),
            &["key", "login", "oidc-corp", "proxy"],
        ),
        (format!("{https}{oidc}{page}"), &["login"]),
    ] {
        let bridge = Bridge::configured(&toml);
        let description = description(&bridge).await;
        let schemes = &description["components"]["securitySchemes"];
        let none = serde_json::Map::new();
        let found: BTreeSet<&str> = schemes
            .as_object()
            .unwrap_or(&none)
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(found, names.iter().copied().collect(), "{toml}");
        for (way, field, value) in [
            (
                "oidc-corp",
                "openIdConnectUrl",
                "http://127.0.0.1:9/realm/.well-known/openid-configuration",
            ),
            ("proxy", "name", "x-who"),
            ("login", "in", "cookie"),
            (
                "login",
                "name",
                if toml.contains(https) {
                    "__Host-adk-bridge-login"
                } else {
                    "adk-bridge-login"
                },
            ),
        ] {
            if names.contains(&way) {
                assert_eq!(schemes[way][field], value, "{way} of {toml}");
            }
        }
        // Who needs a user takes each of them.
        let (_, _, chats) = operations(&description)
            .into_iter()
            .find(|(path, method, _)| (*path, *method) == ("/api/chats", "get"))
            .unwrap();
        let taken = chats["security"].as_array().into_iter().flatten();
        let taken: BTreeSet<&str> = taken
            .flat_map(|it| it.as_object().unwrap().keys().map(String::as_str))
            .collect();
        assert_eq!(taken, found, "{toml}");
    }
}

#[tokio::test]
async fn the_page_shows_all_of_it_and_loads_nothing() {
    let bridge = Bridge::configured(&format!("{KEYS}{COMPAT}"));
    let description = description(&bridge).await;
    let page = bridge.get("/api/docs").await;
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    let html = String::from_utf8(page.body.clone()).unwrap();
    let whole = html.replace("<wbr>", "");
    for (path, method, operation) in operations(&description) {
        let summary = operation["summary"].as_str().unwrap();
        let is_shown = whole.contains(&format!("<code>{path}</code>")) && whole.contains(summary);
        assert!(is_shown, "{method} {path}");
    }
    for schema in description["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys()
    {
        assert!(
            html.contains(&format!("id=\"schema-{schema}\"")),
            "{schema}"
        );
    }
    for foreign in ["<script", "<link", "<img", "src=", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(!html.contains("null</"), "something is not there");
}

/// A public address is that of the description.
#[tokio::test]
async fn the_description_names_the_public_address() {
    for (toml, url) in [
        ("", "/"),
        (
            "[server]\npublic_url = \"https://chat.example/\"\n",
            "https://chat.example",
        ),
    ] {
        let bridge = Bridge::configured(toml);
        assert_eq!(description(&bridge).await["servers"][0]["url"], url);
    }
}

/// The rows of the first table below a heading of PROTOCOL.md.
fn rows(heading: &str) -> impl Iterator<Item = &'static str> {
    let (_, section) = PROTOCOL.split_once(&format!("{heading}\n")).unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    lines.take_while(|line| line.starts_with('|')).skip(2)
}

/// What stands between backticks.
fn words(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}
