//! Files: binary content beside the store, readable by its owner only.
//!
//! Content lies in `files/xx/ID` under the data directory, its row in the store. The content is written before its row
//! and removed after it, so that a row always has content; content without a row is swept away at start.

mod media;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adk_bridge_protocol::approval::Time;
use tempfile::{NamedTempFile, TempPath};
use thiserror::Error;
use tokio::fs::{self, File};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

pub use crate::store::FileRow;
use crate::store::{ChatRef, DataDir, Store, StoreError, Thing};

/// How much of a file is looked at to tell what it is.
const HEAD_BYTES: usize = 8 * 1024;

/// A name is shown and offered for download; file systems take no longer one.
const MAX_NAME_BYTES: usize = 255;

/// Binary content and where it lies.
pub struct Files {
    dir: PathBuf,
    incoming: PathBuf,
    store: Arc<dyn Store>,
    max_bytes: u64,
}

/// Content that was looked at and has an id, and is not stored yet.
#[derive(Debug)]
pub struct Prepared {
    pub id: String,
    pub media_type: String,
    pub content: Vec<u8>,
}

/// What a client says about a file that it sends.
#[derive(Debug, Clone, Copy, Default)]
pub struct Described<'a> {
    pub media_type: Option<&'a str>,
    pub name: Option<&'a str>,
}

#[derive(Debug, Error)]
pub enum FileError {
    #[error("files may have {limit} bytes; send a smaller one")]
    TooLarge { limit: u64 },
    #[error("files of type {found} are not taken; send an image, audio, video, PDF or plain text")]
    MediaType { found: String },
    /// The sender went away, or the body was cut off.
    #[error("the file did not arrive: {0}")]
    Incomplete(io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Files {
    /// Opens the files of a data directory and removes what an earlier process left half done.
    pub async fn open(
        data_dir: &DataDir,
        store: Arc<dyn Store>,
        max_bytes: u64,
    ) -> Result<Self, StoreError> {
        let dir = data_dir.path().join("files");
        let incoming = dir.join("incoming");
        fs::create_dir_all(&incoming)
            .await
            .map_err(StoreError::io("creating the directory of files"))?;
        let known: HashSet<String> = store.file_ids().await?.into_iter().collect();
        let swept = dir.clone();
        tokio::task::spawn_blocking(move || sweep(&swept, &known))
            .await
            .map_err(io::Error::other)
            .flatten()
            .map_err(StoreError::io("sweeping the directory of files"))?;
        Ok(Self {
            dir,
            incoming,
            store,
            max_bytes,
        })
    }

    /// Takes a file for a chat. Nothing of one that is refused or cut off is kept.
    pub async fn save(
        &self,
        chat: ChatRef<'_>,
        described: Described<'_>,
        content: impl AsyncRead + Unpin,
        now: Time,
    ) -> Result<FileRow, FileError> {
        if self.store.chat(chat).await?.is_none() {
            return Err(StoreError::NotFound(Thing::Chat).into());
        }
        // One byte more than is allowed tells that there is too much.
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
        self.finish(written, row).await
    }

    /// Looks at content without storing it, for those who must know its id before they can wait.
    pub fn prepare(
        &self,
        media_type: Option<&str>,
        content: Vec<u8>,
    ) -> Result<Prepared, FileError> {
        if content.len() as u64 > self.max_bytes {
            return Err(FileError::TooLarge {
                limit: self.max_bytes,
            });
        }
        let head = &content[..content.len().min(HEAD_BYTES)];
        let media_type =
            media::judge(media_type, head).map_err(|found| FileError::MediaType { found })?;
        Ok(Prepared {
            id: new_id()?,
            media_type,
            content,
        })
    }

    /// Stores what was prepared.
    pub async fn store(
        &self,
        chat: ChatRef<'_>,
        prepared: &Prepared,
        name: Option<&str>,
        now: Time,
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
        self.finish(written, row).await
    }

    async fn finish(&self, written: Written, row: FileRow) -> Result<FileRow, FileError> {
        let place = self.place(&row.id);
        put(written.path, &place)
            .await
            .map_err(StoreError::io("storing a file"))?;
        if let Err(error) = self.store.add_file(&row).await {
            // If this fails too, the next start sweeps it away.
            let _ = fs::remove_file(&place).await;
            return Err(error.into());
        }
        Ok(row)
    }

    /// What is known of a file, and its content to read from.
    pub async fn read(&self, user: &str, id: &str) -> Result<(FileRow, File), FileError> {
        let row = self
            .store
            .file(user, id)
            .await?
            .ok_or(StoreError::NotFound(Thing::File))?;
        let file = File::open(self.place(&row.id))
            .await
            .map_err(StoreError::io("opening a file"))?;
        Ok((row, file))
    }

    /// The whole content of a file.
    pub async fn content(&self, user: &str, id: &str) -> Result<(FileRow, Vec<u8>), FileError> {
        let (row, mut file) = self.read(user, id).await?;
        let mut content = Vec::with_capacity(usize::try_from(row.bytes).unwrap_or_default());
        file.read_to_end(&mut content)
            .await
            .map_err(StoreError::io("reading a file"))?;
        Ok((row, content))
    }

    /// Deletes a chat with everything in it.
    pub async fn delete_chat(&self, chat: ChatRef<'_>) -> Result<(), StoreError> {
        for id in self.store.delete_chat(chat).await? {
            // The rows are gone, and with them every way to the content; the next start sweeps what stays.
            let _ = fs::remove_file(self.place(&id)).await;
        }
        Ok(())
    }

    /// Writes content to where nobody looks.
    async fn write(
        &self,
        head: &[u8],
        rest: &mut (impl AsyncRead + Unpin),
    ) -> Result<Written, FileError> {
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
        Ok(Written { path, bytes })
    }

    fn place(&self, id: &str) -> PathBuf {
        // A directory with very many entries is slow on some file systems.
        let shelf = id.get(..2).unwrap_or("__");
        self.dir.join(shelf).join(id)
    }
}

struct Written {
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

/// Removes content that has no row. What is not of our making stays.
fn sweep(dir: &Path, known: &HashSet<String>) -> io::Result<()> {
    for shelf in std::fs::read_dir(dir)? {
        let shelf = shelf?;
        if !shelf.file_type()?.is_dir() {
            continue;
        }
        let incoming = shelf.file_name() == "incoming";
        for entry in std::fs::read_dir(shelf.path())? {
            let entry = entry?;
            let name = entry.file_name();
            let orphan = name
                .to_str()
                .is_some_and(|name| is_id(name) && !known.contains(name));
            if entry.file_type()?.is_file() && (incoming || orphan) {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
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
