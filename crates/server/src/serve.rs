//! `adk-bridge serve`: the bridge as a server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use crate::config::{Config, ConfigError, LogFormat, Overrides};
use crate::reload::Reloader;
use crate::server::{Server, StartError};
use crate::shutdown::{HangUp, HangUps};
use crate::transport::page;
use crate::{allocator, shutdown, telemetry};

/// The file that is read if none is named and it exists.
pub(crate) const DEFAULT_FILE: &str = "adk-bridge.toml";

/// Threads for files and large JSON. Each reserves a stack and, while it works, memory; further work is queued.
const MAX_BLOCKING: usize = 64;

/// The configuration file: the one that is named, or the usual one, if it exists.
pub(crate) fn file_of(named: Option<&Path>) -> Option<PathBuf> {
    let default = || Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.is_file());
    named.map(Path::to_owned).or_else(default)
}

pub fn run(file: Option<&Path>, overrides: &Overrides) -> anyhow::Result<ExitCode> {
    let load = || Config::load(file_of(file).as_deref(), overrides);
    let config = load()?;
    telemetry::set_up(config.log.format);
    allocator::give_back();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING)
        .build()
        .context("the runtime cannot be started")?
        .block_on(serve(config, load))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    config: Config,
    load: impl Fn() -> Result<Config, ConfigError>,
) -> anyhow::Result<()> {
    // Only the owner may read the files that this process creates.
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let server = Server::builder().config(config).build().await?;
    banner(&server);
    let hang_up = HangUp::of_this_process();
    let stop = shutdown::requested(hang_up)?;
    let hang_ups = HangUps::from_now_on()?;
    let reloader = server.reloader();
    announce(server.address())?;
    let serving = server.serve_until(stop);
    if hang_up == HangUp::Stops {
        return Ok(serving.await?);
    }
    tokio::select! {
        served = serving => Ok(served?),
        never = reload(reloader, load, hang_ups) => match never {},
    }
}

/// Loads the configuration again whenever it is asked to. A bad one is reported, and changes nothing.
async fn reload(
    reloader: Arc<Reloader>,
    load: impl Fn() -> Result<Config, ConfigError>,
    mut hang_ups: HangUps,
) -> Infallible {
    loop {
        hang_ups.next().await;
        let reloaded = match load() {
            Ok(config) => reloader.reload(config).await,
            Err(error) => Err(StartError::Config(error)),
        };
        match reloaded {
            Ok(reloaded) => {
                tracing::info!("the configuration was loaded again; {reloaded}");
                if !reloaded.needs_restart.is_empty() {
                    let keys = reloaded.needs_restart.join(", ");
                    tracing::warn!("only a restart changes these keys: {keys}");
                }
            }
            Err(StartError::Config(error)) => {
                for problem in error.each() {
                    tracing::error!(
                        "the configuration was not loaded again, and stays as it was: {problem}"
                    );
                }
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::error!(
                    "the configuration was not loaded again, and stays as it was: {error:#}"
                );
            }
        }
    }
}

/// Prints, in a form that programs can wait for, that requests are accepted.
pub(crate) fn announce(address: SocketAddr) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    out.flush()
}

/// What the person who starts the server needs to know; a log of JSON has it as lines of its own.
fn banner(server: &Server) {
    let lines = banner_lines(server);
    match server.config().log.format {
        LogFormat::Text => lines.iter().for_each(|line| eprintln!("{line}")),
        LogFormat::Json => {
            for line in lines {
                let words: Vec<&str> = line.split_whitespace().collect();
                tracing::info!("{}", words.join(" "));
            }
        }
    }
}

fn banner_lines(server: &Server) -> Vec<String> {
    let config = server.config();
    let mut lines = vec![format!("adk-bridge {}", env!("CARGO_PKG_VERSION"))];
    let agents = server.agents();
    for agent in &agents {
        let id = match agents.as_slice() {
            [_] => String::new(),
            _ => format!("{}: ", agent.id),
        };
        match &agent.model {
            Some(model) => lines.push(format!("  agent      {id}{}, model {model}", agent.name)),
            None => lines.push(format!(
                "  agent      {id}{:?}, kind {}",
                agent.name, agent.kind
            )),
        }
        if let Some(traits) = &agent.server {
            let prefix = traits.prefix().map(|prefix| format!(", below /{prefix}"));
            lines.push(format!(
                "  server     {id}{traits}{}",
                prefix.unwrap_or_default()
            ));
            for limitation in &agent.limitations {
                lines.push(format!("             it cannot {limitation}"));
            }
        } else if agent.kind == "adk" {
            lines.push(format!("  server     {id}not there yet"));
        }
    }
    for note in server.agent_notes() {
        lines.push(format!("  attention  {note}"));
    }
    lines.push(format!("  data       {}", server.data_dir().display()));
    if page::is_built() {
        lines.push(format!("  page       http://{}/", server.address()));
    } else {
        lines.push("  page       not in this build; `cargo xtask run` builds it".to_owned());
    }
    match config.auth.api_keys.len() {
        0 => lines.push("  keys       none: this machine only".to_owned()),
        keys => lines.push(format!("  keys       {keys}")),
    }
    let open = server.reopened();
    if open > 0 {
        lines.push(format!(
            "  resuming   {open} replies that a restart interrupted"
        ));
    }
    lines
}
