//! Files: binary content next to the store, readable by its owner and with a signed URL.
//!
//! Content is in a directory or in a bucket (`content.rs`), its row in the store. The content is written before its row and
//! removed after it, so that a row always has content. What is done with content without a row is in `tidy.rs` for a
//! directory, in `bucket/sweep.rs` for a bucket.

pub mod address;
mod bucket;
mod content;
mod copying;
mod directory;
pub(crate) mod media;
mod tidy;
mod usage;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use thiserror::Error;

pub use crate::store::FileRow;
pub use bucket::Swept;
pub use content::ContentStream;
pub use copying::Copied;
pub use usage::Quota;

use crate::config::{ConfigError, Files as FilesConfig, FilesPlace};
use crate::store::{ChatRef, DataDir, Entity, OldFiles, PriorContents, Store, StoreError};
use bucket::Bucket;
use content::{ContentStore, Incoming};
use directory::Directory;
use tidy::{KnownFiles, Places};
use usage::Usage;

/// How much of a file is read to detect its type.
const HEAD_BYTES: usize = 8 * 1024;

/// A name is shown and offered for download; file systems accept no longer one.
const MAX_NAME_BYTES: usize = 255;

const NO_QUOTA: Quota = Quota {
    in_all: u64::MAX,
    per_user: u64::MAX,
};

/// Binary content and where it is.
pub struct Files {
    content: Arc<ContentStore>,
    store: Arc<dyn Store>,
    max_bytes: u64,
    usage: Arc<Usage>,
}

/// Content that was inspected and has an id, but is not stored yet.
#[derive(Debug)]
pub struct PreparedFile {
    pub id: String,
    pub media_type: String,
    pub content: Bytes,
}

/// What a client says about a file that it sends.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileDescription<'a> {
    pub media_type: Option<&'a str>,
    pub name: Option<&'a str>,
}

#[derive(Debug, Error)]
pub enum FileError {
    #[error("files may have at most {limit} bytes; send a smaller one")]
    TooLarge { limit: u64 },
    #[error(
        "files of type {found} are not accepted; send an image, audio, video, PDF or plain text"
    )]
    MediaType { found: String },
    #[error(
        "your files and messages use {kept} of {limit} bytes (limits.stored_bytes_per_user); delete chats that you do not \
         need"
    )]
    UserFull { kept: u64, limit: u64 },
    #[error(
        "the server stores at most {limit} bytes of files and messages and is full (limits.stored_bytes); its operator can \
         raise the limit"
    )]
    Full { limit: u64 },
    /// The sender disconnected, or the body was cut off.
    #[error("the file did not arrive: {0}")]
    Incomplete(io::Error),
    /// The bucket does not answer, or refuses; the log says why.
    #[error("files can be neither stored nor read at the moment; try again later")]
    Unavailable,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why files cannot be used; the message says what to change.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Looks whether a bucket of the configuration answers and lets the bridge in; nothing is written. Returns its URL.
pub async fn look_at_bucket(config: &FilesConfig) -> Result<String, OpenError> {
    match config.place()? {
        FilesPlace::Bucket {
            provider,
            bucket,
            prefix,
        } => Ok(bucket::look(config, provider, &bucket, &prefix).await?),
        FilesPlace::DataDir | FilesPlace::Directory(_) => {
            Err(ConfigError::value("files.url", "this is not a bucket").into())
        }
    }
}

/// Where the content of a file is below a directory that has files, as the data directory does.
pub(crate) fn place_below(root: &Path, id: &str) -> PathBuf {
    directory::place_in(&Places::below(root).files, id)
}

/// Where a directory that has files carries the id of their database.
pub(crate) fn mark_below(root: &Path) -> PathBuf {
    Places::below(root).mark()
}

impl Files {
    /// The directory below which the configuration keeps files, unless they are in a bucket.
    pub fn root(config: &FilesConfig, data_dir: &DataDir) -> Result<Option<PathBuf>, ConfigError> {
        Ok(match config.place()? {
            FilesPlace::DataDir => Some(data_dir.path().to_owned()),
            FilesPlace::Directory(path) => Some(path),
            FilesPlace::Bucket { .. } => None,
        })
    }

    /// Refuses a new database if there are files of another one. Call it before the database is created.
    pub fn check_new_database(root: &Path, database: &Path) -> Result<(), StoreError> {
        let is_new = std::fs::metadata(database).map_or(true, |found| found.len() == 0);
        if is_new {
            Places::below(root).check_none(database)?;
        }
        Ok(())
    }

    /// Refuses a database to which the files do not belong. Call it before anything of it is changed.
    pub fn check_database(root: &Path, found: &PriorContents) -> Result<(), StoreError> {
        Places::below(root).check(found)
    }

    /// Opens the files where the configuration has them. Files of another database are refused.
    pub async fn open_configured(
        config: &FilesConfig,
        data_dir: &DataDir,
        store: Arc<dyn Store>,
        max_bytes: u64,
    ) -> Result<Self, OpenError> {
        let root = match config.place()? {
            FilesPlace::DataDir => data_dir.path().to_owned(),
            FilesPlace::Directory(path) => path,
            FilesPlace::Bucket {
                provider,
                bucket,
                prefix,
            } => {
                let opened = Bucket::open(config, provider, &bucket, &prefix, store.clone());
                let content = ContentStore::Bucket(opened.await?);
                return Ok(Self::new(content, store, max_bytes));
            }
        };
        Ok(Self::open_below(&root, store, max_bytes).await?)
    }

    /// Files in a bucket that nobody has looked at yet.
    #[cfg(test)]
    pub(crate) fn of_bucket(
        objects: Arc<dyn object_store::ObjectStore>,
        store: Arc<dyn Store>,
    ) -> Self {
        let bucket = Bucket::unopened(objects, store.clone());
        Self::new(ContentStore::Bucket(bucket), store, u64::MAX)
    }

    /// Opens files that are only copied from: a directory is not put in order. Files of another database are refused.
    pub async fn open_source(
        config: &FilesConfig,
        data_dir: &DataDir,
        store: Arc<dyn Store>,
    ) -> Result<Self, OpenError> {
        let Some(root) = Self::root(config, data_dir)? else {
            return Self::open_configured(config, data_dir, store, 0).await;
        };
        let places = Places::below(&root);
        let directory = Directory::new(places.files.clone(), places.incoming.clone());
        let known = prior_contents(&*store).await?;
        look_through(move || places.check(&known)).await?;
        Ok(Self::new(ContentStore::Directory(directory), store, 0))
    }

    /// Opens the files of a data directory, and tidies up what an earlier process left. Files of another database are
    /// refused.
    pub async fn open(
        data_dir: &DataDir,
        store: Arc<dyn Store>,
        max_bytes: u64,
    ) -> Result<Self, StoreError> {
        Self::open_below(data_dir.path(), store, max_bytes).await
    }

    async fn open_below(
        root: &Path,
        store: Arc<dyn Store>,
        max_bytes: u64,
    ) -> Result<Self, StoreError> {
        let places = Places::below(root);
        let directory = Directory::new(places.files.clone(), places.incoming.clone());
        let found = prior_contents(&*store).await?;
        // Read last: what is deleted meanwhile is in one of the two.
        let deleted = store.deleted_files().await?;
        let known = KnownFiles {
            found,
            deleted: deleted.iter().cloned().collect(),
            is_shared: store.is_shared(),
        };
        look_through(move || places.tidy(&known)).await?;
        if !deleted.is_empty() {
            store.forget_deleted_files(&deleted).await?;
        }
        Ok(Self::new(
            ContentStore::Directory(directory),
            store,
            max_bytes,
        ))
    }

    fn new(content: ContentStore, store: Arc<dyn Store>, max_bytes: u64) -> Self {
        Self {
            content: Arc::new(content),
            store,
            max_bytes,
            usage: Arc::new(Usage::new(NO_QUOTA, Vec::new())),
        }
    }

    /// Sets the quota, and counts what is stored already.
    pub async fn bounded(mut self, quota: Quota) -> Result<Self, StoreError> {
        self.usage = Arc::new(Usage::new(quota, self.store.stored_bytes().await?));
        Ok(self)
    }

    /// What is stored from here on is within this quota.
    pub fn limit(&self, quota: Quota) {
        self.usage.limit(quota);
    }

    /// The same files, with rows that are written through another store: that of a chat's owner.
    #[must_use]
    pub fn written_through(&self, store: Arc<dyn Store>) -> Self {
        Self {
            content: self.content.clone(),
            store,
            max_bytes: self.max_bytes,
            usage: self.usage.clone(),
        }
    }

    /// Counts what is stored again, if other processes store in the same place.
    pub async fn recount(&self) -> Result<(), StoreError> {
        if self.store.is_shared() {
            self.usage.reset(self.store.stored_bytes().await?);
        }
        Ok(())
    }

    /// The same for one user.
    pub async fn recount_user(&self, user: &UserId) -> Result<(), StoreError> {
        if self.store.is_shared() {
            self.usage
                .set(user, self.store.stored_bytes_of(user).await?);
        }
        Ok(())
    }

    /// Whether a user may store this many more bytes; 0: whether the user has not reached the limit.
    pub fn check_room(&self, user: &UserId, bytes: u64) -> Result<(), FileError> {
        self.usage.check(user, bytes)
    }

    /// Counts the bytes of a chat's messages after a change.
    pub fn count_messages(&self, user: &UserId, before: u64, now: u64) {
        self.usage.replace(user, before, now);
    }

    /// Saves a file of a chat. Nothing is kept of a file that is refused or cut off.
    pub async fn save(
        &self,
        chat: ChatRef<'_>,
        described: FileDescription<'_>,
        mut content: impl Stream<Item = io::Result<Bytes>> + Unpin,
        now: Timestamp,
    ) -> Result<FileRow, FileError> {
        if self.store.chat(chat).await?.is_none() {
            return Err(StoreError::NotFound(Entity::Chat).into());
        }
        // Its type is known before anything is written.
        let (mut head, mut first) = (Vec::new(), Vec::new());
        while head.len() < HEAD_BYTES
            && let Some(piece) = content.next().await
        {
            let piece = piece.map_err(FileError::Incomplete)?;
            head.extend_from_slice(&piece[..piece.len().min(HEAD_BYTES - head.len())]);
            first.push(Ok(piece));
        }
        let media_type = media::judge(described.media_type, &head)
            .map_err(|found| FileError::MediaType { found })?;

        let id = new_id()?;
        let mut incoming = self.content.begin(&id).await?;
        let mut pieces = stream::iter(first).chain(content);
        let mut bytes = 0;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(FileError::Incomplete)?;
            bytes += piece.len() as u64;
            if bytes > self.max_bytes {
                return Err(FileError::TooLarge {
                    limit: self.max_bytes,
                });
            }
            incoming.write(piece).await?;
        }
        let row = FileRow {
            id,
            chat_id: chat.id.to_owned(),
            user: chat.user.to_owned(),
            media_type,
            bytes,
            name: described.name.and_then(clean_name),
            created: now,
        };
        self.usage.take(&row.user, row.bytes)?;
        self.finish(incoming, row).await
    }

    /// Inspects content without storing it, for callers that need the id before they can wait.
    pub fn prepare(
        &self,
        media_type: Option<&str>,
        content: Vec<u8>,
    ) -> Result<PreparedFile, FileError> {
        if content.len() as u64 > self.max_bytes {
            return Err(FileError::TooLarge {
                limit: self.max_bytes,
            });
        }
        let head = &content[..content.len().min(HEAD_BYTES)];
        let media_type =
            media::judge(media_type, head).map_err(|found| FileError::MediaType { found })?;
        Ok(PreparedFile {
            id: new_id()?,
            media_type,
            content: content.into(),
        })
    }

    /// Stores what was prepared.
    pub async fn store(
        &self,
        chat: ChatRef<'_>,
        prepared: &PreparedFile,
        name: Option<&str>,
        now: Timestamp,
    ) -> Result<FileRow, FileError> {
        let mut incoming = self.content.begin(&prepared.id).await?;
        incoming.write(prepared.content.clone()).await?;
        let row = FileRow {
            id: prepared.id.clone(),
            chat_id: chat.id.to_owned(),
            user: chat.user.to_owned(),
            media_type: prepared.media_type.clone(),
            bytes: prepared.content.len() as u64,
            name: name.and_then(clean_name),
            created: now,
        };
        // Files of a message were checked before anything was superseded; files of an agent are kept in any case.
        self.usage.add(&row.user, row.bytes);
        self.finish(incoming, row).await
    }

    /// Stores content and then its row: both, or neither, even if the caller goes away meanwhile.
    async fn finish(&self, incoming: Incoming, row: FileRow) -> Result<FileRow, FileError> {
        let (content, store) = (self.content.clone(), self.store.clone());
        let (user, bytes) = (row.user.clone(), row.bytes);
        let finished = tokio::spawn(async move {
            incoming.finish().await?;
            if let Err(error) = store.add_file(&row).await {
                // If this fails too, it is put aside later.
                content.remove(vec![row.id]).await;
                return Err(error.into());
            }
            Ok(row)
        });
        let finished = finished.await.unwrap_or_else(|error| {
            Err(StoreError::io("storing a file")(io::Error::other(error)).into())
        });
        if finished.is_err() {
            self.usage.remove(&user, bytes);
        }
        finished
    }

    /// The row of a file, without reading its content.
    pub async fn row(&self, user: &UserId, id: &str) -> Result<FileRow, FileError> {
        let row = self.store.file(user, id).await?;
        Ok(row.ok_or(StoreError::NotFound(Entity::File))?)
    }

    /// The same for a request with its signed URL.
    pub async fn signed_row(&self, id: &str) -> Result<FileRow, FileError> {
        let row = self.store.any_file(id).await?;
        Ok(row.ok_or(StoreError::NotFound(Entity::File))?)
    }

    /// A part of a file's content, to read from. The range lies within the file.
    pub async fn read(&self, row: &FileRow, range: Range<u64>) -> Result<ContentStream, FileError> {
        self.content.read(&row.id, range).await
    }

    /// The whole content of a file.
    pub async fn content(&self, user: &UserId, id: &str) -> Result<(FileRow, Vec<u8>), FileError> {
        let row = self.row(user, id).await?;
        let mut pieces = self.read(&row, 0..row.bytes).await?;
        let mut content = Vec::with_capacity(usize::try_from(row.bytes).unwrap_or_default());
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| match &*self.content {
                ContentStore::Directory(_) => StoreError::io("reading a file")(error).into(),
                ContentStore::Bucket(_) => FileError::Unavailable,
            })?;
            content.extend_from_slice(&piece);
        }
        Ok((row, content))
    }

    /// Deletes a chat with everything in it.
    pub async fn delete_chat(&self, chat: ChatRef<'_>) -> Result<(), StoreError> {
        let kept = self.store.history_size(chat).await?.kept;
        let deleted = self.store.delete_chat(chat).await?;
        self.usage.remove(chat.user, kept);
        let mut gone = Vec::with_capacity(deleted.len());
        for removed in self.content.remove(deleted).await {
            self.usage.remove(chat.user, removed.bytes);
            gone.push(removed.id);
        }
        if !gone.is_empty()
            && let Err(error) = self.store.forget_deleted_files(&gone).await
        {
            tracing::warn!(%error, "deleted files stay recorded until the next start");
        }
        Ok(())
    }

    /// Deletes files that are older than a time, at most `limit`. Returns how many.
    pub async fn delete_old(
        &self,
        before: Timestamp,
        which: OldFiles,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let deleted = self.store.delete_old_files(before, which, limit).await?;
        let users: HashMap<&str, &UserId> = (deleted.iter())
            .map(|file| (&*file.id, &file.user))
            .collect();
        let ids = deleted.iter().map(|file| file.id.clone()).collect();
        let mut gone = Vec::with_capacity(deleted.len());
        for removed in self.content.remove(ids).await {
            if let Some(user) = users.get(&*removed.id) {
                self.usage.remove(user, removed.bytes);
            }
            gone.push(removed.id);
        }
        self.store.forget_deleted_files(&gone).await?;
        Ok(deleted.len() as u64)
    }

    /// Whether files can be stored, found out by trying.
    pub async fn probe(&self) -> Result<(), FileError> {
        self.content.probe().await
    }

    /// Whether other processes may store files in the same place, or the place is not on this machine.
    pub fn is_remote(&self) -> bool {
        matches!(*self.content, ContentStore::Bucket(_))
    }

    /// Puts a bucket in order, as of now; a directory is put in order when it is opened.
    pub async fn sweep(&self, now: Timestamp) -> Result<Swept, FileError> {
        match &*self.content {
            ContentStore::Directory(_) => Ok(Swept::default()),
            ContentStore::Bucket(bucket) => bucket.sweep(&*self.store, now).await,
        }
    }
}

async fn prior_contents(store: &dyn Store) -> Result<PriorContents, StoreError> {
    Ok(PriorContents {
        store: store.identity().await?,
        files: store.file_ids().await?.into_iter().collect(),
    })
}

/// Looks through a directory, which may take a while.
async fn look_through(
    looking: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
) -> Result<(), StoreError> {
    tokio::task::spawn_blocking(looking)
        .await
        .map_err(|error| StoreError::io("looking through the files")(io::Error::other(error)))?
}

/// An id that cannot be guessed: 128 random bits.
fn new_id() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Io {
        doing: "asking the operating system for random bytes",
        why: Box::new(error),
    })?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

fn is_id(name: &str) -> bool {
    name.len() == 32
        && name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A name without directories and without anything that does not print.
fn clean_name(name: &str) -> Option<String> {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut clean: String = base.chars().filter(|c| !c.is_control()).collect();
    clean.truncate(clean.floor_char_boundary(MAX_NAME_BYTES));
    let clean = clean.trim();
    (!matches!(clean, "" | "." | "..")).then(|| clean.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_only_names() {
        let long = "é".repeat(200);
        let cases = [
            ("cat.png", Some("cat.png")),
            ("../../etc/passwd", Some("passwd")),
            ("C:\\photos\\a\r\nb.jpg", Some("ab.jpg")),
            (&long, Some(&long[..254])),
            ("..", None),
            ("a/", None),
            (" ", None),
        ];
        for (name, clean) in cases {
            assert_eq!(clean_name(name).as_deref(), clean, "{name:?}");
        }
    }

    #[test]
    fn ids_look_like_ids() {
        let (one, other) = (new_id().unwrap(), new_id().unwrap());
        assert!(is_id(&one) && is_id(&other) && one != other);
        assert!(!is_id("incoming") && !is_id(&one.to_uppercase().replace('0', "G")));
    }
}
