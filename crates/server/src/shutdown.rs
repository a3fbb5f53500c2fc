//! Waits until the process is asked to stop, or to load its configuration again.

/// What a hang-up asks for: the end of a terminal, or whoever sends SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangUp {
    Stops,
    Reloads,
}

impl HangUp {
    /// A server on a terminal ends with it. One without a terminal is sent the signal on purpose.
    pub fn of_this_process() -> Self {
        use std::io::IsTerminal as _;
        match std::io::stdin().is_terminal() {
            true => Self::Stops,
            false => Self::Reloads,
        }
    }
}

/// Ends when the process is asked to stop: by Ctrl-C, by the operating system, or by a terminal that is closed. No
/// request after this call is missed.
pub fn requested(hang_up: HangUp) -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hung_up.recv(), if hang_up == HangUp::Stops => {}
            }
        })
    }
    #[cfg(not(unix))]
    {
        let _ = hang_up;
        Ok(async {
            let _ = tokio::signal::ctrl_c().await;
        })
    }
}

/// The hang-ups from this call on.
pub struct HangUps {
    #[cfg(unix)]
    signals: tokio::signal::unix::Signal,
}

impl HangUps {
    pub fn from_now_on() -> std::io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            signals: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. Several that come at once count as one.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        if self.signals.recv().await.is_some() {
            return;
        }
        std::future::pending().await
    }
}
