//! What requests are refused with: the status, the code and when, in groups that operations and layers share.

/// A refusal that an operation may answer with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    pub status: u16,
    pub code: &'static str,
    /// In words that follow the code.
    pub when: &'static str,
}

/// What is checked before a handler is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Where the request comes from.
    Source,
    /// Who the user is, and where the request comes from.
    User,
    /// Whether the page may change something.
    Origin,
    /// Which replica owns the chat.
    Owner,
}

impl Check {
    /// What it refuses a request of this method with.
    pub(super) fn refusals(self, is_safe: bool) -> &'static [&'static [Refusal]] {
        match self {
            Self::Source => &[SOURCE],
            Self::User => &[SOURCE, USER],
            Self::Origin if is_safe => &[],
            Self::Origin => &[ORIGIN],
            Self::Owner => &[UNAVAILABLE],
        }
    }
}

const fn refusal(status: u16, code: &'static str, when: &'static str) -> Refusal {
    Refusal { status, code, when }
}

/// Every request.
pub const ANY: &[Refusal] = &[
    refusal(400, "bad_host", "no `Host` header, or more than one"),
    refusal(403, "bad_forwarding", "a header that only replicas send"),
];

/// A path or a query that cannot be read.
pub const ADDRESS: &[Refusal] = &[refusal(400, "bad_request", "the URL cannot be parsed")];

const SOURCE: &[Refusal] = &[
    refusal(403, "foreign_host", "the host name is not allowed"),
    refusal(
        403,
        "forwarded",
        "the bridge has no keys, and the request was forwarded for another machine",
    ),
];

pub const ORIGIN: &[Refusal] = &[refusal(
    403,
    "foreign_origin",
    "the origin of the page is not allowed",
)];

const USER: &[Refusal] = &[
    refusal(401, "unauthorized", "no valid key"),
    refusal(
        429,
        "too_many",
        "a limit of this user, or too many wrong keys",
    ),
    refusal(503, "unavailable", "try again after `Retry-After`"),
];

pub const UNAVAILABLE: &[Refusal] = &[refusal(503, "unavailable", "try again after `Retry-After`")];

pub const INTERNAL: &[Refusal] = &[refusal(500, "internal", "the server failed")];

/// A body that is read as a whole.
pub const BODY: &[Refusal] = &[
    refusal(400, "bad_body", "the body ended early"),
    refusal(408, "too_slow", "the body took too long"),
    refusal(413, "too_large", "the body is too large"),
    refusal(429, "too_many", "too much of this user is on its way"),
    refusal(503, "unavailable", "try again after `Retry-After`"),
];

/// A body of JSON.
pub const JSON: &[Refusal] = &[
    refusal(400, "bad_json", "the body is not JSON"),
    refusal(413, "too_many_values", "the JSON contains too many values"),
    refusal(415, "not_json", "send `application/json`"),
];

pub const TOO_LARGE: &[Refusal] = &[refusal(
    413,
    "too_large",
    "an answer or a limit is exceeded",
)];

pub const TOO_MANY: &[Refusal] = &[refusal(429, "too_many", "a limit of this user")];

/// A turn begins.
pub const BUDGET: &[Refusal] = &[refusal(
    429,
    "budget_exceeded",
    "the budget of the user is used up: try again after `Retry-After`",
)];

pub const NO_CHAT: &[Refusal] = &[refusal(404, "not_found", "the user has no such chat")];
pub const NO_CALL: &[Refusal] = &[refusal(404, "not_found", "no such chat or call")];
pub const NO_FILE: &[Refusal] = &[refusal(404, "not_found", "no such file")];
pub const NO_PAGE: &[Refusal] = &[refusal(404, "not_found", "no such page")];

/// The store is asked.
pub const READS: &[Refusal] = &[
    refusal(503, "unavailable", "try again after `Retry-After`"),
    refusal(503, "locked", "another process has locked the database"),
];

/// The store is written to.
pub const WRITES: &[Refusal] = &[
    refusal(503, "unavailable", "try again after `Retry-After`"),
    refusal(503, "read_only", "the data directory is not writable"),
    refusal(503, "locked", "another process has locked the database"),
    refusal(507, "disk_full", "the disk is full, and nothing was stored"),
];

/// There has to be an agent.
pub const AGENT: &[Refusal] = &[
    refusal(404, "unknown_agent", "no agent has this id"),
    refusal(503, "no_agent", "there is no agent yet"),
];

/// The agent of a chat that is asked has to be there.
pub const NO_AGENT: &[Refusal] = &[refusal(503, "no_agent", "there is no agent yet")];

/// The chat has to be that of the agent.
pub const OWN_AGENT: &[Refusal] = &[
    refusal(409, "other_agent", "the chat belongs to another agent"),
    refusal(
        410,
        "agent_gone",
        "the agent of the chat is not there any more",
    ),
];

pub const STORAGE: &[Refusal] = &[
    refusal(
        429,
        "storage_full",
        "the user has stored too much: delete chats",
    ),
    refusal(503, "storage_full", "all users have stored too much"),
];

/// One refusal of a status that needs no group.
pub const fn only(status: u16, code: &'static str, when: &'static str) -> [Refusal; 1] {
    [refusal(status, code, when)]
}
