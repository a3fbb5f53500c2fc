//! `adk-bridge fake-gemini`: the scripted Gemini as a separate server, for tests and demos.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::bail;

use crate::config::Span;

/// Serves until Ctrl-C. Any key is accepted, so only this machine is served.
#[cfg(feature = "demo")]
pub fn run(listen: SocketAddr, pace: Span, live_limit: Span) -> anyhow::Result<ExitCode> {
    use adk_bridge_demo::scripted_gemini::{Options, serve};
    use anyhow::Context as _;
    use tokio::net::TcpListener;

    if !listen.ip().is_loopback() {
        bail!("--listen: the scripted model does not check keys; listen on 127.0.0.1");
    }
    tokio::runtime::Runtime::new()
        .context("the runtime cannot be started")?
        .block_on(async {
            let listener = TcpListener::bind(listen)
                .await
                .with_context(|| format!("cannot listen on {listen}"))?;
            let stop = crate::shutdown::requested(crate::shutdown::HangUp::Stops)?;
            crate::serve::announce(listener.local_addr()?)?;
            let options = Options {
                pace: pace.0,
                live_limit: live_limit.0,
                ..Options::default()
            };
            serve(listener, options, stop).await?;
            Ok(ExitCode::SUCCESS)
        })
}

/// There is nothing to serve.
#[cfg(not(feature = "demo"))]
pub fn run(_listen: SocketAddr, _pace: Span, _live_limit: Span) -> anyhow::Result<ExitCode> {
    bail!("fake-gemini: {}", crate::agent_kinds::NO_DEMO)
}
