use std::time::Duration;

/// How long the calling thread of runs waited for others after the last part of its own: what a join costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joins {
    /// Bucket `i` counts waits of at least 2^i and less than 2^(i + 1) nanoseconds; the first one shorter waits, too, and the last one longer ones.
    buckets: [u64; Self::BUCKETS],
    nanos: u64,
}

impl Joins {
    /// Number of buckets: up to about a second.
    pub const BUCKETS: usize = 30;

    pub(crate) fn add(&mut self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let bucket = nanos.max(1).ilog2() as usize;
        self.buckets[bucket.min(Self::BUCKETS - 1)] += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// Number of runs.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Time waited in all.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The shortest and the longest wait of a bucket, and how many there were, for buckets from the first to the last that has any.
    pub fn histogram(&self) -> impl Iterator<Item = (Duration, Duration, u64)> + '_ {
        let used = |i: &usize| self.buckets[*i] > 0;
        let first = (0..Self::BUCKETS).find(used).unwrap_or(Self::BUCKETS);
        let last = (0..Self::BUCKETS).rfind(used).map_or(0, |i| i + 1);
        (first..last).map(|i| {
            let least = if i == 0 { 0 } else { 1 << i };
            (
                Duration::from_nanos(least),
                Duration::from_nanos(2 << i),
                self.buckets[i],
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_begins_and_ends_with_what_was_counted() {
        let mut joins = Joins::default();
        assert_eq!(joins.histogram().count(), 0);
        for nanos in [700, 900, 3000] {
            joins.add(Duration::from_nanos(nanos));
        }
        let nanos = |d: Duration| d.as_nanos();
        let found: Vec<_> = joins.histogram().map(|(a, b, n)| (nanos(a), nanos(b), n)).collect();
        assert_eq!(found, [(512, 1024, 2), (1024, 2048, 0), (2048, 4096, 1)]);
        assert_eq!((joins.count(), joins.waited().as_nanos()), (3, 4600));
    }

    #[test]
    fn waits_beyond_the_buckets_are_counted_in_the_outermost() {
        let mut joins = Joins::default();
        joins.add(Duration::ZERO);
        joins.add(Duration::MAX);
        let counts: Vec<u64> = joins.histogram().map(|(_, _, n)| n).collect();
        assert_eq!(
            (counts.first(), counts.last(), counts.len()),
            (Some(&1), Some(&1), Joins::BUCKETS)
        );
        let mut twice = joins.clone();
        twice.merge(&joins);
        assert_eq!(twice.count(), 4);
    }
}
