//! A turn of the model that listens: how it begins by ear, what it brings, and what is kept of it.

use adk_bridge_agents::live::{Incoming, LiveConnection, Speaker};
use adk_bridge_protocol::base64;
use adk_bridge_protocol::calls::{Call, CallState, RunsOn};
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::event::{Blob, Content, Event, Part as AgentPart};
use adk_bridge_protocol::message::{FilePart, Message, Part, TextPart};
use adk_bridge_protocol::reply::{Given, Input, Mode, RunEnd};
use bytes::Bytes;
use tokio::time::Instant;

use super::{Line, unheard};
use crate::chat::live::Via;
use crate::chat::task::{Task, new_id};
use crate::chat::{kept, now};
use crate::files::Described;

/// How many bytes of the user's words are kept of a turn: hours of speech, should it ever go on for so long.
const MAX_WORDS_BYTES: usize = 256 * 1024;

/// What the model does in the reply's run, if that is here.
///
/// ```text
///          it hears, or speaks unasked             asked              says something            its end, or interrupted
///   Rest ──────────────────────────────▶ ByEar ────────────▶ Asked ────────────────────▶ Speaking ────────▶ Over
///    ▲ └───────────────────────────────────────── asked ──────▲ └──────────── its end ──────────────────────▲ │
///    └────────────────────────────────────────────────────────────────────────────────────────────────────────┘
/// ```
///
/// From everywhere back to Rest when its turn is taken from it. A connection that is lost in Asked is asked again; what was
/// said in Speaking stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// It listens; the reply's run, if there is one, is somebody else's.
    Rest,
    /// A turn begins that no request began.
    ByEar,
    Asked,
    Speaking,
    Over(RunEnd),
}

impl Turn {
    /// Whether the reply's run is the model's turn here.
    pub(super) fn is_its_own(&self) -> bool {
        matches!(self, Self::Asked | Self::Speaking | Self::Over(_))
    }

    /// Whether it was asked and has said nothing yet.
    pub(super) fn is_unanswered(&self) -> bool {
        *self == Self::Asked
    }

    pub(super) fn is_said(&self) -> bool {
        matches!(self, Self::Speaking | Self::Over(_))
    }

    pub(super) fn says(&mut self) {
        if self.is_unanswered() {
            *self = Self::Speaking;
        }
    }
}

/// What the user says in a turn.
pub(in crate::chat) struct Spoken {
    message: Message,
    text: String,
    /// Whether it differs from what is stored.
    changed: bool,
}

/// What a message says of the connection itself.
enum Notice {
    GoAway(std::time::Duration),
    Resumable(String),
}

impl Task {
    /// Takes a message of the upstream.
    pub(super) async fn upstream_said(&mut self, message: Bytes) {
        if !self.upstream.speaks() && self.begins_a_turn(&message) {
            // A question goes on waiting beside the conversation.
            if self.is_unfinished() && !self.park() {
                // What runs there comes to its end first.
                self.upstream.held = Some(message);
                return;
            }
            if !self.begin_by_ear().await {
                return;
            }
        }
        self.take_in(|connection, sink| connection.events(&message, sink))
            .await;
    }

    /// What is heard while a call is open is the end of what was said before it: speech would have cancelled the call.
    fn begins_a_turn(&self, message: &[u8]) -> bool {
        let Line::Open(connection) = &self.upstream.line else {
            return false;
        };
        match connection.speaker(message) {
            None => false,
            Some(Speaker::Model) => true,
            Some(Speaker::User) => connection.open_calls().is_empty(),
        }
    }

    /// Goes on with a turn that had to wait for another.
    pub(in crate::chat) async fn take_held(&mut self) {
        if self.upstream.held.is_some()
            && (!self.is_unfinished() || self.park())
            && let Some(message) = self.upstream.held.take()
        {
            self.upstream_said(message).await;
        }
        self.take_turn_with_runs().await;
    }

    pub(super) async fn upstream_quiet(&mut self) {
        self.take_in(|connection, sink| {
            connection.quiet(sink);
            Ok(())
        })
        .await;
    }

    /// Feeds what the connection brings to the reply, and does what comes of it.
    async fn take_in(
        &mut self,
        read: impl FnOnce(
            &mut LiveConnection,
            &mut (dyn FnMut(Incoming<'_>) + Send),
        ) -> Result<(), adk_bridge_agents::agent::AgentError>,
    ) {
        let number = self.live.number();
        let mut notices = Vec::new();
        let mut progressed = false;
        let mut late = Vec::new();
        self.outbox.clear();
        if let Some(reply) = &mut self.reply {
            self.readers.make_ready(reply);
            let user = self.upstream.spoken.as_ref();
            reply.speak_in(number, user.map(|spoken| spoken.message.id.as_str()));
        }
        let upstream = &mut self.upstream;
        let Line::Open(connection) = &mut upstream.line else {
            return;
        };
        let (outbox, ids, tools) = (&mut self.outbox, &mut self.ids, &*self.shared.tools);
        let (reply, speaks) = (&mut self.reply, upstream.turn.is_its_own());
        let (turn, sounded) = (&mut upstream.turn, &mut upstream.sounded);
        let taken = read(connection, &mut |incoming| match incoming {
            Incoming::Event(event) => {
                if !event.parts().is_empty() || event.output_transcription.is_some() {
                    turn.says();
                }
                progressed = true;
                sounded.take_in(event);
                if let (false, Some(heard)) = (speaks, &event.input_transcription) {
                    let text = heard.text.as_deref().unwrap_or_default();
                    late.push((text.to_owned(), heard.finished == Some(true)));
                }
                if let Some(reply) = reply.as_mut().filter(|_| speaks) {
                    let mut given = Given {
                        now: now(),
                        ids,
                        rules: tools,
                    };
                    reply.handle(Input::LiveEvent(event), &mut given, outbox);
                }
            }
            Incoming::GoAway(left) => notices.push(Notice::GoAway(left)),
            Incoming::Resumable(Some(handle)) => notices.push(Notice::Resumable(handle)),
            // The last handle stays good; and who is asked about a call looks whether it is still waited for.
            Incoming::Resumable(None) | Incoming::Cancelled(_) => {}
        });
        let told = connection.take_said();
        if speaks && !told.is_empty() {
            self.remember(told).await;
        }
        self.perform().await;
        self.note_first_chunk();
        for (text, finished) in late {
            self.hear(&text, finished);
        }
        self.store_heard().await;
        if let Err(error) = taken {
            let detail = error.detail.clone();
            return self.upstream_lost(1007, &detail).await;
        }
        self.upstream.replays &= !matches!(self.upstream.turn, Turn::Over(_));
        if progressed && !self.upstream.replays {
            self.upstream.renewal.progressed();
        }
        if self.upstream.speaks() {
            let calls = || self.reply.iter().flat_map(|reply| reply.calls().iter());
            let called = calls().any(|it| it.state == CallState::Received);
            // A tool that the agent's own server runs is waited for.
            let runs = |it: &Call| it.state == CallState::Running && it.runs_on == RunsOn::Remote;
            let called = called && !calls().any(runs);
            match &self.upstream.turn {
                Turn::Over(how) => self.upstream_turn_over(how.clone()).await,
                _ if called => self.upstream_turn_over(RunEnd::Done).await,
                _ => self.checkpoint().await,
            }
        }
        self.note(notices).await;
    }

    async fn note(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            match notice {
                Notice::GoAway(left) => self.upstream.renewal.warned(left, Instant::now()),
                Notice::Resumable(handle) => {
                    let sure = self.upstream.sure;
                    self.upstream.renewal.resumable(handle, sure);
                }
            }
        }
        if let Line::Open(connection) = &self.upstream.line {
            let busy = self.upstream.speaks() || !connection.open_calls().is_empty();
            self.upstream.renewal.busy(busy);
            self.follow_plan(None).await;
        }
    }

    /// The model answers, or tells what it hears: a turn begins that no request began.
    async fn begin_by_ear(&mut self) -> bool {
        let (dialect, sdk, connection) = self.live.reader_of_turns().map_or(
            (Dialect::Native, Sdk::V6, None),
            |(dialect, sdk, connection)| (dialect, sdk, Some(connection)),
        );
        let via = Via {
            transport: "live",
            mode: Mode::Live,
            connection,
        };
        self.arrived = Some(Instant::now());
        self.begin_turn(via, dialect);
        let message = unheard(new_id("msg"));
        self.upstream.spoken = Some(Spoken {
            message: message.clone(),
            text: String::new(),
            changed: false,
        });
        self.upstream.turn = Turn::ByEar;
        match self.open(Mode::Live, vec![message], None).await {
            Ok(unanswered) => {
                let reader = self.reader(dialect, sdk, None).await;
                let stream = self.readers.attach(reader, &unanswered, None);
                let id = self.reply.as_ref().map(|it| it.message().id.clone());
                self.live.bring(stream, id.as_deref());
                self.perform().await;
                true
            }
            Err(error) => {
                tracing::error!(chat = %self.chat_id, %error, "a spoken turn of chat {} cannot be stored", self.chat_id);
                self.upstream.forget();
                self.live.refuse(&error.message);
                false
            }
        }
    }

    /// The user's speech as text: pieces, then all of it.
    pub(in crate::chat) fn hear(&mut self, text: &str, finished: bool) {
        let Some(spoken) = &mut self.upstream.spoken else {
            return;
        };
        match finished {
            true => text.clone_into(&mut spoken.text),
            false => spoken.text.push_str(text),
        }
        let kept = spoken.text.floor_char_boundary(MAX_WORDS_BYTES);
        spoken.text.truncate(kept);
        spoken.changed = true;
        let said = Part::Text(TextPart {
            text: spoken.text.clone(),
            ..TextPart::default()
        });
        match spoken.message.parts.first_mut() {
            Some(first @ Part::Text(_)) => *first = said,
            _ => spoken.message.parts.insert(0, said),
        }
        let id = &spoken.message.id;
        if let Some(message) = self.history.iter_mut().rev().find(|it| it.id == *id) {
            message.parts.clone_from(&spoken.message.parts);
        }
    }

    /// Stores what was heard, as soon as there is something.
    async fn store_heard(&mut self) {
        let Some(spoken) = self.upstream.spoken.as_mut().filter(|it| it.changed) else {
            return;
        };
        spoken.changed = false;
        let message = spoken.message.clone();
        if let Err(error) = self.shared.store.revise(self.chat(), &message).await {
            tracing::warn!(chat = %self.chat_id, %error, "what was heard in chat {} cannot be stored", self.chat_id);
        }
    }

    /// Keeps what both sides have said in this turn.
    pub(super) async fn keep_recordings(&mut self) {
        let heard = std::mem::take(&mut self.upstream.heard);
        let sounded = std::mem::take(&mut self.upstream.sounded);
        if !self.shared.keep_recordings {
            return;
        }
        let is_kept = |part: &Part| matches!(part, Part::File(_));
        // What is heard while a tool runs belongs to no turn.
        let unkept = |spoken: &Spoken| !spoken.message.parts.iter().any(is_kept);
        if self.upstream.spoken.as_ref().is_some_and(unkept)
            && let Some(wav) = heard.wav()
        {
            self.keep_heard(&wav).await;
        }
        if let Some(wav) = sounded.wav() {
            let data = base64::encode(&wav);
            let part = AgentPart {
                inline_data: Some(Box::new(Blob {
                    mime_type: Some("audio/wav".into()),
                    data: Some(data.as_str().into()),
                    display_name: None,
                })),
                ..AgentPart::default()
            };
            let event = Event {
                content: Some(Content::new("model", vec![part])),
                ..Event::default()
            };
            self.feed(Input::Event(&event)).await;
        }
    }

    async fn keep_heard(&mut self, wav: &[u8]) {
        let described = Described {
            media_type: Some("audio/wav"),
            name: Some(kept::RECORDING),
        };
        let saved = self
            .shared
            .files
            .save(self.chat(), described, wav, now())
            .await;
        let row = match saved {
            Ok(row) => row,
            Err(error) => {
                tracing::warn!(chat = %self.chat_id, %error, "a recording of chat {} cannot be stored", self.chat_id);
                return;
            }
        };
        let Some(spoken) = &mut self.upstream.spoken else {
            return;
        };
        spoken.message.parts.push(Part::File(FilePart {
            media_type: row.media_type,
            url: kept::url_of(&row.id),
            filename: Some(kept::RECORDING.to_owned()),
            provider_metadata: None,
            extra: serde_json::Map::new(),
        }));
        spoken.changed = true;
        let (id, parts) = (&spoken.message.id, &spoken.message.parts);
        if let Some(message) = self.history.iter_mut().rev().find(|it| it.id == *id) {
            message.parts.clone_from(parts);
        }
        self.store_heard().await;
    }

    /// A turn that somebody wrote has no speech in it.
    pub(in crate::chat) fn note_written(&mut self) {
        self.upstream.spoken = None;
        self.upstream.heard.clear();
    }
}
