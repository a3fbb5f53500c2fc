//! Ten thousand hostile inputs of four users with different roles, recognised by keys, a token and a cookie, over every endpoint,
//! those of logins and of the original front end included, and both sockets, made from the API's own description.
//!
//! Every user has something that the others attack and may neither see nor change: a chat whose text, title, file and audit
//! have a word that nobody else knows. The ids are known to all. A new endpoint is attacked as soon as it is described. What a
//! role may do with what others have is read from the table of `docs/access.md`: it has to work, and must not for the others.
//!
//! The seed is fixed, so a failure comes again; it is named with the input in the failure's message.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use adk_bridge_protocol::base64;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::mutated::{header, mutate_text, mutate_value, odd_value};
use crate::roles::{ROLES, rows};
use crate::support::http::{Connection, Response};
use crate::support::process::PATIENCE;
use crate::support::socket::{BINARY, Client, FIN, PING, PONG, TEXT};
use crate::support::stand_in::{StandIn, ok, refused};
use crate::support::{Bridge, JSON, Random, asking};

const SEED: u64 = 0x05ee_d0fd_0040;
/// What each user sends before memory is measured. A process takes some once, however little it does: the stacks and heaps of
/// its threads, the caches of its connections to the database, the code that it has run.
static WARM_UP: Inputs = Inputs {
    requests: 100,
    frames: 50,
};
/// What each user sends after that.
static INPUTS: Inputs = Inputs {
    requests: 1_500,
    frames: 500,
};
const FRAMES_PER_SOCKET: usize = 25;
/// How much more memory there may be at the end.
const GROWTH: f64 = 1.1;

/// How much a user sends; the frames to each of the sockets.
struct Inputs {
    requests: usize,
    frames: usize,
}

/// Somebody who attacks the others.
struct User {
    name: &'static str,
    role: &'static str,
    way: Way,
    /// The key, the token or the cookie.
    proof: OnceLock<String>,
}

/// How a user is recognised.
#[derive(PartialEq)]
enum Way {
    Key,
    Token,
    Cookie,
}

static USERS: [User; 4] = [
    User::new("alice", "user", Way::Key),
    User::new("bob", "approver", Way::Token),
    User::new("carol", "auditor", Way::Cookie),
    User::new("dave", "admin", Way::Key),
];

/// Sends what deletes all that its user has, or ends their login, for each of them.
static NOBODY: User = User::new("erin", "user", Way::Key);
const DELETES_OWN: [&str; 2] = ["clearSessions", "logOut"];

impl User {
    const fn new(name: &'static str, role: &'static str, way: Way) -> Self {
        let proof = OnceLock::new();
        Self {
            name,
            role,
            way,
            proof,
        }
    }

    /// Gets what proves who it is, from the provider if that is not a key.
    async fn log_in(&self, bridge: &Bridge, issuer: &Issuer) {
        let proof = match self.way {
            Way::Key => self.key(),
            Way::Token => issuer.token(self.name, self.role, None),
            Way::Cookie => {
                let begun = bridge.get("/login").await;
                let page = begun.header("location").unwrap().to_owned();
                let value = |name: &str| {
                    let (_, rest) = page.split_once(&format!("{name}=")).unwrap();
                    rest.split('&').next().unwrap().to_owned()
                };
                let attempt = begun.header("set-cookie").unwrap().to_owned();
                let attempt = attempt.split(';').next().unwrap();
                // The provider takes who and which login it is for a code.
                let code = format!("{}.{}.{}", self.name, self.role, value("nonce"));
                let path = format!("/login/callback?code={code}&state={}", value("state"));
                let done = bridge.send("GET", &path, &[("cookie", attempt)], "").await;
                assert_eq!(done.status, 303, "{done:?}");
                let login = done.header("set-cookie").unwrap();
                login.split(';').next().unwrap().to_owned()
            }
        };
        self.proof.set(proof).unwrap();
    }

    fn key(&self) -> String {
        format!("{}-secret-0123456789", self.name)
    }

    fn proof(&self) -> &str {
        self.proof.get().unwrap()
    }

    fn id(&self) -> String {
        match self.way {
            Way::Key => self.name.to_owned(),
            Way::Token | Way::Cookie => format!("corp:{}", self.name),
        }
    }

    /// The headers that prove who it is; a cookie counts for the bridge's own page.
    fn headers(&self, bridge: SocketAddr) -> Vec<(&'static str, String)> {
        match self.way {
            Way::Key | Way::Token => vec![("authorization", format!("Bearer {}", self.proof()))],
            Way::Cookie => vec![
                ("cookie", self.proof().to_owned()),
                ("origin", format!("http://{bridge}")),
            ],
        }
    }

    /// Sends a request of this user.
    async fn send(
        &self,
        bridge: &Bridge,
        method: &str,
        path: &str,
        kind: &str,
        body: impl AsRef<[u8]>,
    ) -> Response {
        let own = self.headers(bridge.address);
        let mut headers = vec![("content-type", kind)];
        headers.extend(own.iter().map(|(name, value)| (*name, value.as_str())));
        bridge.send(method, path, &headers, body).await
    }

    /// The word that only this user may see.
    fn secret(&self) -> String {
        format!("MARKER-OF-{}", self.name.to_uppercase())
    }

    fn chat(&self) -> String {
        format!("{}-private", self.name)
    }

    /// What the table says of an operation for this role, which may have several rows.
    fn cells(&self, operation: &Operation) -> BTreeSet<&'static str> {
        let column = ROLES.iter().position(|role| *role == self.role).unwrap();
        let path = operation.path.trim_end_matches('/');
        let of_operation = rows().into_iter().filter(|(method, row, _)| {
            let row = row.split('?').next().unwrap_or_default().replace('*', "");
            *method == operation.method && row.trim_end_matches('/') == path
        });
        of_operation.map(|(_, _, cells)| cells[column]).collect()
    }

    /// Whether this user may use an operation on what others have.
    fn may(&self, operation: &Operation) -> bool {
        self.cells(operation).contains("all")
    }

    fn is_refused(&self, operation: &Operation) -> bool {
        self.cells(operation) == BTreeSet::from(["–"])
    }
}

fn configuration(issuer: &Issuer) -> String {
    // A question that expires in the middle of the test would change what its user has.
    let mut toml =
        "[approval]\ntimeout = \"1h\"\n[server]\ncompat = [\"adk-stream-protocol\"]\n".to_owned();
    // All of them come from one address, and send tokens that are none.
    toml += "[limits]\nwrong_keys_per_minute = 1000000\n";
    toml += &format!(
        "[[auth.oidc]]\nname = \"corp\"\nissuer = \"{}\"\naudience = \"bridge\"\nclient_id = \"bridge\"\n\
         roles_claim = \"groups\"\nroles = {{ approver = \"approver\", auditor = \"auditor\" }}\n",
        issuer.name
    );
    let users = USERS.iter().chain([&NOBODY]);
    for user in users.filter(|it| it.way == Way::Key) {
        let (key, name, role) = (user.key(), user.name, user.role);
        toml += &format!(
            "[[auth.api_keys]]\nkey = \"{key}\"\nuser = \"{name}\"\nroles = [\"{role}\"]\n"
        );
    }
    toml
}

/// A provider whose page nobody sees: a code names the user, the role and the login that it is for.
struct Issuer {
    name: String,
    key: Arc<Ed25519KeyPair>,
}

impl Issuer {
    async fn start() -> Self {
        let key = Arc::new(Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap());
        let signer = key.clone();
        let server = StandIn::start(move |asked| {
            let host = asked.head.lines().find_map(|it| it.strip_prefix("host: "));
            let own = format!("http://{}", host.unwrap());
            match asked.path.as_str() {
                "/.well-known/openid-configuration" => ok(&json!({
                    "issuer": own,
                    "jwks_uri": format!("{own}/jwks"),
                    "authorization_endpoint": format!("{own}/auth"),
                    "token_endpoint": format!("{own}/token"),
                })),
                "/jwks" => {
                    let public = url_safe(signer.public_key().as_ref());
                    ok(&json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": public}]}))
                }
                "/token" => {
                    let mut fields = asked.body.as_str().unwrap_or_default().split('&');
                    let code = fields.find_map(|it| it.strip_prefix("code=")).unwrap_or_default();
                    let mut words = code.splitn(3, '.');
                    let mut word = || words.next().unwrap_or_default();
                    let token = signed(&signer, &own, word(), word(), Some(word()));
                    ok(&json!({"id_token": token, "access_token": "none"}))
                }
                _ => refused(400, "application/json", r#"{"error":"invalid_grant"}"#),
            }
        })
        .await;
        Self {
            name: format!("http://{}", server.address),
            key,
        }
    }

    fn token(&self, user: &str, role: &str, nonce: Option<&str>) -> String {
        signed(&self.key, &self.name, user, role, nonce)
    }
}

fn signed(
    key: &Ed25519KeyPair,
    issuer: &str,
    user: &str,
    role: &str,
    nonce: Option<&str>,
) -> String {
    let part = |value: Value| url_safe(value.to_string().as_bytes());
    let head = part(json!({"alg": "EdDSA", "kid": "k", "typ": "JWT"}));
    // In the year 2200.
    let claims = json!({
        "iss": issuer, "aud": "bridge", "sub": user, "groups": [role], "nonce": nonce, "exp": 7_258_118_400_u64,
    });
    let text = format!("{head}.{}", part(claims));
    let signature = url_safe(key.sign(text.as_bytes()).as_ref());
    format!("{text}.{signature}")
}

fn url_safe(bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_hostile_inputs_reach_nothing_of_others() {
    eprintln!("seed {SEED:#x}");
    let issuer = Issuer::start().await;
    let mut bridge = Bridge::configured(&configuration(&issuer));
    let mut before = Vec::new();
    let mut ids = Vec::new();
    NOBODY.log_in(&bridge, &issuer).await;
    for user in &USERS {
        user.log_in(&bridge, &issuer).await;
        ids.push(plant(&bridge, user).await);
        before.push(belongings(&bridge, user, ids.last().unwrap()).await);
    }
    let description = bridge.get("/api/openapi.json").await.json();
    let operations = Arc::new(Operation::all(&description));
    let ids = Arc::new(ids);
    attack(&bridge, &WARM_UP, SEED + 100, &operations, &ids).await;
    let settled = settled_memory(&bridge, None).await;
    let tally = attack(&bridge, &INPUTS, SEED, &operations, &ids).await;
    eprintln!(
        "answers: {:?}; closed sockets: {}",
        tally.statuses, tally.closed
    );
    assert_eq!(tally.inputs, 10_000);
    // A generator that only ever reaches one kind of answer shows nothing.
    for status in [200, 201, 204, 303, 400, 401, 403, 404, 409, 415, 422, 426] {
        assert!(
            tally.statuses.contains_key(&status),
            "{status}: {:?}",
            tally.statuses
        );
    }
    for (number, user) in USERS.iter().enumerate() {
        for operation in &*operations {
            let answers = tally.answers.get(&(number, operation.id.clone()));
            let answers = answers.unwrap_or_else(|| panic!("{} was never tried", operation.id));
            // What is refused is judged one by one.
            assert!(
                !user.may(operation) || answers.contains(&200),
                "{} may use {}: {answers:?}",
                user.name,
                operation.id
            );
        }
    }
    let refused = operations.iter().filter(|it| USERS[0].is_refused(it));
    assert!(refused.count() >= 2, "the table refuses a user something");
    assert!(bridge.is_alive());
    for (number, user) in USERS.iter().enumerate() {
        let after = belongings(&bridge, user, &ids[number]).await;
        assert_eq!(after, before[number], "{}", user.name);
        let body = asking("after", "say still here").to_string();
        let answer = user.send(&bridge, "POST", "/api/chat", JSON.1, body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let log = bridge.log();
    assert!(!log.contains("panicked"), "{log}");
    for user in &USERS {
        assert!(
            !log.contains(&user.secret()) && !log.contains(user.proof()),
            "{log}"
        );
    }
    settled_memory(&bridge, Some(settled)).await;
}

/// Has all of them attack at once.
async fn attack(
    bridge: &Bridge,
    inputs: &'static Inputs,
    seed: u64,
    operations: &Arc<Vec<Operation>>,
    ids: &Arc<Vec<Ids>>,
) -> Tally {
    let attacks: Vec<_> = (0..USERS.len())
        .map(|user| {
            let attack = Attack {
                address: bridge.address,
                user,
                operations: operations.clone(),
                ids: ids.clone(),
                random: Random::new(seed + user as u64),
                tally: Tally::default(),
            };
            tokio::spawn(attack.run(inputs))
        })
        .collect();
    let mut tally = Tally::default();
    for attack in attacks {
        let done = attack.await;
        assert!(!bridge.log().contains("panicked"), "{}", bridge.log());
        tally.add(done.unwrap());
    }
    tally
}

/// Waits until memory is back, or, the first time, until it does not fall any more.
async fn settled_memory(bridge: &Bridge, before: Option<usize>) -> usize {
    let wait = async {
        let mut last = usize::MAX;
        loop {
            let now = bridge.memory();
            match before {
                Some(before) if now as f64 <= before as f64 * GROWTH => return now,
                None if now >= last => return now,
                _ => last = now,
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(memory) => memory,
        Err(_) => panic!("{} bytes are used, {before:?} before", bridge.memory()),
    }
}

/// Names of what a user has.
#[derive(Debug, Default, Clone)]
struct Ids {
    user: String,
    chat: String,
    file: String,
    message: String,
    call: String,
    approval: String,
}

/// Gives a user something to lose: a chat that waits for an approval, with a title and a file.
async fn plant(bridge: &Bridge, user: &User) -> Ids {
    let (chat, secret) = (user.chat(), user.secret());
    let text = format!("call process_payment {{\"amount\": 5, \"recipient\": \"{secret}\"}}");
    let body = asking(&chat, &text).to_string();
    let answer = user.send(bridge, "POST", "/api/chat", JSON.1, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let title = json!({ "title": secret }).to_string();
    let path = format!("/api/chats/{chat}");
    let renamed = user.send(bridge, "PATCH", &path, JSON.1, title).await;
    assert_eq!(renamed.status, 204);
    let files = format!("/api/files?chat={chat}");
    let file = user
        .send(bridge, "POST", &files, "text/plain", &*secret)
        .await;
    assert_eq!(file.status, 201);
    let stored = user.send(bridge, "GET", &path, JSON.1, "").await.json();
    let message = &stored["messages"][1];
    let parts = message["parts"].as_array().unwrap();
    let call = parts
        .iter()
        .find(|part| part.get("approval").is_some())
        .unwrap();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    Ids {
        user: user.id(),
        chat,
        file: word(&file.json()["id"]),
        message: word(&message["id"]),
        call: word(&call["toolCallId"]),
        approval: word(&call["approval"]["id"]),
    }
}

/// What a user sees of it.
async fn belongings(bridge: &Bridge, user: &User, ids: &Ids) -> Vec<Value> {
    let get = async |path: String| {
        let answer = user.send(bridge, "GET", &path, JSON.1, "").await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer
    };
    let listed = get("/api/chats".to_owned()).await.json();
    let mut listed = listed.as_array().unwrap().iter();
    let listed = listed.find(|chat| chat["id"] == ids.chat).unwrap().clone();
    let chat = get(format!("/api/chats/{}", ids.chat)).await.json();
    let audit = get(format!("/api/audit?chat={}", ids.chat)).await.json();
    let file = get(format!("/api/files/{}", ids.file)).await;
    let all = vec![
        listed,
        chat,
        audit,
        json!(String::from_utf8(file.body).unwrap()),
    ];
    for (number, has) in all.iter().enumerate() {
        // The audit has no words of users.
        assert_eq!(
            has.to_string().contains(&user.secret()),
            number != 2,
            "{has}"
        );
    }
    all
}

#[derive(Debug, Default)]
struct Tally {
    inputs: usize,
    statuses: BTreeMap<u16, usize>,
    /// With which statuses each operation was answered for each user.
    answers: BTreeMap<(usize, String), BTreeSet<u16>>,
    closed: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.inputs += other.inputs;
        self.closed += other.closed;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (operation, statuses) in other.answers {
            self.answers.entry(operation).or_default().extend(statuses);
        }
    }
}

/// An operation of the description.
#[derive(Debug)]
struct Operation {
    id: String,
    method: String,
    path: String,
    queries: Vec<String>,
    headers: Vec<String>,
    /// Media types with examples.
    bodies: Vec<(String, Value)>,
}

impl Operation {
    fn all(description: &Value) -> Vec<Self> {
        let mut all = Vec::new();
        for (path, methods) in description["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                all.push(Self::new(path, method, operation));
            }
        }
        all
    }

    fn new(path: &str, method: &str, operation: &Value) -> Self {
        let names = |place: &str| {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let placed = parameters.filter(|parameter| parameter["in"] == place);
            placed
                .map(|it| it["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let contents = operation["requestBody"]["content"].as_object();
        let bodies = contents.into_iter().flatten().flat_map(|(kind, media)| {
            let examples = media["examples"].as_object().unwrap().values();
            examples.map(|example| (kind.clone(), example["value"].clone()))
        });
        Self {
            id: operation["operationId"].as_str().unwrap().to_owned(),
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            queries: names("query"),
            headers: names("header"),
            bodies: bodies.collect(),
        }
    }
}

/// A user at work.
struct Attack {
    address: SocketAddr,
    user: usize,
    operations: Arc<Vec<Operation>>,
    ids: Arc<Vec<Ids>>,
    random: Random,
    tally: Tally,
}

impl Attack {
    async fn run(mut self, inputs: &Inputs) -> Tally {
        let mut connection = Connection::open(self.address).await;
        for _ in 0..inputs.requests {
            connection = self.request(connection).await;
        }
        for socket in ["/live", "/api/chat/ws"] {
            for _ in 0..inputs.frames / FRAMES_PER_SOCKET {
                self.socket(socket).await;
            }
        }
        self.tally
    }

    /// Sends a request and judges the answer. Returns a connection for the next one.
    async fn request(&mut self, mut connection: Connection) -> Connection {
        let operations = self.operations.clone();
        let operation = &operations[self.random.below(operations.len())];
        let (method, bytes) = self.bytes_of(operation);
        connection.write(&bytes).await;
        self.tally.inputs += 1;
        let shown = || String::from_utf8_lossy(&bytes).into_owned();
        let Some(answer) = connection.try_answer(&method).await else {
            panic!("no answer to {}", shown());
        };
        *self.tally.statuses.entry(answer.status).or_default() += 1;
        if method == operation.method {
            let own = (self.user, operation.id.clone());
            let statuses = self.tally.answers.entry(own).or_default();
            statuses.insert(answer.status);
            let is_refused = USERS[self.user].is_refused(operation);
            assert!(
                !is_refused || answer.status >= 400,
                "{} to {}",
                answer.status,
                shown()
            );
        }
        if answer.status == 101 {
            return Connection::open(self.address).await;
        }
        let (response, back) = answer.whole_and_connection().await;
        assert!(response.status < 500, "{response:?} to {}", shown());
        self.check_unseen(&response.body, &shown());
        self.check_rows(operation, &response.body, &shown());
        for (_, value) in &response.headers {
            self.check_unseen(value.as_bytes(), &shown());
        }
        match closes(&response) {
            true => Connection::open(self.address).await,
            false => back,
        }
    }

    /// Nothing that this user gets has the secret of another.
    fn check_unseen(&self, bytes: &[u8], input: &str) {
        let text = String::from_utf8_lossy(bytes);
        for (number, user) in USERS.iter().enumerate() {
            let is_own = number == self.user;
            assert!(
                is_own || !text.contains(&user.secret()),
                "{text} to {input}"
            );
        }
    }

    /// Rows of the audit are of this user, unless the role says otherwise.
    fn check_rows(&self, operation: &Operation, body: &[u8], input: &str) {
        if !operation.id.contains("Audit") || USERS[self.user].may(operation) {
            return;
        }
        let text = String::from_utf8_lossy(body);
        for user in USERS.iter().filter(|it| it.name != USERS[self.user].name) {
            let of_other = format!("\"user\":\"{}\"", user.id());
            assert!(!text.contains(&of_other), "{text} to {input}");
        }
    }

    /// A name of something: of another user's, of one's own, or of nothing.
    fn name(&mut self, kind: &str) -> String {
        let own = &USERS[self.user];
        let victim = loop {
            let victim = self.random.below(USERS.len());
            if victim != self.user {
                break self.ids[victim].clone();
            }
        };
        match self.random.below(8) {
            0..4 => match kind {
                "call" => victim.call,
                "file" => victim.file,
                "message" => victim.message,
                "approval" => victim.approval,
                "user" => victim.user,
                "agent" => "demo".to_owned(),
                _ => victim.chat,
            },
            4..7 => match kind {
                "agent" => self.random.pick(&["demo", "nobody", ""]).to_owned(),
                "path" => "index.html".to_owned(),
                _ => format!("{}-{kind}-{}", own.name, self.random.below(6)),
            },
            _ => self.odd_text(),
        }
    }

    fn odd_text(&mut self) -> String {
        match odd_value(&mut self.random) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    fn bytes_of(&mut self, operation: &Operation) -> (String, Vec<u8>) {
        let mut path = self.path_of(operation);
        let mut separator = '?';
        for name in &operation.queries {
            if self.random.one_in(4) {
                continue;
            }
            let value = match (name.as_str(), self.random.below(3)) {
                (_, 0) => self.odd_text(),
                ("chat" | "before", _) => self.name("chat"),
                ("dialect", _) => self.random.pick(&["native", "adk", "held", "x"]).to_owned(),
                ("agent", _) => self.name("agent"),
                ("user", _) => self.name("user"),
                ("users", _) => "all".to_owned(),
                ("to", _) => self
                    .random
                    .pick(&["/#x", "//evil.example", "/\\evil"])
                    .to_owned(),
                _ => self.random.below(9).to_string(),
            };
            path += &format!("{separator}{name}={}", encoded(&value));
            separator = '&';
        }
        let method = match self.random.below(16) {
            0 => self
                .random
                .pick(&["HEAD", "OPTIONS", "PUT", "DELETE", "BREW"])
                .to_owned(),
            _ => operation.method.clone(),
        };
        let (kind, body) = self.body_of(operation);
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        let user = match DELETES_OWN.contains(&operation.id.as_str()) {
            true => &NOBODY,
            false => &USERS[self.user],
        };
        match self.random.below(24) {
            0 => {}
            1 => head += "authorization: Bearer eyJhbGciOiJFZERTQSJ9.e30.AAAA\r\n",
            _ => {
                for (name, value) in user.headers(self.address) {
                    head += &format!("{name}: {value}\r\n");
                }
            }
        }
        if self.random.one_in(12) {
            let name = self.random.pick(&["login", "attempt-AAAABBBBCCCC"]);
            head += &format!(
                "cookie: adk-bridge-{name}={}\r\n",
                encoded(&self.odd_text())
            );
        }
        if let Some(kind) = kind.filter(|_| !self.random.one_in(8)) {
            let boundary = if kind.starts_with("multipart") {
                "; boundary=b"
            } else {
                ""
            };
            head += &format!("content-type: {kind}{boundary}\r\n");
        }
        for name in &operation.headers {
            let value = self
                .random
                .pick(&["bytes=0-3", "*", "\"x\"", "bytes=9-1", ""]);
            head += &format!("{name}: {value}\r\n");
        }
        let mut bytes = head.into_bytes();
        if self.random.one_in(3) {
            let (name, value) = header(&mut self.random);
            // Without its key, a request is not the user's; a body that is promised and does not come is waited for.
            if !["authorization", "expect", "content-type"].contains(&name.as_str()) {
                bytes.extend_from_slice(format!("{name}: ").as_bytes());
                bytes.extend_from_slice(&value);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&body);
        (method, bytes)
    }

    fn path_of(&mut self, operation: &Operation) -> String {
        let parts: Vec<String> = operation
            .path
            .split('/')
            .map(|part| {
                let name = part
                    .strip_prefix('{')
                    .and_then(|part| part.strip_suffix('}'));
                match name {
                    None => part.to_owned(),
                    Some("id") if operation.path.starts_with("/api/files/") => {
                        encoded(&self.name("file"))
                    }
                    // What may rightly be done to others is done to nobody.
                    Some("id") if operation.path.starts_with("/api/users/") => {
                        match USERS[self.user].may(operation) {
                            true => format!("nobody-{}", self.random.below(6)),
                            false => encoded(&self.name("user")),
                        }
                    }
                    Some("id") => encoded(&self.name("chat")),
                    Some(name) => encoded(&self.name(name)),
                }
            })
            .collect();
        parts.join("/")
    }

    fn body_of(&mut self, operation: &Operation) -> (Option<String>, Vec<u8>) {
        if operation.bodies.is_empty() {
            return (None, Vec::new());
        }
        let (kind, example) = self.random.pick(&operation.bodies);
        let mut body = match example {
            Value::String(text) => text.into_bytes(),
            mut value => {
                self.put_names(&mut value);
                for _ in 0..self.random.below(3) {
                    mutate_value(&mut value, &mut self.random);
                }
                value.to_string().into_bytes()
            }
        };
        if self.random.one_in(4) {
            mutate_text(&mut body, &mut self.random);
        }
        (Some(kind), body)
    }

    /// Puts names of things into a body, in place of those of the example.
    fn put_names(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let kinds = ["chat-", "call_", "approval_", "message_", "file_"];
                if let Some(kind) = kinds.iter().find(|kind| text.starts_with(**kind)) {
                    *text = self.name(kind.trim_end_matches(['-', '_']));
                } else if text.starts_with("say ") {
                    *text = self
                        .random
                        .pick(&[
                            "say hi",
                            "call roll_dice {\"sides\": 6}",
                            "call process_payment {\"amount\": 1, \"recipient\": \"x\"}",
                            "http 400",
                        ])
                        .to_owned();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.put_names(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.put_names(field)),
            _ => {}
        }
    }

    /// Sends frames over a socket and judges all that comes.
    async fn socket(&mut self, path: &str) {
        let own_chat = format!("{}-chat-{}", USERS[self.user].name, self.random.below(6));
        // One of its own mostly; another user's id means nothing to this one.
        let chat = if self.random.one_in(3) {
            self.name("chat")
        } else {
            own_chat
        };
        let query = if path == "/live" {
            format!("?chat={}", encoded(&chat))
        } else {
            String::new()
        };
        let own = USERS[self.user].headers(self.address);
        let headers: Vec<_> = own
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let mut sent = 0;
        while sent < FRAMES_PER_SOCKET {
            let opened =
                Client::try_open_at(self.address, &format!("{path}{query}"), &headers).await;
            let (head, mut client) = opened;
            if !head.starts_with("HTTP/1.1 101") {
                // An id that cannot be one, or sockets that are still being closed.
                assert!(head.starts_with("HTTP/1.1 4"), "{head}");
                self.tally.inputs += 1;
                sent += 1;
                continue;
            }
            let mut frames = Vec::new();
            while sent < FRAMES_PER_SOCKET {
                let (head, payload) = self.frame(path, &chat);
                sent += 1;
                self.tally.inputs += 1;
                let is_open = client.frame(head, &payload).await;
                frames.push(String::from_utf8_lossy(&payload).into_owned());
                if !is_open {
                    break;
                }
            }
            client.frame(FIN | PING, b"all of it").await;
            loop {
                let Some(frame) = client.next().await else {
                    self.tally.closed += 1;
                    break;
                };
                self.check_unseen(&frame.payload, &format!("{path} {frames:?}"));
                if frame.head == FIN | PONG && frame.payload == b"all of it" {
                    break;
                }
            }
        }
    }

    fn frame(&mut self, path: &str, chat: &str) -> (u8, Vec<u8>) {
        if self.random.one_in(10) {
            let noise = (0..self.random.below(60))
                .map(|_| self.random.byte())
                .collect();
            return (FIN | BINARY, noise);
        }
        let mut frame = match path {
            "/live" => self.live_frame(),
            _ => self.stock_frame(chat),
        };
        self.put_names(&mut frame);
        for _ in 0..self.random.below(3) {
            mutate_value(&mut frame, &mut self.random);
        }
        let mut text = frame.to_string().into_bytes();
        if self.random.one_in(4) {
            mutate_text(&mut text, &mut self.random);
            // Text that is not UTF-8 ends the connection, which is the protocol's own rule.
            text = String::from_utf8_lossy(&text).into_owned().into_bytes();
        }
        (FIN | TEXT, text)
    }

    fn live_frame(&mut self) -> Value {
        let words = json!([{"id": "message_1", "role": "user", "parts": [{"type": "text", "text": "say hello"}]}]);
        let approval = json!([{"id": "message_1", "role": "assistant", "parts": [
            {"type": "tool-process_payment", "toolCallId": "call_1", "state": "approval-responded", "input": {},
             "approval": {"id": "approval_1", "approved": true}},
        ]}]);
        self.random.pick(&[
            json!({"type": "message", "messages": words}),
            json!({"type": "message", "id": "chat-1", "messages": approval}),
            json!({"type": "tool_result", "toolCallId": "call_1", "status": "approved"}),
            json!({"type": "tool_result", "toolCallId": "approval_1", "result": {"confirmed": true}}),
            json!({"type": "audio_control", "action": "start"}),
            json!({"type": "audio_chunk", "chunk": "AAAA", "sampleRate": 16000}),
            json!({"type": "video_frame", "data": "AAAA", "mediaType": "image/jpeg"}),
            json!({"type": "interrupt", "reason": "user"}),
            json!({"type": "modality", "modality": "text"}),
            json!({"type": "ping", "timestamp": 1}),
            json!({"type": "audio_config", "wire": "binary"}),
        ])
    }

    fn stock_frame(&mut self, chat: &str) -> Value {
        let request = format!("r{}", self.random.below(1_000_000));
        let words = json!([{"id": "message_1", "role": "user", "parts": [{"type": "text", "text": "say hello"}]}]);
        self.random.pick(&[
            json!({"type": "send", "requestId": request, "id": "chat-1", "messages": words, "headers": {}, "body": {}}),
            json!({"type": "send", "requestId": request, "id": chat, "trigger": "regenerate-message", "messages": words}),
            json!({"type": "resume", "requestId": request, "id": "chat-1", "lastSequence": 3}),
            json!({"type": "abort", "requestId": request}),
        ])
    }
}

fn closes(response: &Response) -> bool {
    response.header("connection") == Some("close")
}

/// A value in a URL, which may have anything in it.
fn encoded(value: &str) -> String {
    // A path without this part would be another endpoint.
    if value.is_empty() {
        return "%20".to_owned();
    }
    let mut encoded = String::new();
    for byte in value.bytes().take(2_000) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                encoded.push(byte as char)
            }
            byte => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}
