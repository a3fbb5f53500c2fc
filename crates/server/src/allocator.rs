//! Returns freed memory to the operating system.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub use glibc::{give_back, set_up};

/// Other systems need no help.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn set_up() {}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;
    use std::time::Duration;

    /// A block of at least this size gets its own mapping, which is unmapped when the block is freed; glibc's default.
    const MAPPED: c_int = 128 * 1024;
    /// The maximum number of heaps. Each reserves 64 MB of addresses; glibc would make eight for every core.
    const HEAPS: c_int = 8;
    /// How often to check whether much was freed.
    const PAUSE: Duration = Duration::from_secs(2);
    /// How much must have been freed before it is returned.
    const WORTH_IT: usize = 8 * 1024 * 1024;
    /// The thread does nothing but check.
    const STACK: usize = 64 * 1024;

    /// Must be called before anything large is allocated.
    ///
    /// By default, glibc raises the threshold for mapped blocks to the largest block that was ever freed. A long
    /// message is copied whole whenever it is stored; after the first time, the copies would come from the heap and
    /// leave holes of several megabytes there.
    pub fn set_up() {
        set(libc::M_MMAP_THRESHOLD, MAPPED);
        set(libc::M_ARENA_MAX, HEAPS);
    }

    /// From now on, returns freed small blocks to the system: glibc does so only for blocks at the end of a heap.
    pub fn give_back() {
        let thread = std::thread::Builder::new()
            .name("give-back".to_owned())
            .stack_size(STACK);
        let spawned = thread.spawn(|| {
            let mut least = free();
            loop {
                std::thread::sleep(PAUSE);
                let free = free();
                if free > least + WORTH_IT {
                    trim();
                    // It stays free, and is counted as free, but has no pages any more.
                    least = free;
                }
                least = least.min(free);
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "freed memory is not returned to the operating system");
        }
    }

    #[expect(
        unsafe_code,
        reason = "the one way to tell it; numbers go in, nothing is held"
    )]
    fn set(what: c_int, value: c_int) {
        // SAFETY: `mallopt` takes two numbers and may be called at any time; it refuses what it does not know.
        let done = unsafe { libc::mallopt(what, value) };
        debug_assert_eq!(
            done, 1,
            "glibc takes any limit up to 32 MB, and any number of heaps"
        );
    }

    /// The free bytes of all heaps.
    #[expect(unsafe_code, reason = "the one way to ask; a number comes out")]
    fn free() -> usize {
        // SAFETY: `mallinfo2` may be called by any thread at any time; it takes nothing and returns numbers.
        unsafe { libc::mallinfo2() }.fordblks
    }

    #[expect(unsafe_code, reason = "the one way to tell it; a number goes in")]
    fn trim() {
        // SAFETY: `malloc_trim` may be called by any thread at any time; it touches free blocks only.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::hint::black_box;

    const COPY: usize = 1024 * 1024;
    const COPIES: usize = 64;

    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: usize = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        kib * 1024
    }

    /// Other tests that run at the same time need far less memory than would be kept without this.
    #[test]
    fn what_large_messages_took_is_given_back() {
        set_up();
        drop(black_box(vec![1_u8; 2 * COPY]));
        let before = resident();
        let all: Vec<_> = (0..COPIES)
            .map(|_| (vec![1_u8; COPY], vec![1_u8; 64]))
            .collect();
        // A small block stays behind each large one, as it happens if many chats allocate at the same time.
        let small: Vec<_> = black_box(all).into_iter().map(|(_, small)| small).collect();
        let kept = resident().saturating_sub(before);
        drop(black_box(small));
        assert!(kept < COPIES * COPY / 4, "{kept} bytes are kept");
    }
}
