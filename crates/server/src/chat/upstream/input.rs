//! What goes to the model that listens: speech, pictures, and how it shall answer.

use adk_bridge_agents::live::{Activity, LiveInput as Sent, Modality, NO_CODE};
use adk_bridge_protocol::history;
use adk_bridge_protocol::reply::RunEnd;
use adk_bridge_protocol::wire::live::{AudioAction, Modality as Asked};
use axum::http::StatusCode;

use super::Line;
use crate::chat::live::LiveInput;
use crate::chat::task::Task;
use crate::error::AppError;

/// How much audio waits for a connection: fifteen seconds, as long as one may take to open.
const MAX_WAITING_AUDIO: usize = 15 * 32_000;
/// How many pictures wait: what was seen before them is of no interest to a model that looks once a second.
const MAX_WAITING_PICTURES: usize = 2;
/// How many things wait in all: audio in small pieces, and keys pressed.
const MAX_WAITING: usize = 1_024;
/// So much audio without a key means that the user has let go of keys: half a second.
const UNHELD_BYTES: usize = 16_000;

/// A hundred milliseconds of audio.
const PIECE_BYTES: usize = 3_200;

/// What waits for a connection.
#[derive(Debug)]
pub(in crate::chat) enum Waiting {
    Audio(Vec<u8>),
    Picture { data: Vec<u8>, media_type: String },
    Start,
    Stop,
    StreamEnd,
}

impl Task {
    /// Takes speech, pictures and the wish for a modality to the agent's live connection.
    pub(in crate::chat) async fn live_input(&mut self, input: LiveInput) -> Result<(), AppError> {
        if self.shared.voice.is_none() {
            return unsupported(&input);
        }
        match input {
            LiveInput::Modality(asked) => self.change_modality(asked).await,
            LiveInput::Picture { data, media_type } => {
                self.send_upstream(Waiting::Picture { data, media_type })
                    .await;
            }
            LiveInput::Audio { pcm, .. } => self.audio(pcm).await,
            LiveInput::AudioControl(AudioAction::Start) => {
                self.change_activity(Activity::Explicit).await;
                self.upstream.holds_key = true;
                self.send_upstream(Waiting::Start).await;
            }
            LiveInput::AudioControl(AudioAction::Stop) => {
                let held = std::mem::take(&mut self.upstream.holds_key);
                self.upstream.unheld.clear();
                let end = if held {
                    Waiting::Stop
                } else {
                    Waiting::StreamEnd
                };
                self.send_upstream(end).await;
            }
        }
        Ok(())
    }

    async fn audio(&mut self, mut pcm: Vec<u8>) {
        if self.upstream.activity == Activity::Explicit && !self.upstream.holds_key {
            // The last of what was said with the key held may come after it was let go.
            self.upstream.unheld.extend(pcm);
            if self.upstream.unheld.len() < UNHELD_BYTES {
                return;
            }
            pcm = std::mem::take(&mut self.upstream.unheld);
            self.change_activity(Activity::Detected).await;
        }
        self.upstream.heard.push(&pcm);
        self.send_upstream(Waiting::Audio(pcm)).await;
    }

    async fn change_modality(&mut self, asked: Asked) {
        let modality = match asked {
            Asked::Text => Modality::Text,
            Asked::Audio => Modality::Audio,
        };
        let changes = std::mem::replace(&mut self.upstream.modality, modality) != modality;
        if self.upstream.is_closed() {
            self.want_upstream().await;
        } else if changes {
            self.renew_between_turns().await;
        }
        self.live.tell_modality(asked);
    }

    async fn change_activity(&mut self, activity: Activity) {
        self.upstream.unheld.clear();
        if std::mem::replace(&mut self.upstream.activity, activity) != activity
            && !self.upstream.is_closed()
        {
            self.renew_between_turns().await;
        }
    }

    /// A connection has one modality and one way to tell where speech ends: another one needs another connection.
    async fn renew_between_turns(&mut self) {
        if self.upstream.turn.is_said() {
            self.live.interrupted();
            self.upstream_turn_over(RunEnd::Cut).await;
        }
        self.renew_upstream().await;
    }

    /// Sends what the user does, or keeps it until there is a connection.
    async fn send_upstream(&mut self, waiting: Waiting) {
        self.want_upstream().await;
        if !matches!(self.upstream.line, Line::Open(_)) {
            return self.wait_with(waiting);
        }
        if self.upstream.stale && !self.upstream.speaks() {
            self.tell_news().await;
        }
        self.send_now(&waiting).await;
    }

    fn wait_with(&mut self, waiting: Waiting) {
        let upstream = &mut self.upstream;
        let is_picture = |it: &Waiting| matches!(it, Waiting::Picture { .. });
        match &waiting {
            Waiting::Audio(pcm) => upstream.waiting_audio += pcm.len(),
            Waiting::Picture { .. } => {
                let pictures = upstream.waiting.iter().filter(|it| is_picture(it)).count();
                if pictures >= MAX_WAITING_PICTURES
                    && let Some(first) = upstream.waiting.iter().position(is_picture)
                {
                    upstream.waiting.remove(first);
                }
            }
            Waiting::Start | Waiting::Stop | Waiting::StreamEnd => {}
        }
        upstream.waiting.push_back(waiting);
        while upstream.waiting_audio > MAX_WAITING_AUDIO || upstream.waiting.len() > MAX_WAITING {
            match upstream.waiting.pop_front() {
                Some(Waiting::Audio(pcm)) => upstream.waiting_audio -= pcm.len(),
                Some(_) => {}
                None => return,
            }
        }
    }

    /// What was said to a connection that is gone, and not answered by it, is said to the next one again.
    pub(super) fn say_again(&mut self) {
        if self.upstream.speaks() {
            return; // It was understood: its words are told.
        }
        let said = self.upstream.heard.speech();
        let recent = said.len().saturating_sub(MAX_WAITING_AUDIO) & !1;
        let said = said[recent..].to_vec();
        if said.is_empty() {
            return;
        }
        let upstream = &mut self.upstream;
        // Audio that waits is the end of what was heard.
        upstream
            .waiting
            .retain(|waiting| !matches!(waiting, Waiting::Audio(_) | Waiting::Start));
        upstream.waiting_audio = said.len();
        let by_key = upstream.activity == Activity::Explicit;
        let stops = upstream
            .waiting
            .iter()
            .any(|it| matches!(it, Waiting::Stop));
        if by_key && !upstream.holds_key && !stops {
            upstream.waiting.push_front(Waiting::Stop);
        }
        for piece in said.chunks(PIECE_BYTES).rev() {
            upstream.waiting.push_front(Waiting::Audio(piece.to_vec()));
        }
        if by_key {
            upstream.waiting.push_front(Waiting::Start);
        }
    }

    pub(super) async fn send_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.upstream.waiting);
        self.upstream.waiting_audio = 0;
        for waiting in waiting {
            self.send_now(&waiting).await;
        }
    }

    async fn send_now(&mut self, waiting: &Waiting) {
        let Line::Open(connection) = &mut self.upstream.line else {
            return;
        };
        let sent = match waiting {
            Waiting::Audio(pcm) => Sent::Audio(pcm),
            Waiting::Picture { data, media_type } => Sent::Video { media_type, data },
            Waiting::Start => Sent::ActivityStart,
            Waiting::Stop => Sent::ActivityEnd,
            Waiting::StreamEnd => Sent::AudioStreamEnd,
        };
        if let Err(error) = connection.send(sent).await {
            self.upstream_lost(NO_CODE, &error.detail).await;
        }
    }

    /// Tells the model what others have added to the conversation.
    async fn tell_news(&mut self) {
        let messages = self.conversation().await;
        let contents = history::contents(&messages);
        let all = contents.len();
        let news = contents.get(self.upstream.told..).unwrap_or_default();
        self.upstream.stale = false;
        if news.is_empty() {
            return;
        }
        let Line::Open(connection) = &mut self.upstream.line else {
            return;
        };
        let sent = connection
            .send(Sent::Contents {
                turns: news,
                answer: false,
            })
            .await;
        self.upstream.told = all;
        if let Err(error) = sent {
            self.upstream_lost(NO_CODE, &error.detail).await;
        }
    }
}

fn unsupported(input: &LiveInput) -> Result<(), AppError> {
    let what = match input {
        LiveInput::Modality(Asked::Text) => return Ok(()),
        LiveInput::Modality(Asked::Audio) => "speak",
        LiveInput::Picture { .. } => "see",
        LiveInput::Audio { .. } | LiveInput::AudioControl(_) => "hear",
    };
    Err(AppError::new(
        StatusCode::NOT_IMPLEMENTED,
        "live_unsupported",
        format!("this agent cannot {what}; write to it instead"),
    ))
}
