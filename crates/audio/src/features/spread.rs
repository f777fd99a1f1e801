//! Mean and deviation of each band over frames that come in parts, for sound that is too long to be kept (Welford 1962).

/// What is known of the frames so far, in `f64` and in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    count: f64,
    mean: Vec<f64>,
    /// Sums of squares of what differs from the mean.
    squares: Vec<f64>,
}

impl Spread {
    /// Of no frame, with so many bands.
    pub fn new(bins: usize) -> Spread {
        Spread {
            count: 0.0,
            mean: vec![0.0; bins],
            squares: vec![0.0; bins],
        }
    }

    /// Takes more frames `[frames, bins]`, as logarithms.
    pub fn add(&mut self, frames: &[f32]) {
        for frame in frames.chunks_exact(self.mean.len().max(1)) {
            self.count += 1.0;
            for ((&value, mean), squares) in frame.iter().zip(&mut self.mean).zip(&mut self.squares) {
                let before = f64::from(value) - *mean;
                *mean += before / self.count;
                *squares += before * (f64::from(value) - *mean);
            }
        }
    }

    /// Normalizes frames `[frames, bins]`: each value less the mean, divided by the deviation and `epsilon`.
    pub(super) fn normalize(&self, frames: &mut [f32], epsilon: f64) {
        let deviation = |squares: &f64| (squares / (self.count - 1.0).max(1.0)).sqrt() + epsilon;
        let deviations: Vec<f64> = self.squares.iter().map(deviation).collect();
        for frame in frames.chunks_exact_mut(self.mean.len().max(1)) {
            for ((value, mean), deviation) in frame.iter_mut().zip(&self.mean).zip(&deviations) {
                *value = ((f64::from(*value) - mean) / deviation) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_spread_of_the_whole() {
        let frames: Vec<f32> = (0..3 * 101).map(|i| ((i * i) % 17) as f32 * 0.3 - 11.0).collect();
        let mut whole = Spread::new(3);
        whole.add(&frames);
        let mut parts = Spread::new(3);
        frames.chunks(3 * 7).for_each(|part| parts.add(part));
        assert_eq!(parts, whole);
        for bin in 0..3 {
            let values = || frames.iter().skip(bin).step_by(3).map(|&x| f64::from(x));
            let mean = values().sum::<f64>() / 101.0;
            let deviation = (values().map(|x| (x - mean).powi(2)).sum::<f64>() / 100.0).sqrt();
            let mut one = frames[..3].to_vec();
            whole.normalize(&mut one, 1e-5);
            let expected = (f64::from(frames[bin]) - mean) / (deviation + 1e-5);
            assert!((f64::from(one[bin]) - expected).abs() < 1e-6, "{one:?}");
        }
    }
}
