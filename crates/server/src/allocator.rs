//! How freed memory goes back to the operating system.

/// A block of this size or more is mapped by itself, and unmapped when it is freed: where glibc begins by itself.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED: std::ffi::c_int = 128 * 1024;

/// To be called before anything large is allocated.
///
/// Left alone, glibc raises that limit to the largest block that was ever freed. A long message is copied whole
/// whenever it is stored; after the first time the copies would come from the heap, and stay there as holes of several
/// megabytes. Other systems do no such thing.
pub fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(
            unsafe_code,
            reason = "the one way to tell it; numbers go in, nothing is held"
        )]
        // SAFETY: `mallopt` takes two numbers and may be called at any time; it refuses what it does not know.
        let done = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED) };
        debug_assert_eq!(done, 1, "glibc takes any limit up to 32 MB");
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

    /// Other tests run beside this one and take some memory too: far less than what would stay.
    #[test]
    fn what_large_messages_took_is_given_back() {
        set_up();
        drop(black_box(vec![1_u8; 2 * COPY]));
        let before = resident();
        let all: Vec<_> = (0..COPIES)
            .map(|_| (vec![1_u8; COPY], vec![1_u8; 64]))
            .collect();
        // Something small stays behind each, as it does where many chats allocate at the same time.
        let small: Vec<_> = black_box(all).into_iter().map(|(_, small)| small).collect();
        let kept = resident().saturating_sub(before);
        drop(black_box(small));
        assert!(kept < COPIES * COPY / 4, "{kept} bytes are kept");
    }
}
