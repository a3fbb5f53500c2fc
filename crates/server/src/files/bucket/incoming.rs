//! Content on its way into a bucket: at once if it is small, and in parts, one at a time, if it is not.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};

use super::{ANSWER_TIME, Bucket, BucketError, within};
use crate::files::FileError;

/// What is sent in one request. Servers want parts of at least 5 MiB, some of them all of one size.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// An object that is not complete.
pub(in crate::files) struct IncomingObject {
    bucket: Bucket,
    place: Path,
    /// What the next part has so far.
    part: Vec<Bytes>,
    part_bytes: usize,
    /// Once there is more than one part. What is not completed is aborted.
    upload: Option<Box<dyn MultipartUpload>>,
}

impl IncomingObject {
    pub(super) fn new(bucket: Bucket, place: Path) -> Self {
        Self {
            bucket,
            place,
            part: Vec::new(),
            part_bytes: 0,
            upload: None,
        }
    }

    pub(in crate::files) async fn write(&mut self, mut piece: Bytes) -> Result<(), FileError> {
        while !piece.is_empty() {
            if self.part_bytes == PART_BYTES {
                self.send_part().await?;
            }
            let more = piece.split_to(piece.len().min(PART_BYTES - self.part_bytes));
            self.part_bytes += more.len();
            self.part.push(more);
        }
        Ok(())
    }

    pub(in crate::files) async fn finish(mut self) -> Result<(), FileError> {
        self.bucket.claim().await?;
        if self.upload.is_none() {
            let content = self.take_part();
            let put = self.bucket.objects.put(&self.place, content);
            within("storing a file", super::PUT_TIME, put).await?;
            return Ok(());
        }
        self.send_part().await?;
        if let Some(upload) = &mut self.upload {
            within("storing a file", ANSWER_TIME, upload.complete()).await?;
        }
        self.upload = None;
        Ok(())
    }

    async fn send_part(&mut self) -> Result<(), FileError> {
        let content = self.take_part();
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => {
                self.bucket.claim().await?;
                let begun = self.bucket.objects.put_multipart(&self.place);
                none.insert(within("storing a file", ANSWER_TIME, begun).await?)
            }
        };
        let sent = upload.put_part(content);
        Ok(within("storing a file", super::PUT_TIME, sent).await?)
    }

    fn take_part(&mut self) -> PutPayload {
        self.part_bytes = 0;
        std::mem::take(&mut self.part).into_iter().collect()
    }
}

impl Drop for IncomingObject {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else {
            return;
        };
        // Without a runtime the process ends, and a rule of the bucket removes the parts.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let aborted = within("aborting an upload", ANSWER_TIME, upload.abort()).await;
                match aborted {
                    Ok(()) | Err(BucketError::Missing) => {}
                    Err(error) => {
                        tracing::warn!(%error, "parts of an upload stay in the bucket until its own rules remove them");
                    }
                }
            });
        }
    }
}
