//! `adk-bridge check-config`: what is wrong with a configuration, all of it at once, and whether what it names can be reached.
//!
//! The exit code is 0 if nothing is wrong, 1 if the configuration cannot be used, 2 if something that it names cannot be
//! reached.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use adk_bridge_agents::agent::Agent as _;
use anyhow::Context as _;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::agent_kinds::{AgentKinds, adk};
use crate::agent_list;
use crate::auth;
use crate::config::{self, Config, ConfigError, FilesPlace, LogFormat, Overrides};
use crate::files;
use crate::findings::{self, Finding, Severity};
use crate::mcp::McpServers;
use crate::serve::file_of;
use crate::server::StartError;
use crate::store::postgres::PostgresStore;
use crate::store::sqlite;
use crate::{secrets, telemetry};

/// How long an agent may take to answer.
const REACH_TIME: Duration = Duration::from_secs(15);

/// The configuration cannot be used.
const UNUSABLE: u8 = 1;
/// Something that it names cannot be reached.
const UNREACHABLE: u8 = 2;

pub fn run(file: Option<&Path>, overrides: &Overrides, reaches: bool) -> anyhow::Result<ExitCode> {
    telemetry::set_up(LogFormat::Text);
    let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be started")?;
    runtime.block_on(async {
        let file = file_of(file);
        let (config, problems) = checked(file.as_deref(), overrides).await;
        let mut found: Vec<Finding> = problems.iter().map(Finding::of_config).collect();
        if !found.is_empty() {
            if reaches {
                let says = "nothing is reached for while the configuration cannot be used";
                found.push(Finding::warning("--reach", says));
            }
            findings::print(&mut found)?;
            return Ok(ExitCode::from(UNUSABLE));
        }
        let what = match &file {
            Some(file) => format!("{} can be used", file.display()),
            None => "there is no file; the defaults and the environment can be used".to_owned(),
        };
        found.push(Finding::fine("configuration", what));
        if reaches {
            found.extend(reach(&config).await);
        }
        findings::print(&mut found)?;
        Ok(match findings::worst(&found) {
            Severity::Problem => ExitCode::from(UNREACHABLE),
            Severity::Fine | Severity::Warning => ExitCode::SUCCESS,
        })
    })
}

/// The configuration as far as it can be read, and everything that is wrong with it. The start refuses the same.
pub(crate) async fn checked(
    file: Option<&Path>,
    overrides: &Overrides,
) -> (Config, Vec<ConfigError>) {
    let mut reading = Config::reading(file, overrides);
    let config = reading.config.clone();
    secrets::keep(&config);
    // First: whom connections trust is decided when their clients are made.
    let trust = config.tls.trust().err();
    let login = match auth::configured(&config) {
        Ok(login) => config.check_address(login.requires_credentials()).err(),
        Err(problem) => Some(problem),
    };
    let replica = config.is_shared().then(|| config.replica().err());
    for problem in trust.into_iter().chain(login).chain(replica.flatten()) {
        reading.judge(problem);
    }
    for error in agent_list::problems(AgentKinds::built_in(), &config).await {
        let error = match error {
            StartError::Config(error) => error,
            other => {
                let error = anyhow::Error::from(other);
                ConfigError::value("agent", format!("{error:#}"))
            }
        };
        reading.judge(error);
    }
    reading.into_parts()
}

/// Looks whether everything that the configuration names is there. Nothing is changed, and nothing is asked that costs.
pub(crate) async fn reach(config: &Config) -> Vec<Finding> {
    let agents = join_all(config.each_agent().iter().map(|it| reach_agent(config, it)));
    let (agents, logins, mcp, store, files) = tokio::join!(
        agents,
        auth::look(config),
        reach_mcp(config),
        reach_store(config),
        reach_files(config)
    );
    let mut found = agents;
    found.extend(logins);
    found.extend(mcp);
    found.push(store);
    found.extend(files);
    found
}

async fn reach_agent(config: &Config, settings: &config::Agent) -> Finding {
    let subject = format!("agent {}", settings.own_id());
    let own = config.of_agent(settings);
    let reached = async {
        if settings.apps.is_some() {
            let server = adk::lister(&own).await?;
            let apps = server.list_apps().await?;
            return Ok(format!("its ADK server answers, with {} apps", apps.len()));
        }
        let kinds = AgentKinds::built_in();
        let agent = kinds.construct(&own).await?;
        agent.reach().await?;
        Ok(match agent.user_tokens() {
            Some(_) => "it is asked with the tokens of its users, and was not tried".to_owned(),
            None => "it can be reached".to_owned(),
        })
    };
    match timeout(REACH_TIME, reached).await {
        Ok(Ok(says)) => Finding::fine(subject, says),
        Ok(Err(StartError::Agent(error))) => {
            let says = format!("{} ({})", error.message(), error.detail());
            Finding::problem(subject, says)
        }
        Ok(Err(error)) => Finding::problem(subject, format!("{:#}", anyhow::Error::from(error))),
        Err(_) => Finding::problem(
            subject,
            "it does not answer in time; look whether it runs, and whether agent.base_url is right",
        ),
    }
}

async fn reach_mcp(config: &Config) -> Vec<Finding> {
    if config.tools.mcp.is_empty() {
        return Vec::new();
    }
    let servers = match McpServers::start(config).await {
        Ok(servers) => servers,
        Err(error) => return vec![Finding::of_config(&error)],
    };
    let problems = servers.problems();
    servers.stop().await;
    match problems.is_empty() {
        true => vec![Finding::fine("tools.mcp", "all servers answer")],
        false => {
            let problems = problems.into_iter();
            problems
                .map(|says| Finding::problem("tools.mcp", says))
                .collect()
        }
    }
}

async fn reach_store(config: &Config) -> Finding {
    let subject = "store";
    if let Some(url) = config.store.url.as_deref().filter(|_| config.is_shared()) {
        return match PostgresStore::look(url).await {
            Ok(found) => Finding::fine(
                subject,
                format!(
                    "{} answers, and {}",
                    found.place,
                    migrations(found.pending, found.is_new)
                ),
            ),
            Err(error) => Finding::problem(subject, error),
        };
    }
    let data_dir = &config.server.data_dir;
    let path = match config.sqlite_path(data_dir) {
        Ok(path) => path,
        Err(error) => return Finding::of_config(&error),
    };
    match sqlite::inspect(&path, false).await {
        Ok(Some(found)) => Finding::fine(
            subject,
            format!(
                "{} can be read, and {}",
                path.display(),
                migrations(found.pending, false)
            ),
        ),
        Ok(None) => match nearest(data_dir) {
            Some(place) if is_writable(&place) => {
                Finding::fine(subject, format!("{} will be made", path.display()))
            }
            _ => Finding::problem(
                subject,
                format!(
                    "there is no database, and {} cannot be written to; correct server.data_dir",
                    data_dir.display()
                ),
            ),
        },
        Err(error) => Finding::problem(subject, error),
    }
}

pub(crate) fn migrations(pending: usize, is_new: bool) -> String {
    match (pending, is_new) {
        (_, true) => "gets its tables at the start".to_owned(),
        (0, _) => "its schema is up to date".to_owned(),
        (pending, _) => format!("the next start brings its schema up to date ({pending} steps)"),
    }
}

async fn reach_files(config: &Config) -> Option<Finding> {
    let subject = "files";
    match config.files.place() {
        Err(error) => Some(Finding::of_config(&error)),
        // It is the data directory, or will be made in it.
        Ok(FilesPlace::DataDir) => None,
        Ok(FilesPlace::Directory(path)) => Some(match nearest(&path) {
            Some(place) if is_writable(&place) => {
                Finding::fine(subject, format!("{} can be used", path.display()))
            }
            _ => Finding::problem(
                subject,
                format!(
                    "{} cannot be written to; correct files.url, or the rights of the directory",
                    path.display()
                ),
            ),
        }),
        Ok(FilesPlace::Bucket { .. }) => Some(match files::look_at_bucket(&config.files).await {
            Ok(url) => Finding::fine(subject, format!("{url} answers")),
            Err(error) => Finding::problem(subject, error),
        }),
    }
}

/// A place, or the nearest directory above it that exists.
pub(crate) fn nearest(path: &Path) -> Option<std::path::PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors()
        .find(|it| it.is_dir())
        .map(Path::to_path_buf)
}

/// Whether a file can be made there, which says more than its rights do.
pub(crate) fn is_writable(directory: &Path) -> bool {
    tempfile::tempfile_in(directory).is_ok()
}
