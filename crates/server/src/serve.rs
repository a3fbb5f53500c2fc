//! `adk-bridge serve`: the bridge as a server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::config::{Config, LogFormat, Overrides};
use crate::server::Server;
use crate::transport::page;
use crate::{allocator, shutdown, telemetry};

/// The file that is read if none is named and it exists.
pub(crate) const DEFAULT_FILE: &str = "adk-bridge.toml";

/// Threads for files and large JSON. Each reserves a stack and, while it works, memory; further work is queued.
const MAX_BLOCKING: usize = 64;

pub fn run(file: Option<&Path>, overrides: &Overrides) -> anyhow::Result<ExitCode> {
    let default = PathBuf::from(DEFAULT_FILE);
    let file = file.or_else(|| default.is_file().then_some(default.as_path()));
    let config = Config::load(file, overrides)?;
    telemetry::set_up(config.log.format);
    allocator::give_back();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING)
        .build()
        .context("the runtime cannot be started")?
        .block_on(serve(config))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // Only the owner may read the files that this process creates.
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let server = Server::builder().config(config).build().await?;
    banner(&server);
    let stop = shutdown::requested()?;
    announce(server.address())?;
    server.serve_until(stop).await?;
    Ok(())
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
