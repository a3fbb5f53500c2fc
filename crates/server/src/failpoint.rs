//! Failpoints: named moments at which a test can make the process die, as `kill -9` would.
//!
//! `ADK_BRIDGE_FAILPOINT=before-start` ends the process when it first reaches that moment, `before-start:2` when it
//! reaches it for the second time. All of this is behind the feature `failpoints`, which only the package's own tests
//! enable (see its dev-dependencies): a normal build neither reads the variable nor contains its name.

/// Marks a moment: `when` it is and the `step` that it belongs to. Does nothing without the feature.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn failpoint(_when: &str, _step: &str) {}

/// Marks a moment: `when` it is and the `step` that it belongs to. The process ends here if it was asked to.
#[cfg(feature = "failpoints")]
pub(crate) fn failpoint(when: &str, step: &str) {
    armed::reach(&format!("{when}-{step}"));
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    const VARIABLE: &str = "ADK_BRIDGE_FAILPOINT";

    struct Armed {
        name: String,
        /// How many passages are left, including the last one.
        left: AtomicU32,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let value = std::env::var(VARIABLE).ok()?;
        let (name, passages) = value.split_once(':').unwrap_or((&value, "1"));
        Some(Armed {
            name: name.to_owned(),
            // A number that cannot be read is never reached: the test that wrote it times out.
            left: AtomicU32::new(passages.parse().unwrap_or(0)),
        })
    });

    pub(super) fn reach(name: &str) {
        let armed = ARMED.as_ref().filter(|armed| armed.name == name);
        // Runs no destructors and flushes no buffers: everything that was not sent is lost.
        if armed.is_some_and(|armed| armed.left.fetch_sub(1, Ordering::SeqCst) == 1) {
            std::process::abort();
        }
    }
}
