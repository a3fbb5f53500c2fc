//! The inputs of the user: speech, a key, pictures, and the modality of answers.

use std::time::Instant;

use adk_bridge_agents::live::{Activity, Modality};
use bytes::Bytes;

use super::input_queue::{Bounds, UserInput};
use super::port::{Effects, VoiceEffect};
use super::state::State;
use super::{KEPT, VoiceMachine};
use crate::chat::voice::recording::is_loud;

/// This much audio without a key means that the user speaks hands-free: half a second.
pub(super) const HANDS_FREE_BYTES: usize = 16_000;

/// How the user marks where speech begins and ends.
#[derive(Debug, Default)]
pub(super) enum Microphone {
    #[default]
    HandsFree,
    Pressed,
    /// The last audio of a held key may come after the key was released.
    Released {
        trailing: Vec<u8>,
    },
}

impl Microphone {
    pub(super) fn activity(&self) -> Activity {
        match self {
            Self::HandsFree => Activity::Detected,
            Self::Pressed | Self::Released { .. } => Activity::Explicit,
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        match self {
            Self::HandsFree => Bounds::Heard,
            Self::Pressed => Bounds::Key { pressed: true },
            Self::Released { .. } => Bounds::Key { pressed: false },
        }
    }

    fn released() -> Self {
        Self::Released {
            trailing: Vec::new(),
        }
    }
}

impl VoiceMachine {
    pub(super) fn audio(&mut self, mut pcm: Bytes, now: Instant, out: &mut Effects) {
        if let Microphone::Released { trailing } = &mut self.microphone {
            trailing.extend_from_slice(&pcm);
            if trailing.len() < HANDS_FREE_BYTES {
                return;
            }
            pcm = std::mem::take(trailing).into();
            self.microphone = Microphone::HandsFree;
            self.renew(now, out);
        }
        // Speech that is sent again to the next connection must not contain this audio, which is queued too.
        self.want(now, out);
        self.user_audio.push(&pcm);
        if is_loud(&pcm) {
            self.heard_at = Some(now);
        }
        self.submit(UserInput::Audio(pcm), now, out);
    }

    pub(super) fn key_down(&mut self, now: Instant, out: &mut Effects) {
        if matches!(self.microphone, Microphone::HandsFree) {
            self.microphone = Microphone::released();
            self.renew(now, out);
        }
        self.microphone = Microphone::Pressed;
        self.submit(UserInput::ActivityStart, now, out);
    }

    pub(super) fn key_up(&mut self, now: Instant, out: &mut Effects) {
        let end = match self.microphone {
            Microphone::HandsFree => return self.submit(UserInput::AudioStreamEnd, now, out),
            Microphone::Pressed => {
                // What was said is complete with it.
                self.heard_at = self.heard_at.map(|_| now);
                UserInput::ActivityEnd
            }
            Microphone::Released { .. } => UserInput::AudioStreamEnd,
        };
        self.microphone = Microphone::released();
        if self.state.is_closed() {
            // The connection that got the key press is gone: the next one gets all of it again.
            return self.want(now, out);
        }
        self.submit(end, now, out);
    }

    pub(super) fn change_modality(&mut self, modality: Modality, now: Instant, out: &mut Effects) {
        if std::mem::replace(&mut self.modality, modality) != modality {
            self.renew(now, out);
        }
        self.want(now, out);
        out.push(VoiceEffect::ModalityChanged(modality));
    }

    pub(super) fn listener(&mut self, anybody: bool, now: Instant) {
        if anybody {
            self.leave_at = None;
            return;
        }
        self.leave_at.get_or_insert(now + KEPT);
        if matches!(self.microphone, Microphone::Pressed) {
            self.microphone = Microphone::released();
        }
    }

    /// Sends an input of the user, or keeps it until there is a connection.
    pub(super) fn submit(&mut self, input: UserInput, now: Instant, out: &mut Effects) {
        self.want(now, out);
        self.queue.push(input);
        self.send_input(out);
    }

    pub(super) fn send_input(&self, out: &mut Effects) {
        if self.queue.is_empty() {
            return;
        }
        if let State::Listening(link) = &self.state
            && link.knows.is_behind()
        {
            out.push(VoiceEffect::SendNews);
        }
        if self.state.link().is_some() {
            out.push(VoiceEffect::SendInput);
        }
    }
}
