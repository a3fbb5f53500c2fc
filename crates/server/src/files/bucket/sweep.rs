//! What is done about content in a bucket that no row of the database names, by every bridge that shares the two.
//!
//! Content is written before its row, so that another bridge may just have written what looks like nobody's. Content is
//! looked at once it is older than [`GRACE`], which no upload takes. Like a directory's, it is not deleted but moved to
//! `lost-files`, and comes back when the database knows it.

use std::collections::HashSet;
use std::time::Duration;

use adk_bridge_protocol::time::Timestamp;
use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};

use super::{ANSWER_TIME, Bucket, BucketError, within};
use crate::files::{FileError, is_id};
use crate::store::Store;

/// How old content without a row must be. An upload takes minutes at most; clocks may differ by hours.
pub(in crate::files) const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a sweep has found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// Moved to `lost-files`.
    pub lost: usize,
    /// Moved back from there.
    pub found: usize,
    /// Of chats that users have deleted.
    pub deleted: usize,
}

impl Bucket {
    /// Puts the bucket in order, as of now.
    pub(in crate::files) async fn sweep(
        &self,
        store: &dyn Store,
        now: Timestamp,
    ) -> Result<Swept, FileError> {
        self.claim().await?;
        let mut swept = Swept::default();
        // In this order: what is deleted meanwhile is in one of the two.
        let known: HashSet<String> = store.file_ids().await?.into_iter().collect();
        let deleted = store.deleted_files().await?;
        let gone = self.remove(deleted.clone()).await;
        swept.deleted = gone.iter().filter(|it| it.bytes > 0).count();
        if !gone.is_empty() {
            let gone: Vec<String> = gone.into_iter().map(|it| it.id).collect();
            store.forget_deleted_files(&gone).await?;
        }
        let deleted: HashSet<String> = deleted.into_iter().collect();
        let mut away = self.objects.list(Some(&self.lost));
        while let Some(object) = next(&mut away).await? {
            if let Some(id) = id_of(&object)
                && known.contains(id)
            {
                let place = self.place(id);
                swept.found += usize::from(self.shift(&object.location, &place).await?);
            }
        }
        let mut here = self.objects.list(Some(&self.files));
        while let Some(object) = next(&mut here).await? {
            let age = now.as_millis().checked_sub(modified(&object));
            let is_old = age.is_some_and(|age| u128::from(age) >= GRACE.as_millis());
            if let Some(id) = id_of(&object)
                && is_old
                && !known.contains(id)
                && !deleted.contains(id)
            {
                let place = self.lost_place(id);
                swept.lost += usize::from(self.shift(&object.location, &place).await?);
            }
        }
        self.tell(swept);
        Ok(swept)
    }

    fn tell(&self, swept: Swept) {
        let (
            Swept {
                lost,
                found,
                deleted,
            },
            place,
        ) = (swept, &self.url);
        if lost > 0 {
            tracing::warn!(
                "{lost} files in {place} are not known to the database; they were moved to {place}/lost-files, and are \
                 restored when the database knows them"
            );
        }
        if found > 0 {
            tracing::info!(
                "{found} files that the database knows were restored from {place}/lost-files"
            );
        }
        if deleted > 0 {
            tracing::info!(
                "the content of {deleted} files of deleted chats was removed from {place}"
            );
        }
    }

    /// Moves an object. Nothing is overwritten, and what another bridge has moved meanwhile is where it should be.
    async fn shift(&self, from: &Path, to: &Path) -> Result<bool, FileError> {
        let doing = "moving a file";
        match within(doing, ANSWER_TIME, self.objects.head(to)).await {
            Ok(_) => return Ok(false),
            Err(BucketError::Missing) => {}
            Err(error) => return Err(error.into()),
        }
        match within(doing, super::PUT_TIME, self.objects.copy(from, to)).await {
            Err(BucketError::Missing) => return Ok(false),
            copied => copied?,
        }
        match within(doing, ANSWER_TIME, self.objects.delete(from)).await {
            Ok(()) | Err(BucketError::Missing) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// The next object of a listing.
pub(super) async fn next(
    listing: &mut (impl futures_util::Stream<Item = object_store::Result<ObjectMeta>> + Unpin),
) -> Result<Option<ObjectMeta>, BucketError> {
    let next = async { listing.next().await.transpose() };
    within("listing files", ANSWER_TIME, next).await
}

pub(super) fn id_of(object: &ObjectMeta) -> Option<&str> {
    object.location.filename().filter(|name| is_id(name))
}

fn modified(object: &ObjectMeta) -> u64 {
    u64::try_from(object.last_modified.timestamp_millis()).unwrap_or(0)
}
