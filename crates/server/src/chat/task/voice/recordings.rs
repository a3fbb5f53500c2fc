//! What both sides have said in a spoken turn, kept as files.

use adk_bridge_protocol::base64;
use adk_bridge_protocol::event::{Blob, Content, Event, Part as AgentPart};
use adk_bridge_protocol::reply::Input;
use futures_util::stream;

use crate::chat::task::Task;
use crate::chat::voice::recording::UserAudio;
use crate::chat::{attachments, now};
use crate::files::FileDescription;

impl Task {
    /// Keeps what both sides have said in this run.
    pub(super) async fn keep_recordings(&mut self, user_audio: &UserAudio) {
        let Some(voice) = &mut self.voice else {
            return;
        };
        let model_audio = voice.take_model_audio();
        if !self.context.settings.get().keep_recordings {
            return;
        }
        if voice.lacks_recording()
            && let Some(wav) = user_audio.wav()
        {
            self.keep_user_audio(wav).await;
        }
        if let Some(wav) = model_audio.wav() {
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

    async fn keep_user_audio(&mut self, wav: Vec<u8>) {
        let described = FileDescription {
            media_type: Some("audio/wav"),
            name: Some(attachments::RECORDING),
        };
        let (files, chat) = (&self.context.files, self.context.chat());
        let wav = stream::iter([Ok(wav.into())]);
        let file = match files.save(chat, described, wav, now()).await {
            Ok(file) => file,
            Err(error) => {
                self.context.note_refused_file(&error);
                tracing::warn!(chat = chat.id.as_str(), %error, "a recording of chat {} cannot be stored", chat.id);
                return;
            }
        };
        let heard = self.voice.as_mut().and_then(|it| it.add_recording(file));
        if let Some(heard) = heard
            && let Some(message) = self.conversation.find_mut(&heard.id)
        {
            message.parts.clone_from(&heard.parts);
        }
        self.store_utterance().await;
    }
}
