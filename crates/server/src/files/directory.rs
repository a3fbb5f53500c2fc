//! Content in a directory of this machine: `xx/ID`, written elsewhere first, and durable before it is there.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream;
use tempfile::{NamedTempFile, TempPath};
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use super::FileError;
use super::content::{ContentStream, Removed};
use crate::store::{Entity, StoreError};

/// How much of a file is read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// How much is written to check whether that is possible: a page of most file systems.
const TRIED_BYTES: usize = 4096;

pub(super) struct Directory {
    files: PathBuf,
    incoming: PathBuf,
}

/// A file that has no place yet.
pub(super) struct IncomingFile {
    file: File,
    /// Removes the file when dropped.
    path: TempPath,
    place: PathBuf,
}

impl Directory {
    pub(super) fn new(files: PathBuf, incoming: PathBuf) -> Self {
        Self { files, incoming }
    }

    pub(super) async fn begin(&self, id: &str) -> Result<IncomingFile, StoreError> {
        let incoming = self.incoming.clone();
        let (file, path) = tokio::task::spawn_blocking(move || NamedTempFile::new_in(incoming))
            .await
            .map_err(io::Error::other)
            .flatten()
            .map_err(StoreError::io("creating a file"))?
            .into_parts();
        Ok(IncomingFile {
            file: File::from_std(file),
            path,
            place: self.place(id),
        })
    }

    pub(super) async fn read(
        &self,
        id: &str,
        range: Range<u64>,
    ) -> Result<ContentStream, FileError> {
        let mut file = match File::open(self.place(id)).await {
            Ok(file) => file,
            // Deleted since the backup was made that the database comes from, or by hand.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(file = %id, "the content of a file is missing");
                return Err(StoreError::NotFound(Entity::File).into());
            }
            Err(error) => return Err(StoreError::io("opening a file")(error).into()),
        };
        let sought = file.seek(io::SeekFrom::Start(range.start)).await;
        sought.map_err(StoreError::io("reading a file"))?;
        let left = range.end.saturating_sub(range.start);
        let pieces = stream::try_unfold((file, left), |(mut file, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let most = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let mut piece = Vec::with_capacity(most);
            let read = (&mut file).take(most as u64).read_buf(&mut piece).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(Some((Bytes::from(piece), (file, left - read as u64))))
        });
        Ok(Box::pin(pieces))
    }

    pub(super) async fn size(&self, id: &str) -> Result<Option<u64>, StoreError> {
        match fs::metadata(self.place(id)).await {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("looking for a file")(error)),
        }
    }

    pub(super) async fn remove(&self, ids: Vec<String>) -> Vec<Removed> {
        let mut gone = Vec::with_capacity(ids.len());
        for id in ids {
            let place = self.place(&id);
            let bytes = fs::metadata(&place).await.map_or(0, |found| found.len());
            // What stays is removed by the next start.
            match fs::remove_file(place).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, file = %id, "the content of a deleted file could not be removed");
                }
                _ => gone.push(Removed { id, bytes }),
            }
        }
        gone
    }

    pub(super) async fn try_write(&self) -> Result<(), StoreError> {
        let incoming = self.incoming.clone();
        tokio::task::spawn_blocking(move || {
            let mut file = NamedTempFile::new_in(incoming)?;
            io::Write::write_all(&mut file, &[0; TRIED_BYTES])
        })
        .await
        .map_err(io::Error::other)
        .flatten()
        .map_err(StoreError::io("writing a file"))
    }

    fn place(&self, id: &str) -> PathBuf {
        place_in(&self.files, id)
    }
}

impl IncomingFile {
    pub(super) async fn write(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_all(piece).await;
        written.map_err(StoreError::io("writing a file"))
    }

    pub(super) async fn finish(self) -> Result<(), StoreError> {
        let synced = self.file.sync_all().await;
        synced.map_err(StoreError::io("writing a file"))?;
        let put = put(self.path, self.place).await;
        put.map_err(StoreError::io("storing a file"))
    }
}

/// Moves a file to its place, durably.
async fn put(from: TempPath, to: PathBuf) -> io::Result<()> {
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

pub(super) fn place_in(dir: &Path, id: &str) -> PathBuf {
    // A directory with very many entries is slow on some file systems.
    let shelf = id.get(..2).unwrap_or("__");
    dir.join(shelf).join(id)
}

/// Makes the entries of a directory durable.
#[cfg(unix)]
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(not(unix))]
pub(super) fn sync_dir(_dir: &Path) -> io::Result<()> {
    Ok(())
}
