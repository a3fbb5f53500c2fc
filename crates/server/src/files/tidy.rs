//! What a start does with content that an earlier process left: nothing that may belong to a user is deleted.
//!
//! The directory of files carries the id of its database (`database-id`). With another database, one that knows none of
//! the files, the start is refused. Content that the right database does not know (it was written just before a crash,
//! or since the backup that the database comes from) is moved to `lost-files` next to the directory, and comes back
//! when a database that knows it is started. If several processes share the database, another one may just have written
//! it: what is younger than [`GRACE`] stays where it is.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::bucket::GRACE;
use super::directory::{place_in, sync_dir};
use super::is_id;
use crate::store::{PriorContents, StoreError, make_private};

/// Where the directory of files carries the id of its database.
const MARK: &str = "database-id";

/// Where a start looks, and where it puts what it finds.
pub(super) struct Places {
    pub(super) files: PathBuf,
    pub(super) incoming: PathBuf,
    lost: PathBuf,
}

/// What the store knows.
pub(super) struct KnownFiles {
    pub(super) found: PriorContents,
    /// Content that users have deleted.
    pub(super) deleted: HashSet<String>,
    /// Whether other processes write to the directory, too.
    pub(super) is_shared: bool,
}

/// Content by its id.
struct Content {
    id: String,
    path: PathBuf,
}

impl Places {
    pub(super) fn below(root: &Path) -> Self {
        let files = root.join("files");
        Self {
            incoming: files.join("incoming"),
            lost: root.join("lost-files"),
            files,
        }
    }

    /// Where the id of the database is.
    pub(super) fn mark(&self) -> PathBuf {
        self.files.join(MARK)
    }

    /// Refuses a database that cannot know any of the files, if there are any.
    pub(super) fn check_none(&self, database: &Path) -> Result<(), StoreError> {
        let here = contents(&self.files).map_err(StoreError::io("looking for files"))?;
        if here.is_empty() {
            return Ok(());
        }
        Err(self.refusal(database))
    }

    /// Refuses a database to which the files do not belong.
    pub(super) fn check(&self, found: &PriorContents) -> Result<(), StoreError> {
        let failed = || StoreError::io("looking for files");
        let here = contents(&self.files).map_err(failed())?;
        let away = contents(&self.lost).map_err(failed())?;
        match self.are_of(found, &here, &away).map_err(failed())? {
            true => Ok(()),
            false => Err(self.refusal(&found.store.place)),
        }
    }

    /// Tidies up the files, or refuses if they belong to another database.
    pub(super) fn tidy(&self, known: &KnownFiles) -> Result<(), StoreError> {
        let failed = || StoreError::io("putting the files in order");
        for dir in [&self.files, &self.incoming] {
            fs::create_dir_all(dir).map_err(failed())?;
            make_private(dir);
        }
        let here = contents(&self.files).map_err(failed())?;
        let away = contents(&self.lost).map_err(failed())?;
        if !self.are_of(&known.found, &here, &away).map_err(failed())? {
            return Err(self.refusal(&known.found.store.place));
        }
        self.sort(known, here, away).map_err(failed())
    }

    /// Whether the files belong to this database. A database that knows some of them is at least a copy of theirs; one
    /// with the same id is theirs even if it was copied before there were files.
    fn are_of(
        &self,
        known: &PriorContents,
        here: &[Content],
        away: &[Content],
    ) -> io::Result<bool> {
        let is_known = |content: &Content| known.files.contains(&content.id);
        if here.is_empty() || here.iter().chain(away).any(is_known) {
            return Ok(true);
        }
        Ok(match fs::read_to_string(self.files.join(MARK)) {
            Ok(mark) => !known.store.id.is_empty() && mark.trim() == known.store.id,
            // Older than marks: a database with chats is assumed to be theirs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => !known.store.is_empty,
            Err(error) => return Err(error),
        })
    }

    fn sort(&self, known: &KnownFiles, here: Vec<Content>, away: Vec<Content>) -> io::Result<()> {
        let mark = self.mark();
        if fs::read_to_string(&mark).ok().as_deref() != Some(&known.found.store.id) {
            // In one piece: another process that starts would take a part of it for another database's.
            let mut written = NamedTempFile::new_in(&self.incoming)?;
            written.write_all(known.found.store.id.as_bytes())?;
            written.persist(&mark)?;
            sync_dir(&self.files)?;
        }
        make_private(&mark);
        let (mut lost, mut found, mut deleted) = (0_usize, 0_usize, 0_usize);
        for content in away {
            if known.deleted.contains(&content.id) {
                deleted += usize::from(remove(&content.path)?);
            } else if known.found.files.contains(&content.id) {
                found += usize::from(shift(&content, &self.files)?);
            }
        }
        for content in here {
            if known.found.files.contains(&content.id) {
                continue;
            }
            if known.deleted.contains(&content.id) {
                deleted += usize::from(remove(&content.path)?);
            } else if !(known.is_shared && is_young(&content.path)) {
                lost += usize::from(shift(&content, &self.lost)?);
            }
        }
        // Unfinished uploads: no client was informed that they are stored.
        for entry in fs::read_dir(&self.incoming)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".tmp")
                && is_file(&entry)?
                && !(known.is_shared && is_young(&entry.path()))
            {
                remove(&entry.path())?;
            }
        }
        let place = self.lost.display();
        if lost > 0 {
            tracing::warn!(
                "{lost} files are not known to the database {}; they were moved to {place}, and are \
                 restored by a start with a database that knows them",
                known.found.store.place.display()
            );
        }
        if found > 0 {
            tracing::info!("{found} files that the database knows were restored from {place}");
        }
        if deleted > 0 {
            tracing::info!("the content of {deleted} files of deleted chats was removed");
        }
        Ok(())
    }

    fn refusal(&self, database: &Path) -> StoreError {
        StoreError::OtherFiles {
            files: self.files.clone(),
            database: database.to_owned(),
        }
    }
}

/// Whether somebody may be about to use it.
fn is_young(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|found| found.modified());
    // What is gone, or from the future, is left alone.
    let age = modified.ok().and_then(|at| at.elapsed().ok());
    age.is_none_or(|age| age < GRACE)
}

/// Removes a file. Another process may be tidying up as well, and be faster: then it is not ours to count.
fn remove(path: &Path) -> io::Result<bool> {
    unless_gone(fs::remove_file(path)).map(|removed| removed.is_some())
}

/// Whether it is a file. Some file systems are asked again for this, and it may be gone meanwhile.
fn is_file(entry: &fs::DirEntry) -> io::Result<bool> {
    let kind = unless_gone(entry.file_type())?;
    Ok(kind.is_some_and(|kind| kind.is_file()))
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// All content under a directory. Foreign files are skipped.
fn contents(dir: &Path) -> io::Result<Vec<Content>> {
    let mut found = Vec::new();
    let shelves = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        shelves => shelves?,
    };
    for shelf in shelves {
        let shelf = shelf?;
        if !shelf.file_type()?.is_dir() {
            continue;
        }
        make_private(&shelf.path());
        for entry in fs::read_dir(shelf.path())? {
            let entry = entry?;
            if let Some(id) = entry.file_name().to_str().filter(|name| is_id(name))
                && is_file(&entry)?
            {
                found.push(Content {
                    id: id.to_owned(),
                    path: entry.path(),
                });
            }
        }
    }
    Ok(found)
}

/// Moves content to another directory. Nothing there is overwritten; what cannot be moved stays and is logged.
fn shift(content: &Content, to: &Path) -> io::Result<bool> {
    let place = place_in(to, &content.id);
    let shelf = place.parent().unwrap_or(to);
    fs::create_dir_all(shelf)?;
    make_private(to);
    make_private(shelf);
    if place.exists() {
        return Ok(false);
    }
    if let Err(error) = fs::rename(&content.path, &place) {
        let (from, to) = (content.path.display(), place.display());
        tracing::warn!(%error, "the file {from} cannot be moved to {to}; it stays");
        return Ok(false);
    }
    Ok(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::FileTimes;
    use std::sync::Barrier;
    use std::thread;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::store::Identity;

    #[test]
    fn what_another_process_may_just_have_written_stays() {
        let root = tempfile::tempdir().unwrap();
        let places = Places::below(root.path());
        let (young, old) = ("0".repeat(32), "1".repeat(32));
        let paths = [
            place_in(&places.files, &young),
            place_in(&places.files, &old),
            places.incoming.join(".tmpyoung"),
            places.incoming.join(".tmpold"),
        ];
        let hour = Duration::from_secs(60 * 60);
        for (path, age) in paths.iter().zip([hour, GRACE + hour, hour, GRACE + hour]) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = fs::File::create(path).unwrap();
            let times = FileTimes::new().set_modified(SystemTime::now() - age);
            file.set_times(times).unwrap();
        }
        places.tidy(&known_with(HashSet::new())).unwrap();
        let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
        assert_eq!(left, [true, false, true, false]);
        assert!(place_in(&places.lost, &old).exists());
    }

    #[test]
    fn processes_that_start_at_once_tidy_up_together() {
        const PROCESSES: usize = 4;
        let root = tempfile::tempdir().unwrap();
        let places = Places::below(root.path());
        let deleted: HashSet<String> = (0..400).map(|id| format!("{id:032x}")).collect();
        let old = SystemTime::now() - 2 * GRACE;
        for (number, id) in deleted.iter().enumerate() {
            let dir = [&places.files, &places.lost][number % 2];
            for path in [place_in(dir, id), places.incoming.join(format!(".tmp{id}"))] {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let times = FileTimes::new().set_modified(old);
                fs::File::create(path).unwrap().set_times(times).unwrap();
            }
        }
        let (known, at_once) = (known_with(deleted), Barrier::new(PROCESSES));
        thread::scope(|scope| {
            let tidy = || {
                at_once.wait();
                places.tidy(&known).unwrap();
            };
            let running: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(tidy)).collect();
            running
                .into_iter()
                .for_each(|tidied| tidied.join().unwrap());
        });
        assert!(contents(&places.files).unwrap().is_empty());
        assert!(contents(&places.lost).unwrap().is_empty());
        assert_eq!(fs::read_dir(&places.incoming).unwrap().count(), 0);
    }

    /// What a shared store knows that has no files but deleted ones.
    fn known_with(deleted: HashSet<String>) -> KnownFiles {
        KnownFiles {
            found: PriorContents {
                store: Identity {
                    id: "a".into(),
                    place: "b".into(),
                    is_empty: false,
                },
                files: HashSet::new(),
            },
            deleted,
            is_shared: true,
        }
    }
}
