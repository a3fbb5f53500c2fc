//! How users log in with the page, and out again.

use schemars::JsonSchema;
use serde_json::json;

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{INTERNAL, READS, Refusal, WRITES, only};
use crate::transport::login::{Beginning, Ending, LoggedOut, LoginsEnded, Session};

const NO_LOGIN: [Refusal; 1] = only(
    404,
    "not_found",
    "nobody logs in with this bridge, or not with this provider",
);
const REFUSED: &[Refusal] = &[
    Refusal {
        status: 400,
        code: "unknown_login",
        when: "the login is not known, or took too long",
    },
    Refusal {
        status: 403,
        code: "login_denied",
        when: "the provider, or the user, refused it",
    },
    Refusal {
        status: 403,
        code: "no_public_url",
        when: "the address of the bridge is not configured",
    },
    Refusal {
        status: 502,
        code: "login_not_accepted",
        when: "what the provider sent is not accepted",
    },
];
const TOO_MANY: [Refusal; 1] = only(
    429,
    "too_many",
    "too many logins from this address were not accepted",
);
const ROLE: [Refusal; 1] = only(403, "role_needed", "the user does not have the role");

/// What a provider sends back.
#[derive(JsonSchema)]
#[allow(
    dead_code,
    reason = "only the names are needed: the handler reads the query as it is"
)]
struct OfProvider {
    /// The login that it answers.
    #[schemars(example = &"c2VhbGVk")]
    state: Option<String>,
    /// What it grants.
    code: Option<String>,
    /// Why it does not.
    error: Option<String>,
}

pub fn begin() -> Operation {
    let page = Content::text(
        "text/html",
        "A link for each provider, if there are several and none is named.",
        "<!doctype html><title>Log in</title>",
    );
    Operation::new("logIn", Group::Access, "Log in with a provider")
        .query::<Beginning>()
        .answers(200, "A choice.", vec![page])
        .answers(303, "To the provider.", vec![])
        .with_header("location", "The page of the provider.")
        .with_header("set-cookie", "What the login needs when it comes back.")
        .refuses(&[&NO_LOGIN, REFUSED, WRITES, INTERNAL])
        .refuses_with_pages()
}

pub fn callback() -> Operation {
    Operation::new(
        "completeLogin",
        Group::Access,
        "Come back from a provider after a login",
    )
    .query::<OfProvider>()
    .answers(303, "To where the user came from.", vec![])
    .with_header("location", "The page that the user came from.")
    .with_header("set-cookie", "The login.")
    .refuses(&[&NO_LOGIN, REFUSED, &TOO_MANY, WRITES, INTERNAL])
    .refuses_with_pages()
}

pub fn end() -> Operation {
    Operation::new("logOut", Group::Access, "Log out")
        .query::<Ending>()
        .answers(
            200,
            "The user is logged out.",
            vec![Content::json::<LoggedOut>(json!({"redirect": null}))],
        )
        .with_header("set-cookie", "Removes the login from the browser.")
        .refuses(&[&NO_LOGIN, REFUSED, WRITES, INTERNAL])
}

pub fn session() -> Operation {
    let example = json!({
        "user": "alice", "name": null, "via": "api_key", "roles": ["user"], "expiresAt": null, "login": [], "keys": true,
    });
    Operation::new(
        "getSession",
        Group::Access,
        "Read who asks, and how to log in",
    )
    .says("It needs no key: without one, `user` is null.")
    .answers(200, "Who asks.", vec![Content::json::<Session>(example)])
    .refuses(&[
        &only(401, "unauthorized", "the credentials are not accepted"),
        &only(429, "too_many", "too many wrong credentials"),
        READS,
        INTERNAL,
    ])
}

pub fn end_all_of() -> Operation {
    Operation::new("endLogins", Group::Access, "Log a user out everywhere")
        .says("For administrators.")
        .path("id", "The user.", "bob")
        .answers(
            200,
            "How many logins there were.",
            vec![Content::json::<LoginsEnded>(json!({"ended": 2}))],
        )
        .refuses(&[&ROLE, WRITES, INTERNAL])
}
