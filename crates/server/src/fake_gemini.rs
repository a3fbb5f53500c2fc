//! `adk-bridge fake-gemini`: the scripted Gemini as a server of its own, for tests and demos.

use std::net::SocketAddr;
use std::process::ExitCode;

use adk_bridge_agents::demo::scripted_gemini::{Options, serve};
use anyhow::{Context as _, bail};
use tokio::net::TcpListener;

use crate::config::Span;
use crate::serve::{announce, shutdown};

/// Answers until Ctrl-C. Any key is taken, so only this machine is served.
pub fn run(listen: SocketAddr, pace: Span, live_limit: Span) -> anyhow::Result<ExitCode> {
    if !listen.ip().is_loopback() {
        bail!("--listen: the scripted model asks for no real key; listen on 127.0.0.1");
    }
    tokio::runtime::Runtime::new()
        .context("the runtime cannot be started")?
        .block_on(async {
            let listener = TcpListener::bind(listen)
                .await
                .with_context(|| format!("{listen} cannot be listened on"))?;
            announce(listener.local_addr()?)?;
            let options = Options {
                pace: pace.0,
                live_limit: live_limit.0,
                ..Options::default()
            };
            serve(listener, options, shutdown()).await?;
            Ok(ExitCode::SUCCESS)
        })
}
