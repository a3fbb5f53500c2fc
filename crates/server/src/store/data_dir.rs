//! The data directory, held by one process at a time.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::StoreError;

/// A directory that no other process uses as long as this lives. The operating system lets go of it when the process
/// ends, however it ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory where it is missing, and takes it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let unusable = |why| StoreError::Unusable {
            dir: path.to_owned(),
            why,
        };
        create(path).map_err(unusable)?;
        // One name for the directory, whichever way it was reached.
        let path = path.canonicalize().map_err(unusable)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    by: holder(&mut lock),
                    dir: path,
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(unusable(error));
            }
        }
        sign(&mut lock).map_err(unusable)?;
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Conversations are nobody's business but the owner's. A directory that is there already is left as it is.
fn create(path: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn sign(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    write!(lock, "{}", std::process::id())
}

/// Who has the lock. Where a lock also keeps readers out, that stays unknown.
fn holder(lock: &mut File) -> String {
    let mut pid = String::new();
    match lock.read_to_string(&mut pid) {
        Ok(_) if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("process {pid}")
        }
        _ => "another process".to_owned(),
    }
}
