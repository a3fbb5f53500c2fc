//! Failpoints: named moments at which a test can let the process die, as `kill -9` would.
//!
//! `ADK_BRIDGE_FAILPOINT=before-start` ends the process when it first comes to that moment, `before-start:2` when it comes
//! there for the second time. All of it is behind the feature `failpoints`, which only the package's own tests switch on
//! (see its dev-dependencies): a normal build neither reads the variable nor holds its name.

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
        /// How many passages are left, the deadly one included.
        left: AtomicU32,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let value = std::env::var(VARIABLE).ok()?;
        let (name, passages) = value.split_once(':').unwrap_or((&value, "1"));
        Some(Armed {
            name: name.to_owned(),
            // A number that cannot be read never comes: the test that wrote it waits in vain and says so.
            left: AtomicU32::new(passages.parse().unwrap_or(0)),
        })
    });

    pub(super) fn reach(name: &str) {
        let armed = ARMED.as_ref().filter(|armed| armed.name == name);
        // No destructor and no buffer gets a chance: what is not on its way is lost.
        if armed.is_some_and(|armed| armed.left.fetch_sub(1, Ordering::SeqCst) == 1) {
            std::process::abort();
        }
    }
}
