//! `adk-bridge migrate-store`: a data directory becomes a PostgreSQL database.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use crate::config::{Files as FilesConfig, LogFormat};
use crate::files::{Copied, Files};
use crate::store::postgres::{PostgresConfig, PostgresStore};
use crate::store::transfer::{Transferred, directory_of, transfer};
use crate::store::{DataDir, Store};
use crate::telemetry;

/// Where the target is found if the command line does not name it: a password has no place in a list of processes.
pub const TARGET_VARIABLE: &str = "ADK_BRIDGE__STORE__URL";

/// Moves `from` to `to`, and copies the content of files to `files`, if that is given. Both places of files are what
/// `files.url` may be; by default they come from the data directory.
pub fn run(
    from: &Path,
    to: Option<&str>,
    files: Option<&str>,
    files_from: Option<&str>,
) -> anyhow::Result<ExitCode> {
    telemetry::set_up(LogFormat::Text);
    let named = to.map(str::to_owned);
    let Some(to) = named.or_else(|| std::env::var(TARGET_VARIABLE).ok()) else {
        bail!(
            "the target is missing; write postgres://USER@HOST/DATABASE, or set {TARGET_VARIABLE}"
        );
    };
    if !to.starts_with("postgres://") && !to.starts_with("postgresql://") {
        bail!("the target is not PostgreSQL; write postgres://USER@HOST/DATABASE");
    }
    // A place that is none is refused before anything is moved.
    let place = |url: Option<&str>| url.map(FilesConfig::elsewhere).transpose();
    let files_to = place(files).context("--files")?;
    let files_from = place(files_from).context("--files-from")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let moved = runtime
        .block_on(transfer(from, &to))
        .context("the store was not moved")?;
    report(&moved);
    match (files, files_to) {
        (Some(url), Some(files_to)) => {
            let files_from = files_from.unwrap_or_default();
            let copied = runtime
                .block_on(copy(from, &to, &files_from, &files_to))
                .context("the files were not copied, or not all; run this again")?;
            report_files(&copied, url);
        }
        _ => eprintln!(
            "The content of files is where it was. If that is {}, start the bridge with that data directory, or run this \
             again with --files WHERE.",
            directory_of(from).display()
        ),
    }
    eprintln!(
        "Logins are not moved: users of the page log in again, and logins at providers that were begun and not finished \
         must be begun again."
    );
    Ok(ExitCode::SUCCESS)
}

/// Copies the content of all files that the target knows. It may have been used since the store was moved there.
async fn copy(
    from: &Path,
    to: &str,
    files_from: &FilesConfig,
    files_to: &FilesConfig,
) -> anyhow::Result<Copied> {
    let data = DataDir::open(directory_of(from))?;
    let store = PostgresStore::open(PostgresConfig {
        url: to,
        connections: 1,
        prepared_statements: Some(false),
    });
    let store: Arc<dyn Store> = Arc::new(store.await?);
    let source = Files::open_source(files_from, &data, store.clone()).await?;
    let target = Files::open_configured(files_to, &data, store.clone(), u64::MAX).await?;
    // A bucket that cannot be reached was only logged.
    target.probe().await?;
    let copied = source.copy_all(&target).await?;
    store.close().await?;
    Ok(copied)
}

fn report(moved: &Transferred) {
    if moved.was_finished {
        eprintln!("The store was moved before; nothing is left to do. The target has:");
    }
    for (table, rows) in &moved.rows {
        eprintln!("{}: {rows}", table.replace('_', " "));
    }
    if moved.earlier > 0 && !moved.was_finished {
        eprintln!(
            "({} of these rows were moved by an earlier run)",
            moved.earlier
        );
    }
    if !moved.was_finished {
        eprintln!(
            "The target has as many rows as the source. Set store.url to it and start the bridge."
        );
    }
}

fn report_files(copied: &Copied, to: &str) {
    eprintln!(
        "content of files: {} copied ({} bytes), {} there already, {} missing",
        copied.files, copied.bytes, copied.present, copied.missing
    );
    if copied.missing > 0 {
        eprintln!(
            "What is missing was not at the source either. If it is elsewhere, run this again with --files-from WHERE."
        );
    }
    eprintln!("Set files.url to {to}.");
}
