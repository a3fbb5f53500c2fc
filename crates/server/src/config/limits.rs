//! `[limits]`: what one user, and all users together, may use of this process.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// Each limit has a default that fits a small machine. An error names the key, and `Retry-After` says when to try again. Limits
/// of one user are answered with 429, limits of the process with 503.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How many connections clients may have in use, by requests and WebSockets. A few more may wait, or get a 503; those that
    /// have waited longest without a request give way. `/health`, `/ready` and `/metrics` are always answered. Fewer if the
    /// operating system allows too few open files; the log says so at the start.
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// How many of them one user may have. No user gets more than are free for others: a single user has at most half of them.
    /// Without a way to log in there is one user, who may have all.
    #[schemars(range(min = 1))]
    pub connections_per_user: usize,
    /// How many turns may run at once, for all users. A voice conversation counts as one. Fewer if the operating system allows
    /// too few open files; the log says so at the start.
    #[schemars(range(min = 1))]
    pub turns: usize,
    /// How many turns of one user may run at once. Without a way to log in only `limits.turns` applies.
    #[schemars(range(min = 1))]
    pub turns_per_user: usize,
    /// When this process uses so much memory, no further turn begins, so that the running ones can finish: new turns are
    /// answered with 503, and answers to open questions are accepted up to a tenth beyond. About nine tenths of the memory of
    /// the machine or the container is a good value. The default is four fifths of what its container may use, if there is
    /// one. Only on Linux.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub memory_bytes: Option<u64>,
    /// How long one turn may take, not counting the time spent waiting for a human.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub turn_time: Span,
    /// How long an agent may send nothing, or only comments. By default 3m for a model and 5m for an ADK server, whose tools may
    /// work silently.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-at-least" = "1ms"))]
    pub agent_silence: Option<Span>,
    /// How many files one user may upload at the same time.
    #[schemars(range(min = 1))]
    pub uploads_per_user: usize,
    /// How many bytes of files and messages are stored, for all users. At the limit, chats must be deleted first.
    #[schemars(range(min = 1))]
    pub stored_bytes: u64,
    /// How many bytes of files and messages are stored for one user.
    #[schemars(range(min = 1))]
    pub stored_bytes_per_user: u64,
    /// How many refused answers (to unknown or closed approvals) are recorded per user and minute, before the user has to wait.
    #[schemars(range(min = 1))]
    pub refused_answers_per_minute: u32,
    /// How many wrong keys one address may try per minute, before it has to wait. Valid keys are still accepted from it.
    /// Codes of logins that their provider does not accept are counted in the same way; there, no further ones are tried.
    #[schemars(range(min = 1))]
    pub wrong_keys_per_minute: u32,
    /// A client that reads nothing of its response for this long is disconnected.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub write_stall: Span,
    /// How long the body of a request, or one message over a WebSocket, may take to arrive.
    #[schemars(extend("x-at-least" = "1ms"))]
    pub body_time: Span,
    /// How many bytes of request bodies and WebSocket messages may be unfinished, or wait for their chat or agent, for all
    /// users.
    #[schemars(range(min = 1))]
    pub unfinished_bytes: usize,
    /// The same for one user.
    #[schemars(range(min = 1))]
    pub unfinished_bytes_per_user: usize,
    /// How many bytes of responses may wait for clients to read them, on all endpoints, for all users. A stream beyond this
    /// limit ends with an error that names it; its turn continues and is stored.
    #[schemars(range(min = 1))]
    pub unread_bytes: usize,
    /// The same for one user.
    #[schemars(range(min = 1))]
    pub unread_bytes_per_user: usize,
    /// How many bytes the messages of one chat may have. A full chat refuses messages, and answers end as they do at
    /// `server.max_answer_bytes`; start a new chat then.
    #[schemars(range(min = 1))]
    pub chat_bytes: usize,
    /// How many bytes of memory chats may use while they are being answered, each about three times the size of its messages,
    /// for all users. Short chats are always answered. The files that an agent is sent count too, as base64: three times while
    /// its request is made, then once (twice for an ADK server) until it answers.
    #[schemars(extend("x-at-least" = "three times `limits.chat_bytes`"))]
    pub loaded_bytes: usize,
    /// The same for one user.
    #[schemars(range(min = 1))]
    pub loaded_bytes_per_user: usize,
    /// How many files one request may add to its chat. For a chat that the server does not know, the files of its whole history
    /// are accepted.
    #[schemars(range(min = 1))]
    pub files_per_request: usize,
}

impl Limits {
    /// The keys whose value must be greater than 0, and whether it is.
    pub(super) fn positive(&self) -> [(&'static str, bool); 12] {
        let silence = self.agent_silence.is_none_or(|span| !span.0.is_zero());
        [
            ("limits.connections", self.connections > 0),
            ("limits.connections_per_user", self.connections_per_user > 0),
            ("limits.turns", self.turns > 0),
            ("limits.turns_per_user", self.turns_per_user > 0),
            ("limits.memory_bytes", self.memory_bytes != Some(0)),
            ("limits.turn_time", !self.turn_time.0.is_zero()),
            ("limits.agent_silence", silence),
            ("limits.uploads_per_user", self.uploads_per_user > 0),
            ("limits.stored_bytes", self.stored_bytes > 0),
            (
                "limits.stored_bytes_per_user",
                self.stored_bytes_per_user > 0,
            ),
            (
                "limits.refused_answers_per_minute",
                self.refused_answers_per_minute > 0,
            ),
            (
                "limits.wrong_keys_per_minute",
                self.wrong_keys_per_minute > 0,
            ),
        ]
    }
}

const MIB: usize = 1024 * 1024;
const GIB: u64 = 1024 * 1024 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            // An idle one takes up to 20 kB: 200 MB.
            connections: 10_000,
            // As many WebSockets as a user may have, and as many requests again.
            connections_per_user: 2_000,
            // A running one takes up to 100 kB: 100 MB.
            turns: 1_000,
            // A person has a few tabs; a program with one key may serve many people.
            turns_per_user: 100,
            // What a container may use is found out at the start; only the operator knows what of a machine is for the bridge.
            memory_bytes: None,
            // Far longer than anyone waits for an answer.
            turn_time: Span(Duration::from_secs(30 * 60)),
            agent_silence: None,
            // A page uploads dropped files a few at a time.
            uploads_per_user: 8,
            stored_bytes: 10 * GIB,
            stored_bytes_per_user: GIB,
            // A front end that is out of step sends a few; each adds a row that is never deleted.
            refused_answers_per_minute: 120,
            // A person who mistypes a key tries a few times, and many people may share one proxy.
            wrong_keys_per_minute: 200,
            // Long enough for a train in a tunnel or a change of networks; readers of streams have the same limit.
            write_stall: Span(Duration::from_secs(30)),
            // 32 MiB at 2.3 Mbit/s.
            body_time: Span(Duration::from_secs(2 * 60)),
            unfinished_bytes: 256 * 1024 * 1024,
            // Two of the largest bodies.
            unfinished_bytes_per_user: 64 * 1024 * 1024,
            // An answer that is being made costs about four times its bytes.
            unread_bytes: 128 * 1024 * 1024,
            unread_bytes_per_user: 64 * 1024 * 1024,
            // Several times what any model reads: the largest message and the longest answer.
            chat_bytes: 32 * MIB,
            // An answered chat holds about three times the bytes of its messages.
            loaded_bytes: 256 * MIB,
            // The longest chat and some others.
            loaded_bytes_per_user: 128 * MIB,
            // Each costs several writes to the disk, about a second for all of them.
            files_per_request: 100,
        }
    }
}
