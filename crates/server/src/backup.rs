//! `adk-bridge backup`: a copy of the data directory, made while the bridge runs.
//!
//! ```text
//!   files ──▶ the database, as it is at one moment ──▶ files that came meanwhile ──▶ in place ──▶ checked
//!                         ▲                                        │
//!                         └── a chat was deleted in between ───────┘
//! ```
//!
//! Content is written before its row and removed after it, so a copy of the database whose files are all there is one that
//! the bridge could have stopped with. To restore it, start the bridge with the backup as its data directory. A backup can
//! be repeated in the same place: what it has is not copied again, and it is complete at every moment in between.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use crate::config::{Config, FilesPlace, LogFormat, Overrides};
use crate::files::{mark_below, place_below};
use crate::serve::file_of;
use crate::store::DataDir;
use crate::store::sqlite::{DATABASE, KnownFile, ReadOnly};
use crate::{credentials, secrets, telemetry};

/// What a backup carries, so that no other directory is taken for one.
const MARK: &str = "adk-bridge-backup";
/// The copy of the database until it is complete.
const DRAFT: &str = "adk-bridge.db-new";
/// How many files are asked for at once.
const PAGE: u32 = 1_000;
/// How often the database is copied if chats are deleted in between: each time only what came since the last copy is left.
const ROUNDS: usize = 10;

/// What a backup came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Summary {
    files: u64,
    bytes: u64,
    copied: u64,
    /// Content that is not at the source either.
    missing: u64,
    removed: u64,
}

pub fn run(target: &Path, file: Option<&Path>, overrides: &Overrides) -> anyhow::Result<ExitCode> {
    telemetry::set_up(LogFormat::Text);
    // Only the owner may read the copies.
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let config = Config::load(file_of(file).as_deref(), overrides)?;
    secrets::keep(&config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let (summary, note) = runtime.block_on(back_up(&config, target))?;
    let Summary {
        files,
        bytes,
        copied,
        missing,
        removed,
    } = summary;
    eprintln!(
        "{}: the database is sound and has {files} files ({bytes} bytes); {copied} were copied now, and {removed} of an earlier \
         backup removed",
        target.display()
    );
    if missing > 0 {
        eprintln!(
            "{missing} files are missing in the data directory, too: look for lost-files there, or an older backup"
        );
    }
    if let Some(note) = note {
        eprintln!("{note}");
    }
    eprintln!(
        "To restore it, copy it to a new directory, and start the bridge with --data-dir set to that{}.",
        match config.store.url {
            Some(_) => " and without store.url",
            None => "",
        }
    );
    Ok(ExitCode::SUCCESS)
}

async fn back_up(config: &Config, target: &Path) -> anyhow::Result<(Summary, Option<String>)> {
    if config.is_shared() {
        bail!(
            "the store is PostgreSQL: back it up with pg_dump --format=custom --schema=adk_bridge, and after that the files \
             (the directory or the bucket of files.url, with the bucket's own versions or a copy of all objects): files that \
             are newer than the dump do no harm"
        );
    }
    let data_dir = &config.server.data_dir;
    let database = config.sqlite_path(data_dir)?;
    let Some(mut live) = ReadOnly::open_to_copy(&database).await? else {
        bail!(
            "there is no database {}; check --config and --data-dir",
            database.display()
        );
    };
    let root = match config.files.place()? {
        FilesPlace::DataDir => Some(data_dir.clone()),
        FilesPlace::Directory(path) => Some(path),
        FilesPlace::Bucket { .. } => None,
    };
    let id = live.id().await?;
    let target = prepare(target, data_dir, root.as_deref(), &id)?;
    let at = |name: &str| target.path().join(name);

    let mut summary = Summary::default();
    if let Some(root) = &root {
        copy_known(&mut live, None, root, target.path(), &mut summary).await?;
    }
    let draft = at(DRAFT);
    let mut rounds = 0;
    loop {
        rounds += 1;
        live.copy_to(&draft)
            .await
            .with_context(|| format!("the database cannot be copied to {}", draft.display()))?;
        let Some(root) = &root else { break };
        summary.missing = 0;
        let mut copy = opened(&draft).await?;
        let is_whole = copy_known(
            &mut copy,
            Some(&mut live),
            root,
            target.path(),
            &mut summary,
        )
        .await;
        copy.close().await;
        if is_whole? {
            break;
        }
        if rounds == ROUNDS {
            bail!(
                "chats are deleted all the time, so that no copy is complete; run this again at a quieter moment"
            );
        }
    }
    live.close().await;
    let key = data_dir.join(credentials::KEY_FILE);
    if key.exists() {
        copy_file(&key, &at(credentials::KEY_FILE)).context("credentials.key cannot be copied")?;
    }
    write(&mark_below(target.path()), &id)?;
    fs::rename(&draft, at(DATABASE)).context("the copy of the database cannot be put in place")?;
    sync(target.path())?;

    let mut copy = opened(&at(DATABASE)).await?;
    let has_files = root.is_some();
    let checked = check(&mut copy, target.path(), has_files, &mut summary).await;
    copy.close().await;
    checked?;
    let note = (!has_files).then(|| {
        "The content of files is in the bucket of files.url, which this backup does not hold: keep its versions, or copy all \
         of its objects after this."
            .to_owned()
    });
    Ok((summary, note))
}

/// Takes the target into use, unless it is something else than a backup of this database.
fn prepare(
    target: &Path,
    data_dir: &Path,
    files: Option<&Path>,
    id: &str,
) -> anyhow::Result<DataDir> {
    let place = target.display();
    if target.is_file() {
        bail!(
            "{place} is a file; name a directory, which can be packed with any tool when the backup is made"
        );
    }
    let is_new = !target.exists() || fs::read_dir(target)?.next().is_none();
    fs::create_dir_all(target).with_context(|| format!("{place} cannot be made"))?;
    let real = target.canonicalize()?;
    for source in [Some(data_dir), files].into_iter().flatten() {
        let source = source.canonicalize();
        if source.is_ok_and(|source| real.starts_with(&source) || source.starts_with(&real)) {
            bail!(
                "{place} is in the data directory, or around it; name another place, best on another disk"
            );
        }
    }
    let mark = target.join(MARK);
    if is_new {
        let target = DataDir::open(target)?;
        write(&mark, id)?;
        return Ok(target);
    }
    match fs::read_to_string(&mark) {
        Ok(of) if of.trim() == id => {}
        Ok(_) => bail!("{place} is the backup of another database; name another place"),
        Err(_) => bail!("{place} is not empty and no backup; name a new directory"),
    }
    let log = target.join(format!("{DATABASE}-wal"));
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        bail!(
            "a bridge has used {place} as its data directory and left a log there; name another place"
        );
    }
    // A bridge that uses it has the lock.
    Ok(DataDir::open(target)?)
}

/// Copies the content of all files that a database knows. With `live`, says whether every one is there that the database
/// still has: a file may have been deleted since the copy was made.
async fn copy_known(
    database: &mut ReadOnly,
    mut live: Option<&mut ReadOnly>,
    root: &Path,
    target: &Path,
    summary: &mut Summary,
) -> anyhow::Result<bool> {
    let mut last = String::new();
    loop {
        let page = database.files_after(&last, PAGE).await?;
        let Some(end) = page.last() else {
            return Ok(true);
        };
        last.clone_from(&end.id);
        for KnownFile { id, bytes } in page {
            let to = place_below(target, &id);
            if fs::metadata(&to).is_ok_and(|found| found.len() == bytes) {
                continue;
            }
            match copy_file(&place_below(root, &id), &to) {
                Ok(()) => summary.copied += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if let Some(live) = &mut live {
                        if !live.has_file(&id).await? {
                            return Ok(false);
                        }
                        summary.missing += 1;
                    }
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("the file {id} cannot be copied"));
                }
            }
        }
    }
}

/// Reads the copy as a whole, counts its files, and removes those of an earlier backup that it does not know.
async fn check(
    copy: &mut ReadOnly,
    target: &Path,
    has_files: bool,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    if let Some(damage) = copy.damage().await? {
        bail!("the copy is damaged ({damage}); run adk-bridge doctor on the data directory");
    }
    let mut last = String::new();
    let mut absent = 0;
    loop {
        let page = copy.files_after(&last, PAGE).await?;
        let Some(end) = page.last() else { break };
        last.clone_from(&end.id);
        for KnownFile { id, bytes } in page {
            summary.files += 1;
            summary.bytes += bytes;
            let found = fs::metadata(place_below(target, &id));
            absent += u64::from(has_files && !found.is_ok_and(|found| found.len() == bytes));
        }
    }
    if absent > summary.missing {
        bail!(
            "{} files are not in the copy as the database knows them; run this again",
            absent - summary.missing
        );
    }
    let Some(files) = mark_below(target).parent().map(Path::to_path_buf) else {
        return Ok(());
    };
    for shelf in directories(&files)? {
        for entry in fs::read_dir(&shelf)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_known = match name.to_str() {
                Some(id) => copy.has_file(id).await?,
                None => false,
            };
            if !is_known {
                fs::remove_file(entry.path())?;
                summary.removed += 1;
            }
        }
    }
    Ok(())
}

fn directories(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

async fn opened(database: &Path) -> anyhow::Result<ReadOnly> {
    let opened = ReadOnly::open(database).await?;
    opened.context("the copy of the database is empty")
}

/// Copies a file. It is complete and on the disk before it has its name.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let directory = to.parent().unwrap_or(to);
    fs::create_dir_all(directory)?;
    let mut copy = tempfile::NamedTempFile::new_in(directory)?;
    io::copy(&mut source, &mut copy)?;
    copy.as_file().sync_all()?;
    copy.persist(to)?;
    sync(directory)
}

fn write(place: &Path, text: &str) -> anyhow::Result<()> {
    let directory = place.parent().unwrap_or(place);
    fs::create_dir_all(directory)?;
    fs::write(place, text)?;
    File::open(place)?.sync_all()?;
    Ok(sync(directory)?)
}

/// Makes the names in a directory durable. Systems on which a directory cannot be opened do so on their own.
fn sync(directory: &Path) -> io::Result<()> {
    match File::open(directory) {
        Ok(directory) => directory.sync_all(),
        Err(_) => Ok(()),
    }
}
