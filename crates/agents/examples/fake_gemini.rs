//! Runs the scripted Gemini as a server of its own: `fake_gemini [ADDRESS [PACE_IN_MS]] [-- COMMAND…]`.
//!
//! With a command it runs only as long as that, which gets the address as its last argument, and ends as that ended.

use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::time::Duration;

use adk_bridge_agents::demo::scripted_gemini::{Options, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut halves = arguments.splitn(2, |argument| argument == "--");
    let own = halves.next().unwrap_or_default();
    let command = halves.next().and_then(<[String]>::split_first);

    let address = own.first().map_or("127.0.0.1:0", String::as_str);
    let mut options = Options::default();
    if let Some(pace) = own.get(1) {
        options.pace = Duration::from_millis(pace.parse().map_err(io::Error::other)?);
    }
    let listener = tokio::net::TcpListener::bind(address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let Some((program, arguments)) = command else {
        let mut out = io::stdout();
        writeln!(out, "listening on {url}")?;
        out.flush()?;
        serve(listener, options, ended()).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let server = tokio::spawn(serve(listener, options, std::future::pending()));
    let mut command = Command::new(program);
    command.args(arguments).arg(url);
    let status = tokio::task::spawn_blocking(move || command.status()).await??;
    server.abort();
    Ok(ExitCode::from(u8::from(!status.success())))
}

/// Ready when the user has had enough. Without a signal handler the process is ended from outside.
async fn ended() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
