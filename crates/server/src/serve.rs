//! `adk-bridge serve`: the bridge as a server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::config::{Config, Overrides};
use crate::server::Server;
use crate::transport::page;
use crate::{allocator, shutdown, telemetry};

/// The file that is read if none is named and it exists.
const DEFAULT_FILE: &str = "adk-bridge.toml";

/// Threads for files and large JSON. Each reserves a stack and, while it works, memory; further work is queued.
const MAX_BLOCKING: usize = 64;

pub fn run(file: Option<&Path>, overrides: &Overrides) -> anyhow::Result<ExitCode> {
    telemetry::set_up();
    let default = PathBuf::from(DEFAULT_FILE);
    let file = file.or_else(|| default.is_file().then_some(default.as_path()));
    let config = Config::load(file, overrides)?;
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

/// What the person who starts the server needs to know.
fn banner(server: &Server) {
    let config = server.config();
    eprintln!("adk-bridge {}", env!("CARGO_PKG_VERSION"));
    let agents = server.agents();
    for agent in &agents {
        let id = match agents.as_slice() {
            [_] => String::new(),
            _ => format!("{}: ", agent.id),
        };
        match &agent.model {
            Some(model) => eprintln!("  agent      {id}{}, model {model}", agent.name),
            None => eprintln!("  agent      {id}{:?}, kind {}", agent.name, agent.kind),
        }
        if let Some(traits) = &agent.server {
            let prefix = traits.prefix().map(|prefix| format!(", below /{prefix}"));
            eprintln!("  server     {id}{traits}{}", prefix.unwrap_or_default());
            for limitation in &agent.limitations {
                eprintln!("             it cannot {limitation}");
            }
        } else if agent.kind == "adk" {
            eprintln!("  server     {id}not there yet");
        }
    }
    for note in server.agent_notes() {
        eprintln!("  attention  {note}");
    }
    eprintln!("  data       {}", server.data_dir().display());
    if page::is_built() {
        eprintln!("  page       http://{}/", server.address());
    } else {
        eprintln!("  page       not in this build; `cargo xtask run` builds it");
    }
    match config.auth.api_keys.len() {
        0 => eprintln!("  keys       none: this machine only"),
        keys => eprintln!("  keys       {keys}"),
    }
    let open = server.reopened();
    if open > 0 {
        eprintln!("  resuming   {open} replies that a restart interrupted");
    }
}
