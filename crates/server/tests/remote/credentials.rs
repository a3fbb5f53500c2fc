//! Logins that an ADK server asks for: granted, refused, forged, repeated, too late, and across a restart.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, events, text_of, well};
use crate::support::http::Response;
use crate::support::{Bridge, JSON, text_of as words_of, within};

const NAME: &str = "adk_request_credential";
/// What only the ADK server may see: its client's secret, and what users grant.
const CLIENT_SECRET: &str = "PLANTED-CLIENT-SECRET-4711";
const CODE: &str = "PLANTED-CODE-0815";
const PASSWORD: &str = "PLANTED-PASSWORD-12";

/// A bridge before an ADK server whose agent needs a login for each call. Texts name the logins.
struct World {
    stand_in: StandIn,
    bridge: Bridge,
}

impl World {
    async fn new(toml: &str) -> Self {
        let stand_in = StandIn::start(adk).await;
        let toml = format!("{}{toml}", stand_in.toml());
        let bridge = Bridge::with(&toml, |command| {
            command.env("RUST_LOG", "debug,hyper=info,h2=info");
        });
        Self { stand_in, bridge }
    }

    /// Asks, and returns the parts of the questions in the answer.
    async fn asked(&self, text: &str) -> Vec<Value> {
        let shown = self.bridge.ask("c", text).await.events().await.concat();
        self.hides_secrets(&shown);
        let message = self.bridge.last_message("c").await;
        tools(&message, NAME)
    }

    /// Opens the link of a question. Returns the `state` that the provider gets.
    async fn opened(&self, question: &Value) -> String {
        let answer = self.bridge.get(&link(question)).await;
        assert_eq!(answer.status, 303, "{}", answer.message());
        let page = answer.header("location").unwrap().to_owned();
        let page = page
            .strip_prefix("https://login.example/a?client_id=app&")
            .unwrap();
        let back = format!(
            "redirect_uri=http%3A%2F%2F{}%2Fapi%2Foauth%2Fcallback&state=",
            self.bridge.address
        );
        let back = back.replace(":", "%3A").replace("%253A", "%3A");
        page.strip_prefix(&*back)
            .unwrap_or_else(|| panic!("{page}, {back}"))
            .to_owned()
    }

    async fn came_back(&self, query: &str) -> Response {
        self.bridge
            .get(&format!("/api/oauth/callback?{query}"))
            .await
    }

    /// The message once the reply has ended.
    async fn ended(&self) -> Value {
        let wait = async {
            loop {
                let message = self.bridge.last_message("c").await;
                let is_answer = message["role"] == "assistant";
                let open = tools(&message, "");
                if open.iter().all(|it| it["state"] != "input-available")
                    && is_answer
                    && !words_of(&message).is_empty()
                {
                    return message;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(wait).await
    }

    /// The results that the ADK server was sent, run by run.
    fn sent(&self) -> Vec<Vec<Value>> {
        let runs = self.stand_in.asked("/run_sse");
        let results = |run: &ReceivedRequest| -> Vec<Value> {
            let parts = run.body["newMessage"]["parts"].as_array().unwrap().clone();
            parts
                .iter()
                .filter_map(|part| part.get("functionResponse").cloned())
                .collect()
        };
        let runs = runs.iter().map(results);
        runs.filter(|run| !run.is_empty()).collect()
    }

    fn hides_secrets(&self, text: &str) {
        for secret in [CLIENT_SECRET, CODE, PASSWORD] {
            let found = text
                .find(secret)
                .map(|at| &text[at.saturating_sub(200)..at]);
            assert_eq!(found, None);
        }
    }

    /// Nothing that was stored, logged or shown contains a secret.
    async fn kept_secrets(&self) {
        self.hides_secrets(&self.bridge.log());
        for dialect in ["native", "adk", "held"] {
            let shown = self
                .bridge
                .get(&format!("/api/chats/c?dialect={dialect}"))
                .await;
            self.hides_secrets(&String::from_utf8_lossy(&shown.body));
        }
        let audit = self.bridge.get("/api/audit?chat=c").await;
        self.hides_secrets(&String::from_utf8_lossy(&audit.body));
        for file in std::fs::read_dir(self.bridge.directory.path().join("data")).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                self.hides_secrets(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
            }
        }
    }
}

/// The path of a question's link: after a restart the port is another one.
fn link(question: &Value) -> String {
    let link = question["input"]["authorizeUrl"].as_str().unwrap();
    link[link.find("/api/").unwrap()..].to_owned()
}

fn tools(message: &Value, name: &str) -> Vec<Value> {
    let parts = message["parts"].as_array().unwrap().iter();
    let is_tool = |part: &&Value| {
        part["type"]
            .as_str()
            .unwrap()
            .starts_with(&format!("tool-{name}"))
    };
    parts.filter(is_tool).cloned().collect()
}

/// What the agent asks for, by the word in the user's text.
fn config(word: &str) -> Value {
    let oauth2 = json!({"clientId": "app", "clientSecret": CLIENT_SECRET, "authUri":
        "https://login.example/a?client_id=app&state=ADK&redirect_uri=http%3A%2F%2Fold", "state": "ADK"});
    let credential = json!({"authType": "oauth2", "oauth2": oauth2});
    let scheme = match word {
        "key" => json!({"type": "apiKey", "in": "header", "name": "x-key"}),
        "basic" => json!({"type": "http", "scheme": "basic"}),
        "bearer" => json!({"type": "http", "scheme": "bearer"}),
        "strange" => json!({"type": "http", "scheme": "digest"}),
        "oidc" => {
            json!({"type": "openIdConnect", "authorizationEndpoint": "https://login.example/a", "scopes": ["openid"]})
        }
        _ => json!({"type": "oauth2", "flows": {"authorizationCode": {
            "authorizationUrl": "https://login.example/a", "tokenUrl": "https://login.example/t",
            "scopes": {"mail.read": "reads mail"}}}}),
    };
    let mut config = json!({"authScheme": scheme, "credentialKey": word});
    if matches!(word, "mail" | "news" | "toolset" | "snake" | "oidc") {
        config["rawAuthCredential"] = credential.clone();
        config["exchangedAuthCredential"] = credential;
    }
    config
}

/// Asks for the login of each word, then runs the tool with what was granted.
fn adk(asked: &ReceivedRequest) -> Vec<u8> {
    if asked.path != "/run_sse" {
        return well(asked);
    }
    let said = |event: Value| format!("data: {event}\n\n");
    let part =
        |part: Value| said(json!({"author": "app", "content": {"role": "model", "parts": [part]}}));
    let parts = asked.body["newMessage"]["parts"].as_array().unwrap();
    let results: Vec<&Value> = parts
        .iter()
        .filter_map(|part| part.get("functionResponse"))
        .collect();
    if results.is_empty() {
        let mut stream = String::new();
        let mut pending = Vec::new();
        for word in text_of(asked).split(' ').filter(|word| *word != "hello") {
            let (call, request) = (format!("c-{word}"), format!("r-{word}"));
            if word != "toolset" {
                stream += &part(
                    json!({"functionCall": {"id": call, "name": format!("use_{word}"), "args": {}}}),
                );
                pending.push(word);
            }
            let args = match word {
                "snake" => json!({"function_call_id": call, "auth_config": config(word)}),
                "toolset" => {
                    json!({"functionCallId": "_adk_toolset_auth_Mail", "authConfig": config(word)})
                }
                _ => json!({"functionCallId": call, "authConfig": config(word)}),
            };
            stream += &said(
                json!({"author": "app", "longRunningToolIds": [request], "content": {"role": "model", "parts":
                [{"functionCall": {"id": request, "name": NAME, "args": args}}]}}),
            );
        }
        for word in pending {
            let call = format!("c-{word}");
            stream += &said(
                json!({"author": "app", "content": {"role": "user", "parts": [
                {"functionResponse": {"id": call, "name": format!("use_{word}"), "response": {"pending": true}}}]},
                "actions": {"requestedAuthConfigs": {call: config(word)}}}),
            );
        }
        // An older server lets the model speak before it has anything.
        return events(
            stream
                + &part(
                    json!({"text": if text_of(asked) == "hello" { "hello" } else { "please log in" }}),
                ),
        );
    }
    let mut stream = String::new();
    for result in &results {
        let id = result["id"].as_str().unwrap();
        if let Some(word) = id.strip_prefix("r-").filter(|word| *word != "toolset") {
            stream += &said(
                json!({"author": "app", "content": {"role": "user", "parts": [
                {"functionResponse": {"id": format!("c-{word}"), "name": format!("use_{word}"), "response": {"used": word}}}]}}),
            );
        }
    }
    let granted = results.iter().filter(|it| it["name"] == NAME).count();
    events(stream + &part(json!({"text": format!("{granted} granted")})))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_at_a_provider_goes_to_the_agent_and_nowhere_else() {
    for word in ["mail", "snake", "oidc", "toolset"] {
        let world = World::new("").await;
        let questions = world.asked(word).await;
        let [question] = &questions[..] else {
            panic!("{questions:?}")
        };
        let input = &question["input"];
        let kind = if word == "oidc" { "oidc" } else { "oauth2" };
        let scope = if word == "oidc" {
            "openid"
        } else {
            "mail.read"
        };
        assert_eq!(input["kind"], kind);
        assert_eq!(input["provider"], "login.example");
        assert_eq!(input["scopes"], json!([scope]));
        assert!(input["expiresAt"].as_u64().unwrap() > 1_700_000_000_000);
        assert_eq!(question["state"], "input-available");
        let message = world.bridge.last_message("c").await;
        assert_eq!(words_of(&message), "", "it has nothing to say yet");
        assert_eq!(world.sent().len(), 0);

        let state = world.opened(question).await;
        let second = world.opened(question).await;
        assert!(!second.is_empty(), "a second window");
        let page = world.came_back(&format!("code={CODE}&state={state}")).await;
        assert_eq!(page.status, 200, "{}", page.message());
        let shown = String::from_utf8_lossy(&page.body).into_owned();
        assert!(shown.contains("data-end=\"granted\""), "{shown}");
        assert!(shown.contains("Access granted"), "{shown}");
        assert!(
            page.header("content-security-policy")
                .unwrap()
                .contains("default-src 'none'")
        );
        world.hides_secrets(&shown);

        let message = world.ended().await;
        let question = &tools(&message, NAME)[0];
        assert_eq!(question["output"], json!({"granted": true}));
        assert_eq!(words_of(&message), "1 granted");
        if word != "toolset" {
            assert_eq!(tools(&message, "use_")[0]["output"], json!({"used": word}));
        }
        let sent = world.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let [answer] = &sent[0][..] else {
            panic!("{sent:?}")
        };
        assert_eq!(answer["id"], format!("r-{word}"));
        assert_eq!(answer["name"], NAME);
        let back = format!("http://{}/api/oauth/callback", world.bridge.address);
        let oauth2 = &answer["response"]["exchangedAuthCredential"]["oauth2"];
        assert_eq!(
            oauth2["authResponseUri"],
            format!("{back}?code={CODE}&state=ADK")
        );
        assert_eq!(oauth2["redirectUri"], back);
        assert_eq!(oauth2["clientSecret"], CLIENT_SECRET);
        assert_eq!(answer["response"]["credentialKey"], word);

        // A second answer, and the link, say that it is over.
        for again in [
            world.came_back(&format!("code=other&state={state}")).await,
            world
                .came_back(&format!("error=access_denied&state={state}"))
                .await,
            world.bridge.get(&link(question)).await,
        ] {
            assert_eq!(
                again.status,
                409,
                "{}",
                String::from_utf8_lossy(&again.body)
            );
            assert!(String::from_utf8_lossy(&again.body).contains("Already answered"));
        }
        assert_eq!(world.sent().len(), 1);
        world.kept_secrets().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_granted_is_the_result_of_the_call() {
    for (query, error) in [
        (
            "error=access_denied&error_description=no",
            "denied: the user did not grant access",
        ),
        (
            "error=server_error",
            "denied: the provider did not grant access (server_error)",
        ),
        (
            "error=%3Cscript%3Ealert(1)%3C%2Fscript%3E",
            "denied: the provider did not grant access (error)",
        ),
    ] {
        let world = World::new("").await;
        let question = world.asked("mail").await.remove(0);
        let state = world.opened(&question).await;
        let page = world.came_back(&format!("{query}&state={state}")).await;
        assert_eq!(page.status, 200);
        let shown = String::from_utf8_lossy(&page.body);
        assert!(
            shown.contains("Access not granted") && !shown.contains("alert"),
            "{shown}"
        );
        let message = world.ended().await;
        assert_eq!(tools(&message, NAME)[0]["errorText"], error);
        let refused = "not run: the user did not grant the access that it needs";
        assert_eq!(tools(&message, "use_mail")[0]["errorText"], refused);
        assert_eq!(words_of(&message), "0 granted");
        let sent = world.sent();
        assert_eq!(
            sent,
            [vec![
                json!({"id": "c-mail", "name": "use_mail", "response": {"error": refused}})
            ]]
        );
        world.kept_secrets().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_were_not_made_here_lead_nowhere() {
    let world = World::new("").await;
    let question = world.asked("mail").await.remove(0);
    let state = world.opened(&question).await;
    let token = link(&question).split_once("request=").unwrap().1.to_owned();
    let mut forged = state.clone();
    let last = if forged.pop() == Some('A') { 'B' } else { 'A' };
    forged.push(last);
    for query in [
        String::new(),
        format!("code={CODE}"),
        format!("code={CODE}&state="),
        format!("code={CODE}&state={forged}"),
        format!("code={CODE}&state=ADK"),
        // A link is not a state, and two answers are none.
        format!("code={CODE}&state={token}"),
        format!("code={CODE}&error=access_denied&state={state}"),
        format!("code={CODE}&state={state}&state={state}"),
        format!("state={state}"),
        "state=%FF%00&code=x".to_owned(),
    ] {
        let page = world.came_back(&query).await;
        assert_eq!(page.status, 400, "{query}");
        assert!(
            page.header("content-type")
                .unwrap()
                .starts_with("text/html")
        );
    }
    for query in [
        "",
        "request=",
        "request=x",
        &format!("request={state}"),
        "url=https://elsewhere.example",
        "%FF",
    ] {
        let page = world
            .bridge
            .get(&format!("/api/oauth/authorize?{query}"))
            .await;
        assert_eq!(
            (page.status, page.header("location")),
            (400, None),
            "{query}"
        );
    }
    for method in ["POST", "PUT", "DELETE"] {
        let path = format!("/api/oauth/callback?code={CODE}&state={state}");
        assert_eq!(world.bridge.send(method, &path, &[], "").await.status, 405);
    }
    assert_eq!(world.sent().len(), 0);
    // The question is still open.
    assert_eq!(
        world
            .came_back(&format!("code={CODE}&state={state}"))
            .await
            .status,
        200
    );
    assert_eq!(words_of(&world.ended().await), "1 granted");
    let japanese = world
        .bridge
        .send(
            "GET",
            "/api/oauth/callback",
            &[("accept-language", "ja,en;q=0.5")],
            "",
        )
        .await;
    assert!(String::from_utf8_lossy(&japanese.body).contains("不明なログイン"));
    world.kept_secrets().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_passwords_go_to_the_agent_and_nowhere_else() {
    for (word, given, credential) in [
        (
            "key",
            json!({"apiKey": PASSWORD}),
            json!({"authType": "apiKey", "apiKey": PASSWORD}),
        ),
        (
            "basic",
            json!({"username": "u", "password": PASSWORD}),
            json!({"authType": "http", "http": {"scheme": "basic", "credentials": {"username": "u", "password": PASSWORD}}}),
        ),
        (
            "bearer",
            json!({"token": PASSWORD}),
            json!({"authType": "http", "http": {"scheme": "bearer", "credentials": {"token": PASSWORD}}}),
        ),
    ] {
        let world = World::new("").await;
        let question = world.asked(word).await.remove(0);
        let kind = if word == "key" { "apiKey" } else { word };
        assert_eq!(question["input"]["kind"], kind);
        assert_eq!(question["input"].get("authorizeUrl"), None);
        let path = format!(
            "/api/credentials/{}",
            question["toolCallId"].as_str().unwrap()
        );
        for (body, code) in [
            (
                json!({"apiKey": PASSWORD, "token": PASSWORD}),
                "bad_credential",
            ),
            (json!({"granted": true}), "bad_credential"),
            (json!({}), "bad_credential"),
            (json!([PASSWORD]), "bad_credential"),
            (json!({"secret": PASSWORD}), "bad_credential"),
            (
                json!({if word == "key" { "token" } else { "apiKey" }: PASSWORD}),
                "bad_credential",
            ),
        ] {
            let refused = world.bridge.post(&path, &body).await;
            assert_eq!(
                (refused.status, refused.code().as_str()),
                (422, code),
                "{body}"
            );
            world.hides_secrets(&refused.message());
        }
        let other_page = [
            JSON,
            ("origin", "https://elsewhere.example"),
            ("sec-fetch-site", "cross-site"),
        ];
        assert_eq!(
            world
                .bridge
                .send("POST", &path, &other_page, given.to_string())
                .await
                .status,
            403
        );
        assert_eq!(
            world
                .bridge
                .post("/api/credentials/call_unknown", &given)
                .await
                .status,
            404
        );
        assert_eq!(world.sent().len(), 0);

        assert_eq!(world.bridge.post(&path, &given).await.status, 204);
        let message = world.ended().await;
        assert_eq!(tools(&message, NAME)[0]["output"], json!({"granted": true}));
        assert_eq!(
            world.sent()[0][0]["response"]["exchangedAuthCredential"],
            credential
        );
        assert_eq!(
            world.bridge.post(&path, &given).await.status,
            404,
            "the chat asks nothing any more"
        );
        world.kept_secrets().await;
    }
    let world = World::new("").await;
    let question = world.asked("key").await.remove(0);
    let path = format!(
        "/api/credentials/{}",
        question["toolCallId"].as_str().unwrap()
    );
    assert_eq!(
        world
            .bridge
            .post(&path, &json!({"granted": false}))
            .await
            .status,
        204
    );
    let message = world.ended().await;
    assert_eq!(
        tools(&message, NAME)[0]["errorText"],
        "denied: the user did not grant access"
    );
}

/// A front end says that its part is done, whenever that is. Only what came from the provider counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_tool_that_is_done_has_granted_nothing() {
    for output in [json!("done"), json!({"granted": true}), json!(null)] {
        let world = World::new("").await;
        let question = world.asked("mail").await.remove(0);
        let answered = |state: &str, field: &str, value: &Value| {
            let mut part = question.clone();
            part["state"] = json!(state);
            part[field] = value.clone();
            part
        };
        let mut message = world.bridge.last_message("c").await;
        let place = message["parts"]
            .as_array()
            .unwrap()
            .iter()
            .position(|it| *it == question)
            .unwrap();
        message["parts"][place] = answered("output-available", "output", &output);
        let body = json!({"id": "c", "messages": [message.clone()]});
        let early = world.bridge.post("/api/chat", &body).await;
        assert_eq!(early.status, 200, "{}", early.message());
        assert!(
            String::from_utf8_lossy(&early.body).contains("tool-calls"),
            "it ends as it began"
        );
        assert_eq!(world.sent().len(), 0);
        let stored = &tools(&world.bridge.last_message("c").await, NAME)[0];
        assert_eq!(stored["state"], "input-available");

        let state = world.opened(&question).await;
        assert_eq!(
            world
                .came_back(&format!("code={CODE}&state={state}"))
                .await
                .status,
            200
        );
        let late = world.bridge.post("/api/chat", &body).await;
        assert_eq!(late.status, 200, "{}", late.message());
        let late = String::from_utf8_lossy(&late.body).into_owned();
        assert!(late.contains("1 granted"), "{late}");
        assert_eq!(
            tools(&world.ended().await, NAME)[0]["output"],
            json!({"granted": true})
        );
        let audit = world.bridge.get("/api/audit?chat=c").await;
        assert!(!String::from_utf8_lossy(&audit.body).contains("answer.refused"));
    }
    for (field, value, error) in [
        (
            "output",
            json!({"granted": false}),
            "denied: the user did not grant access",
        ),
        (
            "errorText",
            json!("the window was closed"),
            "the window was closed",
        ),
    ] {
        let world = World::new("").await;
        let mut question = world.asked("mail").await.remove(0);
        let message = world.bridge.last_message("c").await;
        question["state"] = json!(if field == "output" {
            "output-available"
        } else {
            "output-error"
        });
        question[field] = value;
        let body = json!({"id": "c", "messages": [{"id": message["id"], "role": "assistant", "parts": [question]}]});
        let said = world.bridge.post("/api/chat", &body).await;
        let said = String::from_utf8_lossy(&said.body).into_owned();
        assert!(said.contains("0 granted"), "{said}");
        assert_eq!(tools(&world.ended().await, NAME)[0]["errorText"], error);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_logins_at_once_are_sent_together_and_one_may_be_refused() {
    let world = World::new("").await;
    let questions = world.asked("mail news").await;
    let mut states = Vec::new();
    for question in &questions {
        states.push(world.opened(question).await);
    }
    assert_eq!(
        world
            .came_back(&format!("code={CODE}&state={}", states[1]))
            .await
            .status,
        200
    );
    assert_eq!(world.sent().len(), 0, "the agent takes both at once");
    assert_eq!(
        world
            .came_back(&format!("code={CODE}&state={}", states[0]))
            .await
            .status,
        200
    );
    assert_eq!(words_of(&world.ended().await), "2 granted");
    let sent = world.sent();
    let ids: Vec<&Value> = sent[0].iter().map(|it| &it["id"]).collect();
    assert_eq!(
        (sent.len(), ids),
        (1, vec![&json!("r-mail"), &json!("r-news")])
    );
    world.kept_secrets().await;

    let world = World::new("").await;
    let questions = world.asked("mail news").await;
    let (granted, denied) = (
        world.opened(&questions[0]).await,
        world.opened(&questions[1]).await,
    );
    assert_eq!(
        world
            .came_back(&format!("error=access_denied&state={denied}"))
            .await
            .status,
        200
    );
    assert_eq!(
        world
            .came_back(&format!("code={CODE}&state={granted}"))
            .await
            .status,
        200
    );
    let message = world.ended().await;
    assert_eq!(words_of(&message), "1 granted");
    assert_eq!(
        tools(&message, "use_mail")[0]["output"],
        json!({"used": "mail"})
    );
    assert_eq!(tools(&message, "use_news")[0]["state"], "output-error");
    let ids: Vec<Vec<String>> = world
        .sent()
        .iter()
        .map(|run| {
            run.iter()
                .map(|it| it["id"].as_str().unwrap().to_owned())
                .collect()
        })
        .collect();
    assert_eq!(ids, [["c-news"], ["r-mail"]], "results first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_survives_a_crash_of_the_bridge() {
    let mut world = World::new("").await;
    let questions = world.asked("mail key").await;
    let before = world.opened(&questions[0]).await;
    let path = format!(
        "/api/credentials/{}",
        questions[1]["toolCallId"].as_str().unwrap()
    );
    // One is granted before the crash and one after it: both reach the agent.
    assert_eq!(
        world
            .bridge
            .post(&path, &json!({"apiKey": PASSWORD}))
            .await
            .status,
        204
    );
    world.kept_secrets().await;
    world.bridge.kill_and_restart();
    world.kept_secrets().await;
    let after = world.opened(&questions[0]).await;
    assert_ne!(before, after);
    assert_eq!(
        world
            .came_back(&format!("code={CODE}&state={before}"))
            .await
            .status,
        200
    );
    assert_eq!(words_of(&world.ended().await), "2 granted");
    let sent = world.sent();
    assert_eq!(
        sent[0][1]["response"]["exchangedAuthCredential"]["apiKey"],
        PASSWORD
    );
    assert_eq!(
        world
            .came_back(&format!("code={CODE}&state={after}"))
            .await
            .status,
        409
    );
    world.kept_secrets().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_ends_with_its_time_with_a_newer_message_and_with_its_chat() {
    // Time.
    let world = World::new("[approval]\ntimeout = \"1s\"\n").await;
    let question = world.asked("mail").await.remove(0);
    let state = world.opened(&question).await;
    let message = world.ended().await;
    assert_eq!(
        tools(&message, NAME)[0]["errorText"],
        "expired: access was not granted in time"
    );
    assert_eq!(words_of(&message), "0 granted", "the agent is told");
    assert_eq!(
        world
            .came_back(&format!("code={CODE}&state={state}"))
            .await
            .status,
        410
    );
    assert_eq!(world.bridge.get(&link(&question)).await.status, 410);
    world.kept_secrets().await;

    // A newer message.
    let world = World::new("").await;
    let question = world.asked("mail").await.remove(0);
    let state = world.opened(&question).await;
    let said = world.bridge.ask("c", "hello").await.events().await.concat();
    assert!(said.contains("hello"), "{said}");
    let page = world.came_back(&format!("code={CODE}&state={state}")).await;
    assert!(matches!(page.status, 404 | 409 | 410), "{}", page.status);
    assert_eq!(world.sent().len(), 0);
    world.kept_secrets().await;

    // Stop, and the end of the chat.
    for (method, path) in [("POST", "/api/chat/c/stop"), ("DELETE", "/api/chats/c")] {
        let world = World::new("").await;
        let question = world.asked("mail").await.remove(0);
        let state = world.opened(&question).await;
        assert_eq!(world.bridge.send(method, path, &[], "").await.status, 204);
        let page = world.came_back(&format!("code={CODE}&state={state}")).await;
        assert!(matches!(page.status, 404 | 409 | 410), "{}", page.status);
        assert_eq!(world.sent().len(), 0);
    }
}

/// What a user cannot grant is said at once, as it was before there were questions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_of_an_unknown_kind_is_not_asked_for() {
    let world = World::new("").await;
    let shown = world
        .bridge
        .ask("c", "strange")
        .await
        .events()
        .await
        .concat();
    assert!(
        shown.contains("must be set up on the ADK server"),
        "{shown}"
    );
    assert!(shown.contains("please log in"), "{shown}");
    assert_eq!(world.sent().len(), 0);
}

/// Questions are the user's who was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_cannot_answer() {
    let keys = "[auth]\napi_keys = [{ key = \"key-of-alice-0123456789\", user = \"alice\" }, { key = \"key-of-bob-0123456789\", user = \"bob\" }]\n";
    let world = World::new(keys).await;
    let [alice, bob] = ["alice", "bob"].map(|name| format!("Bearer key-of-{name}-0123456789"));
    let ask = json!({"id": "c", "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "key"}]}]});
    let asked = world
        .bridge
        .send(
            "POST",
            "/api/chat",
            &[JSON, ("authorization", &alice)],
            ask.to_string(),
        )
        .await;
    let shown = String::from_utf8_lossy(&asked.body).into_owned();
    let call = shown
        .split("\"toolName\":\"adk_request_credential\"")
        .next()
        .unwrap();
    let call = call
        .rsplit("\"toolCallId\":\"")
        .next()
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let path = format!("/api/credentials/{call}");
    let given = json!({"apiKey": PASSWORD}).to_string();
    for (key, status) in [(Some(&bob), 404), (None, 401), (Some(&alice), 204)] {
        let mut headers = vec![JSON];
        headers.extend(key.map(|key| ("authorization", key.as_str())));
        assert_eq!(
            world
                .bridge
                .send("POST", &path, &headers, &given)
                .await
                .status,
            status
        );
    }
}
