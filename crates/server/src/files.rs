//! Files: binary content next to the store, readable by its owner and with a signed URL.
//!
//! Content is in `files/xx/ID` under the data directory, its row in the store. The content is written before its row
//! and removed after it, so that a row always has content. What a start does with content without a row is in `tidy`.

pub mod address;
mod media;
mod tidy;
mod usage;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::time::Timestamp;
use tempfile::{NamedTempFile, TempPath};
use thiserror::Error;
use tokio::fs::{self, File};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

pub use crate::store::FileRow;
use crate::store::{ChatRef, DataDir, Entity, PriorContents, Store, StoreError};
use tidy::{KnownFiles, Places};
pub use usage::Quota;
use usage::Usage;

/// How much of a file is read to detect its type.
const HEAD_BYTES: usize = 8 * 1024;

/// How much is written to check whether that is possible: a page of most file systems.
const TRIED_BYTES: usize = 4096;

/// A name is shown and offered for download; file systems accept no longer one.
const MAX_NAME_BYTES: usize = 255;

const NO_QUOTA: Quota = Quota {
    in_all: u64::MAX,
    per_user: u64::MAX,
};

/// Binary content and its place on the disk.
pub struct Files {
    dir: PathBuf,
    incoming: PathBuf,
    store: Arc<dyn Store>,
    max_bytes: u64,
    usage: Usage,
}

/// Content that was inspected and has an id, but is not stored yet.
#[derive(Debug)]
pub struct PreparedFile {
    pub id: String,
    pub media_type: String,
    pub content: Vec<u8>,
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
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Files {
    /// Refuses a new database if there are files of another one. Call it before the database is created.
    pub fn check_new_database(data_dir: &DataDir, database: &Path) -> Result<(), StoreError> {
        let is_new = std::fs::metadata(database).map_or(true, |found| found.len() == 0);
        if is_new {
            Places::of(data_dir).check_none(database)?;
        }
        Ok(())
    }

    /// Refuses a database to which the files do not belong. Call it before anything of it is changed.
    pub fn check_database(data_dir: &DataDir, found: &PriorContents) -> Result<(), StoreError> {
        Places::of(data_dir).check(found)
    }

    /// Opens the files of a data directory, and tidies up what an earlier process left. Files of another database are
    /// refused.
    pub async fn open(
        data_dir: &DataDir,
        store: Arc<dyn Store>,
        max_bytes: u64,
    ) -> Result<Self, StoreError> {
        let places = Places::of(data_dir);
        let (dir, incoming) = (places.files.clone(), places.incoming.clone());
        let deleted = store.deleted_files().await?;
        let known = KnownFiles {
            found: PriorContents {
                store: store.identity().await?,
                files: store.file_ids().await?.into_iter().collect(),
            },
            deleted: deleted.iter().cloned().collect(),
        };
        tokio::task::spawn_blocking(move || places.tidy(&known))
            .await
            .map_err(|error| {
                StoreError::io("looking through the files")(io::Error::other(error))
            })??;
        if !deleted.is_empty() {
            store.forget_deleted_files(&deleted).await?;
        }
        Ok(Self {
            dir,
            incoming,
            store,
            max_bytes,
            usage: Usage::new(NO_QUOTA, Vec::new()),
        })
    }

    /// Sets the quota, and counts what is stored already.
    pub async fn bounded(mut self, quota: Quota) -> Result<Self, StoreError> {
        self.usage = Usage::new(quota, self.store.stored_bytes().await?);
        Ok(self)
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
        content: impl AsyncRead + Unpin,
        now: Timestamp,
    ) -> Result<FileRow, FileError> {
        if self.store.chat(chat).await?.is_none() {
            return Err(StoreError::NotFound(Entity::Chat).into());
        }
        // One byte beyond the limit shows that there is too much.
        let mut content = content.take(self.max_bytes.saturating_add(1));
        let mut head = Vec::new();
        (&mut content)
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .await
            .map_err(FileError::Incomplete)?;
        let media_type = media::judge(described.media_type, &head)
            .map_err(|found| FileError::MediaType { found })?;

        let written = self.write(&head, &mut content).await?;
        let row = FileRow {
            id: new_id()?,
            chat_id: chat.id.to_owned(),
            user: chat.user.to_owned(),
            media_type,
            bytes: written.bytes,
            name: described.name.and_then(clean_name),
            created: now,
        };
        self.usage.take(&row.user, row.bytes)?;
        self.finish(written, row).await
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
            content,
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
        let written = self
            .write(&prepared.content, &mut tokio::io::empty())
            .await?;
        let row = FileRow {
            id: prepared.id.clone(),
            chat_id: chat.id.to_owned(),
            user: chat.user.to_owned(),
            media_type: prepared.media_type.clone(),
            bytes: written.bytes,
            name: name.and_then(clean_name),
            created: now,
        };
        // Files of a message were checked before anything was superseded; files of an agent are kept in any case.
        self.usage.add(&row.user, row.bytes);
        self.finish(written, row).await
    }

    async fn finish(&self, written: WrittenFile, row: FileRow) -> Result<FileRow, FileError> {
        let place = self.place(&row.id);
        if let Err(error) = put(written.path, &place).await {
            self.usage.remove(&row.user, row.bytes);
            return Err(StoreError::io("storing a file")(error).into());
        }
        if let Err(error) = self.store.add_file(&row).await {
            // If this fails too, the next start puts it aside.
            let _ = fs::remove_file(&place).await;
            self.usage.remove(&row.user, row.bytes);
            return Err(error.into());
        }
        Ok(row)
    }

    /// The row of a file, without reading its content.
    pub async fn row(&self, user: &UserId, id: &str) -> Result<FileRow, FileError> {
        let row = self.store.file(user, id).await?;
        Ok(row.ok_or(StoreError::NotFound(Entity::File))?)
    }

    /// The row of a file, and its content to read from.
    pub async fn read(&self, user: &UserId, id: &str) -> Result<(FileRow, File), FileError> {
        let row = self.row(user, id).await?;
        self.opened(row).await
    }

    /// The same for a request with its signed URL.
    pub async fn read_signed(&self, id: &str) -> Result<(FileRow, File), FileError> {
        let row = self.store.any_file(id).await?;
        self.opened(row.ok_or(StoreError::NotFound(Entity::File))?)
            .await
    }

    async fn opened(&self, row: FileRow) -> Result<(FileRow, File), FileError> {
        match File::open(self.place(&row.id)).await {
            Ok(file) => Ok((row, file)),
            // Deleted since the backup was made that the database comes from, or by hand.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(file = %row.id, "the content of a file is missing");
                Err(StoreError::NotFound(Entity::File).into())
            }
            Err(error) => Err(StoreError::io("opening a file")(error).into()),
        }
    }

    /// The whole content of a file.
    pub async fn content(&self, user: &UserId, id: &str) -> Result<(FileRow, Vec<u8>), FileError> {
        let (row, mut file) = self.read(user, id).await?;
        let mut content = Vec::with_capacity(usize::try_from(row.bytes).unwrap_or_default());
        file.read_to_end(&mut content)
            .await
            .map_err(StoreError::io("reading a file"))?;
        Ok((row, content))
    }

    /// Deletes a chat with everything in it.
    pub async fn delete_chat(&self, chat: ChatRef<'_>) -> Result<(), StoreError> {
        let kept = self.store.history_size(chat).await?.kept;
        let deleted = self.store.delete_chat(chat).await?;
        self.usage.remove(chat.user, kept);
        let mut gone = Vec::with_capacity(deleted.len());
        for id in deleted {
            let place = self.place(&id);
            let bytes = fs::metadata(&place).await.map_or(0, |found| found.len());
            self.usage.remove(chat.user, bytes);
            // What stays is removed by the next start.
            match fs::remove_file(place).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, file = %id, "the content of a deleted file could not be removed");
                }
                _ => gone.push(id),
            }
        }
        if !gone.is_empty()
            && let Err(error) = self.store.forget_deleted_files(&gone).await
        {
            tracing::warn!(%error, "deleted files stay recorded until the next start");
        }
        Ok(())
    }

    /// Writes a little to the directory of files, to check whether that is possible.
    pub async fn try_write(&self) -> Result<(), StoreError> {
        let incoming = self.incoming.clone();
        tokio::task::spawn_blocking(move || {
            let mut file = NamedTempFile::new_in(incoming)?;
            std::io::Write::write_all(&mut file, &[0; TRIED_BYTES])
        })
        .await
        .map_err(io::Error::other)
        .flatten()
        .map_err(StoreError::io("writing a file"))
    }

    /// Writes content to a temporary file.
    async fn write(
        &self,
        head: &[u8],
        rest: &mut (impl AsyncRead + Unpin),
    ) -> Result<WrittenFile, FileError> {
        let incoming = self.incoming.clone();
        let (file, path) = tokio::task::spawn_blocking(move || NamedTempFile::new_in(incoming))
            .await
            .map_err(io::Error::other)
            .flatten()
            .map_err(StoreError::io("creating a file"))?
            .into_parts();
        let mut file = File::from_std(file);
        let failed = StoreError::io("writing a file");
        let mut bytes = head.len() as u64;
        let mut buffer = vec![0; 64 * 1024];
        let mut piece = head;
        loop {
            if bytes > self.max_bytes {
                return Err(FileError::TooLarge {
                    limit: self.max_bytes,
                });
            }
            if let Err(error) = file.write_all(piece).await {
                return Err(failed(error).into());
            }
            let read = rest
                .read(&mut buffer)
                .await
                .map_err(FileError::Incomplete)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            piece = &buffer[..read];
        }
        if let Err(error) = file.sync_all().await {
            return Err(failed(error).into());
        }
        Ok(WrittenFile { path, bytes })
    }

    fn place(&self, id: &str) -> PathBuf {
        place_in(&self.dir, id)
    }
}

fn place_in(dir: &Path, id: &str) -> PathBuf {
    // A directory with very many entries is slow on some file systems.
    let shelf = id.get(..2).unwrap_or("__");
    dir.join(shelf).join(id)
}

struct WrittenFile {
    /// Removes the file when dropped.
    path: TempPath,
    bytes: u64,
}

/// Moves a file to its place, durably.
async fn put(from: TempPath, to: &Path) -> io::Result<()> {
    let to = to.to_owned();
    tokio::task::spawn_blocking(move || {
        let shelf = to.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(shelf)?;
        from.persist_noclobber(&to).map_err(|error| error.error)?;
        sync_dir(shelf)?;
        shelf.parent().map_or(Ok(()), sync_dir)
    })
    .await
    .map_err(io::Error::other)?
}

/// Makes the entries of a directory durable.
#[cfg(unix)]
fn sync_dir(dir: &Path) -> io::Result<()> {
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(not(unix))]
fn sync_dir(_dir: &Path) -> io::Result<()> {
    Ok(())
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
