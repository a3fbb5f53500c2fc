//! `[limits]`: what one user, and all users together, may use of this process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Span;

/// Each limit has a default that fits a small machine. A refusal names the key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections in use by clients. Fewer if the operating system allows fewer open files.
    pub connections: usize,
    /// Requests and WebSockets of one user at the same time; never more than are free for others.
    pub connections_per_user: usize,
    /// Turns of all users at the same time. Fewer if the operating system allows fewer open files.
    pub turns: usize,
    pub turns_per_user: usize,
    /// Bytes of memory of this process at which no further turn begins. By default four fifths of what its container may use, if
    /// there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How long one turn may take, without the time that it waits for a human.
    pub turn_time: Span,
    /// How long an agent may send nothing except comments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_silence: Option<Span>,
    pub uploads_per_user: usize,
    /// Bytes of files and messages on disk, for all users.
    pub stored_bytes: u64,
    pub stored_bytes_per_user: u64,
    /// How many refused answers of one user are recorded per minute before the user has to wait.
    pub refused_answers_per_minute: u32,
    /// How many wrong keys one address may try in a minute before it has to wait.
    pub wrong_keys_per_minute: u32,
    /// How long a client may read nothing of what is written to it.
    pub write_stall: Span,
    /// How long a body, or a message over a WebSocket, may take to arrive.
    pub body_time: Span,
    /// Bytes of bodies and WebSocket messages that are arriving, or that wait for their chat or agent.
    pub unfinished_bytes: usize,
    pub unfinished_bytes_per_user: usize,
    /// Bytes of answers that clients have not read yet.
    pub unread_bytes: usize,
    pub unread_bytes_per_user: usize,
    /// Bytes of the messages that one chat shows.
    pub chat_bytes: usize,
    /// Bytes that chats hold in memory while they are being answered, and the files that their agents are sent.
    pub loaded_bytes: usize,
    pub loaded_bytes_per_user: usize,
    /// How many files there may be in the messages that one request adds to its chat.
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
