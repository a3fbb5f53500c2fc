//! Where the content of files is: a directory of this machine, or a bucket.
//!
//! ```text
//!   begin ──▶ Incoming ── write, write, … ──▶ finish ──▶ at its place, durably
//!                │
//!                └─ dropped ──▶ nothing is left
//! ```

use std::io;
use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;

use super::FileError;
use super::bucket::{Bucket, IncomingObject};
use super::directory::{Directory, IncomingFile};

/// Content on its way to a reader. It ends with an error if there is less than the reader was promised.
pub type ContentStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

pub(super) enum ContentStore {
    Directory(Directory),
    Bucket(Bucket),
}

/// Content that is not at its place yet.
pub(super) enum Incoming {
    File(IncomingFile),
    Object(IncomingObject),
}

/// Content that is gone.
pub(super) struct Removed {
    pub(super) id: String,
    /// None if it was gone before.
    pub(super) bytes: u64,
}

impl ContentStore {
    /// Begins to write the content of a new file.
    pub(super) async fn begin(&self, id: &str) -> Result<Incoming, FileError> {
        Ok(match self {
            Self::Directory(directory) => Incoming::File(directory.begin(id).await?),
            Self::Bucket(bucket) => Incoming::Object(bucket.begin(id)),
        })
    }

    /// A part of a file's content. The range lies within the file.
    pub(super) async fn read(
        &self,
        id: &str,
        range: Range<u64>,
    ) -> Result<ContentStream, FileError> {
        match self {
            Self::Directory(directory) => directory.read(id, range).await,
            Self::Bucket(bucket) => bucket.read(id, range).await,
        }
    }

    /// How many bytes the content has, if it is there.
    pub(super) async fn size(&self, id: &str) -> Result<Option<u64>, FileError> {
        match self {
            Self::Directory(directory) => Ok(directory.size(id).await?),
            Self::Bucket(bucket) => bucket.size(id).await,
        }
    }

    /// Removes content. Returns what is gone; what cannot be removed now is logged.
    pub(super) async fn remove(&self, ids: Vec<String>) -> Vec<Removed> {
        match self {
            Self::Directory(directory) => directory.remove(ids).await,
            Self::Bucket(bucket) => bucket.remove(ids).await,
        }
    }

    /// Whether content can be stored, found out by trying.
    pub(super) async fn probe(&self) -> Result<(), FileError> {
        match self {
            Self::Directory(directory) => Ok(directory.try_write().await?),
            Self::Bucket(bucket) => bucket.probe().await,
        }
    }
}

impl Incoming {
    pub(super) async fn write(&mut self, piece: Bytes) -> Result<(), FileError> {
        match self {
            Self::File(file) => Ok(file.write(&piece).await?),
            Self::Object(object) => object.write(piece).await,
        }
    }

    /// Puts it at its place. When this returns, it is durable.
    pub(super) async fn finish(self) -> Result<(), FileError> {
        match self {
            Self::File(file) => Ok(file.finish().await?),
            Self::Object(object) => object.finish().await,
        }
    }
}
