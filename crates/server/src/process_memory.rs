//! How much memory this process uses, looked at now and then, and how much it may.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How old a figure may be. Looking takes some microseconds, and a turn grows by megabytes at most in this time.
const FRESH: Duration = Duration::from_millis(250);

/// Of its container's memory, how many fifths a process may use before no further turn begins. Answers to open questions may use
/// a tenth more; the rest is for turns to grow while they end, and for what the kernel counts besides, such as the buffers of
/// sockets and the programs of `tools.mcp`.
const FIFTHS: u64 = 4;
/// More than any machine has: how version 1 of control groups says that there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// At how many bytes no further turn begins: what is configured, or a share of what the container may use; none is no limit.
pub fn ceiling(configured: Option<u64>) -> Option<u64> {
    configured.or_else(|| Some(container_limit()? / 5 * FIFTHS))
}

/// How much memory the control group of this process may use, which is that of its container or service.
pub fn container_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_of(Path::new("/sys/fs/cgroup"), &groups)
}

/// The least limit of a group and those above it.
fn limit_of(root: &Path, groups: &str) -> Option<u64> {
    // HIERARCHY:CONTROLLERS:PATH, where version 2 names no controllers.
    let places = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        let is_memory = controllers.split(',').any(|it| it == "memory");
        match (controllers, is_memory) {
            ("", _) => Some((root.to_path_buf(), path, "memory.max")),
            (_, true) => Some((root.join("memory"), path, "memory.limit_in_bytes")),
            (_, false) => None,
        }
    });
    let files = places.flat_map(|(root, path, file)| {
        // In a container the path may be that of the machine, of which only the root is there.
        let own = root.join(path);
        let above = own.ancestors().take_while(|it| it.starts_with(&root));
        above.map(|it| it.join(file)).collect::<Vec<PathBuf>>()
    });
    let limits = files.filter_map(|file| {
        let limit = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        (1..NO_LIMIT).contains(&limit).then_some(limit)
    });
    limits.min()
}

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
        self.bytes_at(Instant::now())
    }

    fn bytes_at(&self, now: Instant) -> Option<u64> {
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

/// What it uses at this moment.
#[cfg(target_os = "linux")]
pub fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The system does not say.
#[cfg(not(target_os = "linux"))]
pub fn resident() -> Option<u64> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_above_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("memory.max", "max\n");
        write("system.slice/memory.max", "3000\n");
        write("system.slice/bridge.service/memory.max", "5000\n");
        write("free/memory.max", "max\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/docker/memory.limit_in_bytes", "4000\n");
        for (groups, limit) in [
            ("0::/system.slice/bridge.service\n", Some(3_000)),
            ("0::/system.slice\n", Some(3_000)),
            ("0::/free\n", None),
            ("0::/\n", None),
            ("", None),
            (
                "5:cpu,memory:/docker\n1:cpu:/system.slice\n0::/\n",
                Some(4_000),
            ),
            ("5:memory:/not/seen/here\n", None),
            ("5:memory:/docker\n0::/system.slice\n", Some(3_000)),
        ] {
            assert_eq!(limit_of(root.path(), groups), limit, "{groups}");
        }
    }

    #[test]
    fn what_is_configured_comes_first() {
        assert_eq!(ceiling(Some(7)), Some(7));
        let share = container_limit().map(|limit| limit / 5 * 4);
        assert_eq!(ceiling(None), share);
    }

    #[test]
    fn it_is_what_the_system_says() {
        let (memory, now) = (ProcessMemory::default(), Instant::now());
        let before = memory.bytes_at(now).unwrap();
        assert!((1 << 20..1 << 40).contains(&before), "{before}");
        let block = vec![1u8; 256 << 20];
        assert_eq!(memory.bytes_at(now), Some(before), "it is looked at rarely");
        assert!(memory.bytes_at(now + FRESH).unwrap() > before + (200 << 20));
        drop(block);
    }
}
