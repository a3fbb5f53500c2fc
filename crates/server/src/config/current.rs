//! A value of the configuration that a reload can replace.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// The current value; reading it takes no lock.
pub struct Current<T>(ArcSwap<T>);

impl<T: Copy> Current<T> {
    pub fn new(value: T) -> Self {
        Self(ArcSwap::from_pointee(value))
    }

    pub fn get(&self) -> T {
        **self.0.load()
    }

    /// What reads it from here on gets the new value.
    pub fn set(&self, value: T) {
        self.0.store(Arc::new(value));
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Current<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}
