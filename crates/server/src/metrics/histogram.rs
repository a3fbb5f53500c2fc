//! A histogram: how often a value was in each of a few ranges.
//!
//! Counting is two relaxed additions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many buckets a histogram may have: one more than there are bounds, since the last has none.
const BUCKETS: usize = 16;

/// The upper bounds of buckets, and what they count in.
pub(super) struct Buckets {
    bounds: &'static [u64],
    /// How many of the counted units make one of the unit that is shown.
    per_unit: u64,
}

/// Values, counted by their size.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Buckets {
    /// Times, with bounds in microseconds; they are shown in seconds.
    pub(super) const fn times(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() < BUCKETS);
        Self {
            bounds,
            per_unit: 1_000_000,
        }
    }

    pub(super) const fn counts(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() < BUCKETS);
        Self {
            bounds,
            per_unit: 1,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "it is shown to people")]
    fn shown(&self, value: u64) -> f64 {
        value as f64 / self.per_unit as f64
    }
}

impl Histogram {
    pub(super) fn count(&self, value: u64, buckets: &Buckets) {
        let bucket = buckets.bounds.partition_point(|limit| *limit < value);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    pub(super) fn time(&self, time: Duration, buckets: &Buckets) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.count(micros, buckets);
    }

    /// The bound of each bucket, and how many values are in it.
    pub(super) fn counts(&self, buckets: &Buckets) -> Vec<(String, u64)> {
        let bounds = buckets
            .bounds
            .iter()
            .map(|bound| buckets.shown(*bound).to_string());
        let bounds = bounds.chain(std::iter::once("+Inf".to_owned()));
        let counts = self.buckets.iter().map(|count| count.load(Relaxed));
        bounds.zip(counts).collect()
    }

    pub(super) fn sum(&self, buckets: &Buckets) -> f64 {
        buckets.shown(self.sum.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let buckets = Buckets::times(&[10_000, 25_000, 30_000_000]);
        let histogram = Histogram::default();
        for millis in [0, 10, 11, 30_000, 30_001, 90_000] {
            histogram.time(Duration::from_millis(millis), &buckets);
        }
        let counts = histogram.counts(&buckets);
        let counts: Vec<(&str, u64)> = counts
            .iter()
            .map(|(at, count)| (at.as_str(), *count))
            .collect();
        assert_eq!(counts, [("0.01", 2), ("0.025", 1), ("30", 1), ("+Inf", 2)]);
        assert!((histogram.sum(&buckets) - 150.022).abs() < 1e-9);
        let buckets = Buckets::counts(&[0, 1]);
        let histogram = Histogram::default();
        for count in [0, 1, 2] {
            histogram.count(count, &buckets);
        }
        let counts: Vec<u64> = histogram
            .counts(&buckets)
            .into_iter()
            .map(|it| it.1)
            .collect();
        assert_eq!(counts, [1, 1, 1]);
    }
}
