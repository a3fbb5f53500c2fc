//! The random numbers of tests and corpora: always the same for the same seed, on every machine.

use std::fmt::Debug;

/// SplitMix64, by Steele, Lea and Flood.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from zero up to `end`, which must be greater than zero.
    pub fn below<N>(&mut self, end: N) -> N
    where
        N: TryInto<u64, Error: Debug> + TryFrom<u64, Error: Debug>,
    {
        N::try_from(self.bits() % end.try_into().unwrap()).unwrap()
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn byte(&mut self) -> u8 {
        self.bits().to_le_bytes()[0]
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first numbers of the published generator: the seed that a test names must always mean the same.
    #[test]
    fn gives_the_published_numbers() {
        let mut random = Random::new(1_234_567);
        let numbers = [random.bits(), random.bits(), random.bits()];
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(numbers, published);
    }
}
