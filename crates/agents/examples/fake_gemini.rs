//! Runs the scripted Gemini as a server of its own: `fake_gemini [ADDRESS] [PACE_IN_MS]`.

use std::io::Write;
use std::time::Duration;

use adk_bridge_agents::demo::scripted_gemini::{Options, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let mut options = Options::default();
    if let Some(pace) = arguments.next() {
        let pace = pace.parse().map_err(std::io::Error::other)?;
        options.pace = Duration::from_millis(pace);
    }
    let listener = tokio::net::TcpListener::bind(address).await?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on http://{}", listener.local_addr()?)?;
    out.flush()?;
    serve(listener, options, async {
        // Without a signal handler the process is ended from outside.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
    .await
}
