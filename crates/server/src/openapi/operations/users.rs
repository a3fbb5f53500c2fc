//! What is stored of a user, as a whole.

use serde_json::json;

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{INTERNAL, READS, Refusal, TOO_MANY, WRITES, only};
use crate::transport::users::{Erased, Whose};

const FORBIDDEN: [Refusal; 1] = only(403, "role_needed", "the user is not an administrator");
const NO_AUDITOR: [Refusal; 1] = only(403, "role_needed", "the user is not an auditor");
const LINES: &str = "application/x-ndjson";
const FILE: &str = "Browsers save it under this name.";

pub fn erase() -> Operation {
    let example = json!({
        "user": "bob", "chats": 3, "bytes": 41_203, "logins": 1, "auditRows": 2, "usageRows": 5, "replicas": [], "unreachable": [],
    });
    Operation::new("eraseUser", Group::Access, "Erase what is stored of a user")
        .says("For administrators. Chats, files, credentials and what was counted for budgets are deleted, and logins with the page end; audit rows stay, without what the user wrote. It can be repeated.")
        .path("id", "The user.", "bob")
        .answers(200, "It is erased.", vec![Content::json::<Erased>(example)])
        .refuses(&[&FORBIDDEN, TOO_MANY, WRITES, INTERNAL])
}

pub fn export() -> Operation {
    let example = "{\"type\":\"chat\",\"id\":\"chat-1\"}\n";
    let lines = Content::text(LINES, "A JSON object on each line.", example);
    Operation::new(
        "exportUser",
        Group::Access,
        "Get everything that is stored of the user",
    )
    .says("Chats with their messages, files as signed URLs, logins with the page, usage of agents by day, and the audit.")
    .answers(200, "The lines.", vec![lines])
    .with_header("content-disposition", FILE)
    .refuses(&[READS, TOO_MANY, INTERNAL])
}

pub fn audit() -> Operation {
    let example = "{\"type\":\"row\",\"id\":1}\n";
    let lines = Content::text(LINES, "A JSON object on each line.", example);
    Operation::new("exportAudit", Group::Access, "Get the audit in a form that can be verified")
        .says("`adk-bridge audit verify` reads it. An auditor gets the rows of all users with `users=all`.")
        .query::<Whose>()
        .answers(200, "The lines.", vec![lines])
        .with_header("content-disposition", FILE)
        .refuses(&[&NO_AUDITOR, READS, TOO_MANY, INTERNAL])
}
