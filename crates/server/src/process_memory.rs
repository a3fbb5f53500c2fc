//! How much memory this process uses, looked at now and then.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How old a figure may be. Looking takes some microseconds, and a turn grows by megabytes at most in this time.
const FRESH: Duration = Duration::from_millis(250);

/// The memory of this process, as the operating system counts it.
#[derive(Debug, Default)]
pub struct ProcessMemory {
    looked: Mutex<Option<(Instant, Option<u64>)>>,
    #[cfg(test)]
    fixed: Option<u64>,
}

impl ProcessMemory {
    /// Bytes that are really in use; none where the system does not say.
    pub fn bytes(&self) -> Option<u64> {
        #[cfg(test)]
        if self.fixed.is_some() {
            return self.fixed;
        }
        let now = Instant::now();
        // Poisoning is ignored: the value is replaced whole.
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        match *looked {
            Some((at, bytes)) if now.saturating_duration_since(at) < FRESH => bytes,
            _ => {
                let bytes = resident();
                *looked = Some((now, bytes));
                bytes
            }
        }
    }

    #[cfg(test)]
    pub fn fixed(bytes: u64) -> Self {
        Self {
            fixed: Some(bytes),
            ..Self::default()
        }
    }
}

#[cfg(target_os = "linux")]
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(not(target_os = "linux"))]
fn resident() -> Option<u64> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_system_says() {
        let memory = ProcessMemory::default();
        let before = memory.bytes().unwrap();
        assert!((1 << 20..1 << 40).contains(&before), "{before}");
        let block = vec![1u8; 256 << 20];
        assert_eq!(memory.bytes(), Some(before), "it is looked at rarely");
        *memory.looked.lock().unwrap() = None;
        assert!(memory.bytes().unwrap() > before + (200 << 20));
        drop(block);
    }
}
