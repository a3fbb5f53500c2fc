//! How one reader sees a turn: what it lacks at first, the frames that follow, and what it misses while it lags.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::speech::Speech;
use super::withheld::IMAGE;
use super::{Addresses, Dialect, Images, Rewritten, State, View};
use crate::calls::Call;
use crate::chunk::Chunk;
use crate::json_text::Json;
use crate::message::replay::{
    Cursor, catch_up, disown, emit_whole, finish_step, orphans, show_last_step, show_step, start,
};
use crate::message::{Message, Part};
use crate::outbox::{FrameKind, Outbox};
use crate::reply::Reply;
use crate::sdk::{Feature, Sdk};
use crate::wire::sse;

/// How one reader of a turn sees it.
///
/// A reader is attached when its turn begins or in the middle of it, and then gets every [`Effect::Frames`] of the
/// turn. A reader that cannot keep up [falls behind](Reader::fall_behind) and later catches up from the message.
///
/// [`Effect::Frames`]: crate::outbox::Effect::Frames
#[derive(Debug)]
pub struct Reader {
    view: &'static dyn View,
    sdk: Sdk,
    /// What it has, unless it simply gets every frame.
    cursor: Option<Cursor>,
    is_lagging: bool,
    /// The model's speech in this turn.
    speech: Speech,
    images: Option<Arc<dyn Images>>,
    addresses: Option<Arc<dyn Addresses>>,
}

impl Reader {
    /// For a client; `withholds` says whether the agent may leave something to it that text must not come before.
    pub fn new(dialect: Dialect, sdk: Sdk, withholds: bool) -> Self {
        Self {
            view: dialect.view(withholds),
            sdk,
            cursor: None,
            is_lagging: false,
            speech: Speech::default(),
            images: None,
            addresses: None,
        }
    }

    /// Sets the URLs under which its client finds files. Messages are compared by their stored URLs; only the output
    /// has these.
    pub fn with_addresses(mut self, addresses: Arc<dyn Addresses>) -> Self {
        self.addresses = Some(addresses);
        self
    }

    /// Sets where to find images that are stored outside of the message.
    pub fn with_images(mut self, images: Arc<dyn Images>) -> Self {
        self.images = Some(images);
        self
    }

    /// Begins a reader's stream: `start`, then what its client lacks. `theirs` is the client's copy of the message.
    /// Returns whether it lacked anything.
    pub fn attach(&mut self, reply: &Reply, theirs: Option<&Message>, out: &mut Vec<u8>) -> bool {
        let ours = self.message(reply);
        start(&ours, &mut |chunk| self.write(chunk, out));
        let begun = out.len();
        let cursor = self.begin(reply, &ours, theirs, &mut |chunk| self.write(chunk, out));
        self.cursor = (!self.view.streams()).then_some(cursor);
        out.len() > begun
    }

    /// Writes what a client with this copy of the message lacks, and returns what it has afterwards.
    fn begin(
        &self,
        reply: &Reply,
        ours: &Message,
        theirs: Option<&Message>,
        emit: &mut dyn FnMut(&Chunk<'_>),
    ) -> Cursor {
        let mut cursor = theirs.map_or_else(Cursor::nothing, |it| Cursor::of_client(it, ours));
        let orphans = theirs.map_or_else(Vec::new, |theirs| orphans(theirs, ours));
        for orphan in &orphans {
            disown(orphan, emit);
        }
        let steps = cursor.steps();
        let growing = ours.first_growing().filter(|_| !reply.is_step_open());
        if let Some(growing) = growing {
            // Text that grows while a call is open comes after the end of the call's step, where a client may forget an
            // open text.
            let mut before = ours.clone();
            before.parts.truncate(growing);
            catch_up(&before, &mut cursor, self.sdk, emit);
            finish_step(&mut cursor, emit);
        }
        catch_up(ours, &mut cursor, self.sdk, emit);
        // Orphans must not stay in the last step, where the predicates would send them again and again; but a call that
        // waits, or may come to wait, must stay visible there, and keeps them from sending.
        let goes_on = reply.ended().is_none() && reply.calls().iter().any(Call::is_open);
        if !orphans.is_empty() && cursor.steps() == steps && !goes_on {
            cursor.open_step(emit);
            show_step(ours, emit);
        }
        // An open step continues in the next frames; the frame that ends it ends this one too.
        if !reply.is_step_open() || !self.view.streams() {
            finish_step(&mut cursor, emit);
            if cursor.steps() > steps {
                show_last_step(ours, emit);
            }
        }
        cursor
    }

    /// The message as its client has it after reading everything so far.
    pub fn whole(&self, reply: &Reply) -> Message {
        self.message(reply).into_owned()
    }

    /// Writes frames of the outbox in the form of this reader.
    pub fn frames(
        &mut self,
        reply: &Reply,
        outbox: &Outbox,
        range: Range<usize>,
        out: &mut Vec<u8>,
    ) {
        if self.is_lagging {
            return;
        }
        if !self.view.streams() {
            self.follow(reply, outbox, range, out);
        } else if outbox.has_files() || outbox.has_news() || self.view.rewrites() {
            self.pass(reply, outbox, range, out);
        } else {
            out.extend_from_slice(outbox.sse(range));
        }
    }

    /// Copies frames, except for files and what the view rewrites.
    fn pass(&mut self, reply: &Reply, outbox: &Outbox, range: Range<usize>, out: &mut Vec<u8>) {
        for index in range {
            let frame = &outbox.frames(index..index + 1)[0];
            match frame.kind {
                FrameKind::File(file) => {
                    let file = outbox.file(file);
                    let shown = self.view.file(file, self.images.as_deref());
                    let part = shown.unwrap_or_else(|| Part::File(file.clone()));
                    emit_whole(&part, &mut |chunk| self.write(chunk, out));
                }
                FrameKind::News(news) if self.sdk.has(Feature::ToolMetadata) => {
                    self.forward(outbox.news(news), out);
                }
                FrameKind::Delta => out.extend_from_slice(outbox.sse(index..index + 1)),
                FrameKind::Terminal if self.view.rewrites() => {
                    self.add_missing_end(reply, out);
                    self.forward(outbox.sse(index..index + 1), out);
                }
                FrameKind::Body
                | FrameKind::News(_)
                | FrameKind::Transient
                | FrameKind::Terminal => {
                    self.forward(outbox.sse(index..index + 1), out);
                }
            }
        }
    }

    /// Writes what the frames changed in the view's message.
    fn follow(&mut self, reply: &Reply, outbox: &Outbox, range: Range<usize>, out: &mut Vec<u8>) {
        for index in range {
            match outbox.frames(index..index + 1)[0].kind {
                FrameKind::Delta => {}
                FrameKind::Body | FrameKind::News(_) | FrameKind::File(_) => {
                    self.update(reply, out);
                }
                FrameKind::Transient => self.forward(outbox.sse(index..index + 1), out),
                FrameKind::Terminal => {
                    self.finish(reply, outbox.sse(index..index + 1), out);
                }
            }
        }
    }

    /// Passes a frame on, in the view's form.
    fn forward(&mut self, frame: &[u8], out: &mut Vec<u8>) {
        if !self.view.rewrites() {
            out.extend_from_slice(frame);
            return;
        }
        let text = String::from_utf8_lossy(sse::payload(frame));
        match Chunk::parse(&text) {
            Ok(Chunk::Finish {
                finish_reason,
                message_metadata,
            }) => {
                let audio = self.speech.totals();
                let message_metadata = audio.map_or(message_metadata.clone(), |audio| {
                    let metadata = message_metadata.unwrap_or_else(Json::empty);
                    Some(metadata.with("audio", &audio))
                });
                let finish = Chunk::Finish {
                    finish_reason,
                    message_metadata,
                };
                self.write(&finish, out);
            }
            Ok(chunk) => {
                if let Chunk::Data(data) = &chunk {
                    self.speech.count(data);
                }
                self.write(&chunk, out);
            }
            // Every frame was written from a chunk.
            Err(_) => out.extend_from_slice(frame),
        }
    }

    /// Writes the parts that the view adds to the stored message at its end.
    fn add_missing_end(&self, reply: &Reply, out: &mut Vec<u8>) {
        let stored = reply.snapshot();
        let shown = self.message(reply);
        let added = shown.parts.get(stored.parts.len()..).unwrap_or_default();
        if !added.is_empty() {
            let mut cursor = Cursor::all_of(&stored, false);
            catch_up(&shown, &mut cursor, self.sdk, &mut |chunk| {
                self.write(chunk, out)
            });
        }
    }

    /// Stops passing frames to a reader that cannot take them. Call this before the input whose frames it would miss.
    pub fn fall_behind(&mut self, reply: &Reply) {
        self.is_lagging = true;
        if self.cursor.is_none() {
            let ours = self.message(reply);
            self.cursor = Some(Cursor::all_of(&ours, reply.is_step_open()));
        }
    }

    /// Brings a lagging reader up to date; from here on it gets frames again.
    pub fn catch_up(&mut self, reply: &Reply, out: &mut Vec<u8>) {
        self.is_lagging = false;
        self.update(reply, out);
        if self.view.streams() {
            self.cursor = None;
        }
    }

    /// Ends the stream of a reader that does not get every frame: what it lacks, then the last chunk.
    pub fn finish(&mut self, reply: &Reply, terminal: &[u8], out: &mut Vec<u8>) {
        if let Some(mut cursor) = self.cursor.take() {
            let ours = self.message(reply);
            let mut emit = |chunk: &Chunk<'_>| self.write(chunk, out);
            catch_up(&ours, &mut cursor, self.sdk, &mut emit);
            finish_step(&mut cursor, &mut emit);
            // The metadata at the end of a message.
            match &ours.metadata {
                Some(metadata) => emit(&Chunk::metadata(metadata)),
                None => show_last_step(&ours, &mut emit),
            }
        }
        self.forward(terminal, out);
    }

    /// Writes what has changed in the message since the last update.
    fn update(&mut self, reply: &Reply, out: &mut Vec<u8>) {
        if let Some(mut cursor) = self.cursor.take() {
            let ours = self.message(reply);
            catch_up(&ours, &mut cursor, self.sdk, &mut |chunk| {
                self.write(chunk, out)
            });
            self.cursor = Some(cursor);
        }
    }

    fn message<'r>(&self, reply: &'r Reply) -> Cow<'r, Message> {
        let state = State {
            calls: reply.calls(),
            has_ended: reply.ended().is_some(),
            asking: reply.asking_step(),
            images: self.images.as_deref(),
        };
        self.view.message(reply.snapshot(), &state)
    }

    /// Writes a chunk in the view's form; if it names a file, with the URL under which the client finds it.
    fn write(&self, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
        if self.speech.is_recorded_in(chunk) {
            return;
        }
        match self.view.rewritten(chunk) {
            Rewritten::Unchanged => self.write_addressed(chunk, out),
            Rewritten::Changed(chunk) => self.write_addressed(&chunk, out),
            Rewritten::LeftOut => {}
        }
    }

    fn write_addressed(&self, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
        let client_url = |url: Cow<'_, str>| self.addresses.as_deref()?.client_url(&url);
        let Some(shown_url) = url_of(chunk).and_then(client_url) else {
            sse::chunk(out, chunk, self.sdk);
            return;
        };
        let mut chunk = chunk.clone();
        match &mut chunk {
            Chunk::File { url, .. } | Chunk::ReasoningFile { url, .. } => *url = shown_url.into(),
            Chunk::Data(data) => {
                data.data = data.data.with("url", &shown_url.as_str().into());
            }
            _ => {}
        }
        sse::chunk(out, &chunk, self.sdk);
    }
}

/// The URL of the file that a chunk names.
fn url_of<'c>(chunk: &'c Chunk<'_>) -> Option<Cow<'c, str>> {
    match chunk {
        Chunk::File { url, .. } | Chunk::ReasoningFile { url, .. } => Some(Cow::Borrowed(url)),
        // An image that is not inlined.
        Chunk::Data(data) if data.kind == IMAGE => {
            Some(Cow::Owned(data.data.get("url")?.as_str()?.into_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What each view writes for a frame that names a file. The bridge serves its own files at `/api/files/`.
    #[test]
    fn a_file_is_shown_in_the_form_of_the_dialect_at_the_readers_address() {
        let inline = ("data:image/png;base64,AAEC", "image/png");
        let ours = ("/api/files/1", "image/png");
        let unread = ("/api/files/2", "image/png");
        let elsewhere = ("https://example.org/a.png", "image/png");
        let text = ("/api/files/1", "text/plain");
        let file = |(_, media_type): (&str, &str), url: &str| json!({"type": "file", "url": url, "mediaType": media_type, "providerMetadata": {"a": {"b": 1}}});
        let image = |field: &str, value: &str| json!({"type": "data-image", "data": {"mediaType": "image/png", field: value}});
        let held = |value: &str| json!({"type": "data-image", "data": {"mediaType": "image/png", "data": value, "content": value}});
        let cases = [
            (Dialect::Native, inline, file(inline, inline.0)),
            (Dialect::Native, ours, file(ours, "https://me/api/files/1")),
            (Dialect::Native, elsewhere, file(elsewhere, elsewhere.0)),
            (Dialect::Adk, inline, image("data", "AAEC")),
            (Dialect::Adk, ours, image("data", "c3RvcmVk")),
            (Dialect::Adk, unread, image("url", "https://me/api/files/2")),
            (Dialect::Adk, elsewhere, image("url", elsewhere.0)),
            (Dialect::Adk, text, file(text, "https://me/api/files/1")),
            (Dialect::Held, inline, held("AAEC")),
            (Dialect::Held, ours, held("c3RvcmVk")),
            (
                Dialect::Held,
                unread,
                image("url", "https://me/api/files/2"),
            ),
            (Dialect::Held, text, file(text, "https://me/api/files/1")),
        ];
        for (dialect, (url, media_type), expected) in cases {
            let shown = shown(Reader::new(dialect, Sdk::default(), false), url, media_type);
            assert_eq!(
                serde_json::from_str::<Value>(&shown).unwrap(),
                expected,
                "{dialect:?} {url}"
            );
        }
    }

    #[test]
    fn a_file_waits_where_the_agent_may_ask() {
        for dialect in [Dialect::Adk, Dialect::Held] {
            let reader = Reader::new(dialect, Sdk::default(), true);
            assert_eq!(shown(reader, "/api/files/1", "image/png"), "");
        }
    }

    #[derive(Debug)]
    struct Place;

    impl Images for Place {
        fn base64(&self, url: &str) -> Option<String> {
            (url == "/api/files/1").then(|| "c3RvcmVk".to_owned())
        }
    }

    impl Addresses for Place {
        fn client_url(&self, url: &str) -> Option<String> {
            url.starts_with("/api/files/")
                .then(|| format!("https://me{url}"))
        }
    }

    fn shown(reader: Reader, url: &str, media_type: &str) -> String {
        let mut outbox = Outbox::default();
        outbox.push(&Chunk::File {
            url: url.into(),
            media_type: media_type.into(),
            provider_metadata: Some(json!({"a": {"b": 1}}).into()),
        });
        let mut reader = reader
            .with_images(Arc::new(Place))
            .with_addresses(Arc::new(Place));
        let (reply, mut out) = (Reply::new("m"), Vec::new());
        reader.attach(&reply, None, &mut out);
        let begun = out.len();
        reader.frames(&reply, &outbox, 0..1, &mut out);
        String::from_utf8(sse::payload(&out[begun..]).to_owned()).unwrap()
    }
}
