//! The data directory, locked by one process at a time.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::StoreError;

/// A directory that no other process uses while this lives. The operating system releases the lock when the process
/// ends, however it ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Creates the directory if it is missing, and locks it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let unusable = |why| StoreError::Unusable {
            dir: path.to_owned(),
            why,
        };
        create(path).map_err(unusable)?;
        // One name for the directory, whichever path led to it.
        let path = path.canonicalize().map_err(unusable)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))
            .map_err(unusable)?;
        make_private(&path.join("lock"));
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

/// Removes the rights of other users to a file or directory of ours, whatever the umask was when it was created.
#[cfg(unix)]
pub(crate) fn make_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    let Ok(found) = std::fs::metadata(path) else {
        // Not created yet.
        return;
    };
    let mode = found.permissions().mode();
    if mode & 0o077 == 0 {
        return;
    }
    let private = std::fs::Permissions::from_mode(mode & 0o700);
    if let Err(error) = std::fs::set_permissions(path, private) {
        tracing::warn!(%error, "other users can read {}; restrict its permissions", path.display());
    }
}

#[cfg(not(unix))]
pub(crate) fn make_private(_path: &Path) {}

/// Conversations are private to the owner. An existing directory is left as it is: it may contain other files.
fn create(path: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn sign(lock: &mut File) -> std::io::Result<()> {
    // Overwritten, not created again: on a full disk there is no room for a new file.
    let id = std::process::id().to_string();
    lock.rewind()?;
    lock.write_all(id.as_bytes())?;
    lock.set_len(id.len() as u64)
}

/// The process that has the lock, if the lock does not keep readers out.
fn holder(lock: &mut File) -> String {
    let mut pid = String::new();
    match lock.read_to_string(&mut pid) {
        Ok(_) if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("process {pid}")
        }
        _ => "another process".to_owned(),
    }
}
