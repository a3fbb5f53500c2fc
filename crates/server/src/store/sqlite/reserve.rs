//! Disk space that is reserved for deletions: a full disk must not prevent users from making room.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The size of the reserve: a full log ([`LOG_PAGES`]) may need as much room in the database before it can be
/// truncated, and each step of a deletion writes some pages of its own.
const BYTES: u64 = 8 * 1024 * 1024;

/// The largest share of the free space that is reserved, on small disks.
const SHARE: u64 = 8;

/// The size of a write, and of a page of the database.
const PAGE: u64 = 4096;

/// How many pages the log has before it is checkpointed, if there is room; SQLite's default.
const LOG_PAGES: u64 = 1000;

/// The fewest: with less in the log, every other write would wait for the disk.
const MIN_LOG_PAGES: u64 = 64;

/// How much is left free when the reserve is taken at a start: replies that continue write a little.
const LEFT_AT_START: u64 = 256 * 1024;

/// A file next to the database that is given up for a deletion.
pub(super) struct Reserve {
    path: PathBuf,
    /// How many bytes are reserved.
    taken: AtomicU64,
    /// How many deletions use the room at the moment; it is not taken back from them.
    users: AtomicUsize,
}

/// The reserve while it is given up; dropping this takes back what is left of it.
pub(super) struct Released<'r> {
    reserve: &'r Reserve,
    bytes: u64,
    left: u64,
}

impl Reserve {
    pub(super) fn next_to(database: &Path) -> Self {
        let path = super::with_suffix(database, "-reserve");
        let taken = std::fs::metadata(&path).map_or(0, |found| found.len());
        Self {
            path,
            taken: AtomicU64::new(taken),
            users: AtomicUsize::new(0),
        }
    }

    /// Reserves as much as possible, up to the full size. Without a reserve, deletions need room like any other write.
    pub(super) fn take(&self) {
        if self.users.load(Ordering::Relaxed) > 0 {
            return;
        }
        let taken = self.bytes();
        let share = |free: u64| (free + taken) / SHARE / PAGE * PAGE;
        let wanted = BYTES.min(self.free().map_or(BYTES, share));
        if wanted > taken {
            self.keep(wanted);
        }
    }

    /// The same if nothing is reserved, because the reserve was given up and could not be taken back.
    pub(super) fn take_if_missing(&self) {
        if self.bytes() == 0 {
            self.take();
        }
    }

    /// Gives up the reserve for a while.
    pub(super) fn release(&self) -> Released<'_> {
        // If it cannot be removed, there is no more room than before.
        let _ = std::fs::remove_file(&self.path);
        self.users.fetch_add(1, Ordering::Relaxed);
        Released {
            reserve: self,
            bytes: self.taken.swap(0, Ordering::Relaxed),
            left: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether the disk has this much room.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        self.free().is_none_or(|free| free >= bytes)
    }

    fn keep(&self, bytes: u64) -> bool {
        let before = self.bytes();
        match self.fill(bytes) {
            Ok(()) => self.taken.store(bytes, Ordering::Relaxed),
            Err(_) if before == 0 => {
                let _ = std::fs::remove_file(&self.path);
            }
            Err(_) => {
                let file = OpenOptions::new().write(true).open(&self.path);
                let _ = file.and_then(|file| file.set_len(before));
            }
        }
        self.bytes() >= bytes
    }

    fn fill(&self, bytes: u64) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.path)?;
        if allocate(&file, bytes) {
            return Ok(());
        }
        for _ in 0..bytes / PAGE {
            file.write_all(&[0; PAGE as usize])?;
        }
        Ok(())
    }

    #[cfg(unix)]
    fn free(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(self.path.parent()?).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    #[cfg(not(unix))]
    fn free(&self) -> Option<u64> {
        None
    }
}

impl Released<'_> {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some of the room stays free.
    pub(super) fn leaving_some(mut self) -> Self {
        self.left = LEFT_AT_START;
        self
    }
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.reserve.users.fetch_sub(1, Ordering::Relaxed);
        let free = self.reserve.free().unwrap_or(u64::MAX);
        let mut bytes = self.bytes.min(free.saturating_sub(self.left)) / PAGE * PAGE;
        // Another writer may have taken some of it.
        while bytes > 0 && !self.reserve.keep(bytes) {
            bytes = bytes / 2 / PAGE * PAGE;
        }
    }
}

/// How many pages the log may have, so that a checkpoint takes half of the reserve.
pub(super) fn log_pages(kept: u64) -> u64 {
    (kept / 2 / PAGE).clamp(MIN_LOG_PAGES, LOG_PAGES)
}

/// Allocates room without writing to it, if the file system can.
#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: u64) -> bool {
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn allocate(_file: &File, _bytes: u64) -> bool {
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("test.db");
        let reserve = Reserve::next_to(&database);
        reserve.take();
        let length = || std::fs::metadata(&reserve.path).map_or(0, |found| found.len());
        assert_eq!(length(), BYTES);
        let released = reserve.release();
        assert_eq!((length(), reserve.bytes()), (0, 0));
        drop(released);
        assert_eq!(length(), BYTES);
        assert_eq!(log_pages(Reserve::next_to(&database).bytes()), LOG_PAGES);
    }
}
