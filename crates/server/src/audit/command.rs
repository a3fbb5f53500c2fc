//! `adk-bridge audit`: the audit of a database is checked, or written as JSON lines, whether or not a bridge runs on it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use adk_bridge_protocol::wire::json;
use anyhow::{Context as _, bail};

use super::export::{Line, whole_audit};
use super::seal::{SealKey, SealMark};
use super::source::AuditTrail;
use super::verify::{Report, Verifier};
use crate::chat::now;
use crate::config::{Config, LogFormat, Overrides};
use crate::store::postgres::{PostgresConfig, PostgresStore};
use crate::store::sqlite::{DATABASE, SqliteAudit};
use crate::telemetry;

/// The exit status of an audit that does not hold, so that scripts can tell it from one that could not be read.
pub const DOES_NOT_HOLD: u8 = 3;

/// The environment variable of `audit.key`.
const KEY_VARIABLE: &str = "ADK_BRIDGE__AUDIT__KEY";
/// The longest line of an export: a row with the longest texts, or a seal over rows with many gaps.
const MAX_LINE: u64 = 64 * 1024 * 1024;
/// How often an audit is read again that a running bridge has shortened meanwhile.
const TIMES: u32 = 3;

/// Where an audit is.
enum Source {
    /// A database.
    Trail(Arc<dyn AuditTrail>),
    /// An export.
    File(PathBuf),
}

/// What the command line says.
pub struct Asked<'a> {
    /// A data directory, a SQLite database, an export, or `postgres://…`; by default what the configuration says.
    pub from: Option<&'a str>,
    pub config: Option<&'a Path>,
}

/// Checks an audit. `key_variables`: environment variables with keys that signed seals.
pub fn verify(
    asked: &Asked<'_>,
    mark: Option<SealMark>,
    key_variables: &[String],
) -> anyhow::Result<ExitCode> {
    telemetry::set_up(LogFormat::Text);
    let config = configuration(asked)?;
    let keys = keys(config.as_ref(), key_variables)?;
    let report = runtime()?.block_on(async {
        match open(asked.from, config.as_ref()).await? {
            Source::Trail(trail) => check_trail(trail, &keys, mark.as_ref()).await,
            Source::File(path) => check_file(&path, &keys, mark),
        }
    })?;
    let holds = report.first.is_none();
    show(&report, &keys)?;
    Ok(match holds {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DOES_NOT_HOLD),
    })
}

/// Writes the rows after one to standard output, or to a file.
pub fn export(asked: &Asked<'_>, after: u64, to: Option<&Path>) -> anyhow::Result<ExitCode> {
    telemetry::set_up(LogFormat::Text);
    let config = configuration(asked)?;
    runtime()?.block_on(async {
        let Source::Trail(trail) = open(asked.from, config.as_ref()).await? else {
            bail!("this is an export already; name a data directory or a database");
        };
        let mut to: Box<dyn std::io::Write> = match to {
            Some(path) => Box::new(File::create(path).context("the file cannot be written")?),
            None => Box::new(std::io::stdout().lock()),
        };
        let mut exported = whole_audit(trail, after, now());
        loop {
            let text = exported.next_text().await?;
            if text.is_empty() {
                break;
            }
            to.write_all(&text)
                .context("the audit was not written to its end")?;
        }
        to.flush()?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn check_trail(
    trail: Arc<dyn AuditTrail>,
    keys: &[SealKey],
    mark: Option<&SealMark>,
) -> anyhow::Result<Report> {
    let mut times = 0;
    loop {
        times += 1;
        let mut verifier = Verifier::new(keys, mark.cloned());
        let mut lines = whole_audit(trail.clone(), 0, now());
        loop {
            let some = lines.next().await?;
            if some.is_empty() {
                break;
            }
            for line in &some {
                verifier.line(line);
            }
        }
        let report = verifier.finish();
        let removed = trail.audit_state().await?.removed();
        // Old rows went while they were read.
        if report.first.is_none() || removed == report.removed || times == TIMES {
            return Ok(report);
        }
    }
}

fn check_file(path: &Path, keys: &[SealKey], mark: Option<SealMark>) -> anyhow::Result<Report> {
    let mut file = BufReader::new(File::open(path).context("the export cannot be read")?);
    let mut verifier = Verifier::new(keys, mark);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = (&mut file).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(verifier.finish());
        }
        number += 1;
        match read_line(&line) {
            Ok(line) => verifier.line(&line),
            Err(why) => verifier.unreadable(number, why),
        }
    }
}

/// A line of an export, or why it is none.
pub(super) fn read_line(line: &[u8]) -> Result<Line, String> {
    json::check(line).map_err(|error| error.to_string())?;
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

fn show(report: &Report, keys: &[SealKey]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "rows    {}", report.rows)?;
    if report.unchained > 0 {
        write!(out, ", {} of them not chained", report.unchained)?;
    }
    if report.removed > 0 {
        write!(
            out,
            "; those through {} were removed because of their age",
            report.removed
        )?;
    }
    writeln!(out)?;
    if report.after > report.removed {
        writeln!(
            out,
            "after   {}: the rows through it are not here, and not checked. If you did not leave them out yourself (--after), \
             the beginning is missing",
            report.after
        )?;
    }
    if let Some((first, last)) = report.partly {
        writeln!(
            out,
            "partly  the seal over the rows from {first} to {last} covers earlier ones, which are not here: whether the chain of \
             these was rebuilt is not checked"
        )?;
    }
    match (&report.user, &report.newest) {
        (Some(user), _) => writeln!(
            out,
            "seals   none: these are the rows of one user, {:?}; whether rows are missing at the end of a chat, or a whole \
             chat, is not checked",
            user.as_str()
        )?,
        (None, None) => writeln!(
            out,
            "seals   none: whether rows are missing at the end of a chat, or a whole chat, is not checked"
        )?,
        (None, Some((mark, through))) => {
            writeln!(
                out,
                "seals   {}, through row {through}; {} rows are newer",
                report.seals, report.unsealed
            )?;
            writeln!(out, "newest  {mark}")?;
            match keys.is_empty() {
                true => writeln!(
                    out,
                    "signed  not checked: no key is given, so whoever can write to the database could have rebuilt all of it"
                )?,
                false => writeln!(out, "signed  {} of {} seals", report.signed, report.seals)?,
            }
        }
    }
    match &report.first {
        None => writeln!(out, "holds   yes")?,
        Some(first) => {
            writeln!(out, "holds   no: {first}")?;
            if report.problems > 1 {
                writeln!(
                    out,
                    "        {} more problems may follow from it",
                    report.problems - 1
                )?;
            }
        }
    }
    out.flush()
}

/// The configuration, if it says what the command line does not.
fn configuration(asked: &Asked<'_>) -> anyhow::Result<Option<Config>> {
    if asked.from.is_some() && asked.config.is_none() {
        return Ok(None);
    }
    let default = PathBuf::from(crate::serve::DEFAULT_FILE);
    let file = (asked.config).or_else(|| default.is_file().then_some(default.as_path()));
    Ok(Some(Config::load(file, &Overrides::default())?))
}

async fn open(from: Option<&str>, config: Option<&Config>) -> anyhow::Result<Source> {
    let place = match (from, config) {
        (Some(from), _) => from.to_owned(),
        (None, Some(config)) => {
            let url = config.store.url.as_deref();
            let path = url.map(|url| url.strip_prefix("sqlite:").unwrap_or(url));
            path.map_or_else(
                || config.server.data_dir.display().to_string(),
                str::to_owned,
            )
        }
        (None, None) => bail!("name a data directory, a database or an export"),
    };
    if place.starts_with("postgres://") || place.starts_with("postgresql://") {
        let store = PostgresStore::open_audit(PostgresConfig {
            url: &place,
            connections: 1,
            prepared_statements: Some(false),
        });
        return Ok(Source::Trail(Arc::new(store.await?)));
    }
    let mut path = PathBuf::from(&place);
    if path.is_dir() {
        path = path.join(DATABASE);
    }
    let mut head = [0; 16];
    let mut file =
        File::open(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let read = file.read(&mut head)?;
    if head[..read].starts_with(b"SQLite format 3\0") {
        return Ok(Source::Trail(Arc::new(SqliteAudit::open(&path).await?)));
    }
    Ok(Source::File(path))
}

fn keys(config: Option<&Config>, variables: &[String]) -> anyhow::Result<Vec<SealKey>> {
    let mut keys = Vec::new();
    for variable in variables {
        let key = std::env::var(variable)
            .with_context(|| format!("the environment variable {variable} has no key"))?;
        keys.push(key);
    }
    let configured = config.and_then(|config| config.audit.signing_key());
    keys.extend(configured.or_else(|| std::env::var(KEY_VARIABLE).ok()));
    Ok(keys.iter().map(|key| SealKey::new(key)).collect())
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")
}
