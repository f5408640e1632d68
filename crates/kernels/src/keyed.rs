//! Counter-based random numbers: every value is a pure function of a key and a counter.
//!
//! The values of a stateful generator depend on the calls before. Here `Key::new(seed,
//! "dropout").with(epoch).with(layer)` identifies a stream and [`Key::at`] returns any position of it. Therefore
//! threads, ranks and node orders do not change results.
//!
//! A stream is SplitMix64 with random access; the key is its hashed initial state.
//!
//! ```
//! use halograph_kernels::keyed::Key;
//! let key = Key::new(7, "shuffle").with(3);
//! assert_eq!(key.at(10), key.at(10));
//! assert!(key.unit(0) < 1.0 && key.below(1, 6) < 6);
//! ```

/// 2^64 / golden ratio: the difference between the states of consecutive counters.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Computes the output function of SplitMix64: a bijection of `u64` in which every input bit affects every output bit.
#[inline]
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Identifies a random stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// Returns the stream for `purpose` with the user's `seed`.
    pub const fn new(seed: u64, purpose: &str) -> Self {
        let bytes = purpose.as_bytes();
        // The length first, so that no purpose equals a shorter one followed by words.
        let mut key = Key(mix(seed.wrapping_add(STEP))).with(bytes.len() as u64);
        let mut i = 0;
        while i < bytes.len() {
            key = key.with(bytes[i] as u64);
            i += 1;
        }
        key
    }

    /// Returns the sub-stream for `word`, e.g. an epoch, a layer or a vertex.
    #[inline]
    #[must_use]
    pub const fn with(self, word: u64) -> Self {
        Key(mix(self.0 ^ mix(word.wrapping_add(STEP))).wrapping_add(STEP))
    }

    /// Returns the 64 random bits at position `counter`.
    #[inline]
    pub const fn at(self, counter: u64) -> u64 {
        mix(self.0.wrapping_add(counter.wrapping_mul(STEP)))
    }

    /// Returns a uniform number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit(self, counter: u64) -> f64 {
        (self.at(counter) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniform integer in `0..n` (bias below n / 2^64). `n` must not be 0.
    #[inline]
    pub fn below(self, counter: u64, n: u64) -> u64 {
        debug_assert!(n > 0);
        ((self.at(counter) as u128 * n as u128) >> 64) as u64
    }

    /// Returns an approximately normal number with mean 0 and variance 1: the scaled sum of four 16-bit uniforms
    /// (Irwin–Hall distribution), in ±3.46.
    ///
    /// Integer arithmetic and one multiplication give the same bits on every platform.
    #[inline]
    pub fn approx_normal(self, counter: u64) -> f32 {
        let bits = self.at(counter);
        let sum = (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48);
        // Four uniforms on 0..=65535: mean 131070, variance 4 * (65536^2 - 1) / 12.
        const SCALE: f32 = 2.642_899_8e-5;
        (sum as i64 - 131_070) as f32 * SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u64 = 200_000;

    #[test]
    fn streams_are_reproducible_and_differ_by_seed_purpose_and_words() {
        let key = Key::new(1, "a");
        assert_eq!(key.at(5), Key::new(1, "a").at(5));
        let others = [
            Key::new(2, "a"),
            Key::new(1, "b"),
            key.with(0),
            key.with(1),
            key.with(0).with(1),
            key.with(1).with(0),
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(key.at(5), other.at(5), "stream {i} repeats the first");
            assert!(others[..i].iter().all(|k| k.at(5) != other.at(5)), "stream {i} repeats an earlier one");
        }
    }

    #[test]
    fn values_never_change() {
        // Generated datasets and training results depend on these bits.
        let key = Key::new(7, "split").with(3);
        assert_eq!(key.at(5), 0x0C5D_06CA_F034_D089);
        assert_eq!(
            (key.unit(5), key.below(5, 1000), key.approx_normal(5)),
            (0.048_294_472_260_937_53, 48, -0.298_383_38)
        );
    }

    #[test]
    fn unit_is_uniform() {
        let key = Key::new(3, "unit");
        let mut bins = [0u32; 20];
        for i in 0..N {
            bins[(key.unit(i) * 20.0) as usize] += 1;
        }
        let expected = N as f64 / 20.0;
        let chi2: f64 = bins.iter().map(|&b| (b as f64 - expected).powi(2) / expected).sum();
        assert!(chi2 < 43.8, "chi-squared {chi2} with 19 degrees of freedom (p < 0.001)");
    }

    #[test]
    fn below_returns_every_value() {
        let key = Key::new(4, "below");
        let mut seen = [false; 7];
        (0..1000).for_each(|i| seen[key.below(i, 7) as usize] = true);
        assert!(seen.iter().all(|&s| s));
    }

    #[test]
    fn approx_normal_has_mean_0_and_variance_1() {
        let key = Key::new(5, "bell");
        let (mut sum, mut squares) = (0.0, 0.0);
        for i in 0..N {
            let x = key.approx_normal(i) as f64;
            sum += x;
            squares += x * x;
        }
        assert!((sum / N as f64).abs() < 0.01);
        assert!((squares / N as f64 - 1.0).abs() < 0.01);
    }
}
