//! Copies all content from one place to another, for data that moves.

use bytes::Bytes;
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::{FileError, Files};
use crate::store::StoreError;

/// What was copied.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    pub files: usize,
    pub bytes: u64,
    /// They were there already, copied by an earlier attempt.
    pub present: usize,
    /// Their rows are there, but no content.
    pub missing: usize,
}

impl Files {
    /// Copies the content of all files that this database knows to another place. What is there with the same size is not
    /// copied again, because content is never there in part; what is copied is read back and compared. So this can be
    /// repeated after an interruption.
    pub async fn copy_all(&self, to: &Self) -> Result<Copied, FileError> {
        let mut copied = Copied::default();
        for id in self.store.file_ids().await? {
            let Some(bytes) = self.content.size(&id).await? else {
                tracing::warn!(file = %id, "the content of a file is missing");
                copied.missing += 1;
                continue;
            };
            if to.content.size(&id).await? == Some(bytes) {
                copied.present += 1;
                continue;
            }
            // Content of another size is none of ours; a directory would not replace it.
            to.content.remove(vec![id.clone()]).await;
            let mut pieces = self.content.read(&id, 0..bytes).await?;
            let mut incoming = to.content.begin(&id).await?;
            let mut sent = Sha256::new();
            while let Some(piece) = pieces.next().await {
                let piece: Bytes = piece.map_err(StoreError::io("reading a file"))?;
                sent.update(&piece);
                incoming.write(piece).await?;
            }
            incoming.finish().await?;
            if to.digest(&id, bytes).await? != sent.finalize()[..] {
                to.content.remove(vec![id.clone()]).await;
                let why = format!("file {id} differs where it was copied to; try again");
                return Err(StoreError::Corrupt { what: why }.into());
            }
            copied.files += 1;
            copied.bytes += bytes;
        }
        Ok(copied)
    }

    async fn digest(&self, id: &str, bytes: u64) -> Result<Vec<u8>, FileError> {
        let mut pieces = self.content.read(id, 0..bytes).await?;
        let mut read = Sha256::new();
        while let Some(piece) = pieces.next().await {
            read.update(&piece.map_err(StoreError::io("reading a file"))?);
        }
        Ok(read.finalize().to_vec())
    }
}
