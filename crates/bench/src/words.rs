//! The words of the stream, and the checksum that proves that a reader got all of them.

/// The words repeat after this many deltas.
pub(crate) const CYCLE: usize = 1024;

const VOCABULARY: [&str; 16] = [
    "The",
    " bridge",
    " carries",
    " every",
    " word,",
    " whole and",
    " in order",
    ":\n\n- ",
    "**bold**",
    " \"quoted\"",
    " naïve",
    " 10 %",
    " of traffic",
    " – or so",
    " it seems",
    ".",
];

/// One delta: a few words, as a fast model sends them.
pub(crate) fn delta(index: usize) -> String {
    let index = index % CYCLE;
    (0..3 + index % 3)
        .map(|word| VOCABULARY[(index * 7 + word * 5 + index / 16) % VOCABULARY.len()])
        .collect()
}

/// Counts deltas and computes the checksum of their text, however it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) deltas: usize,
    /// How many questions for approval came.
    pub(crate) questions: usize,
    hash: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        // FNV-1a: the initial value here, the prime below.
        Self {
            deltas: 0,
            questions: 0,
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// What a reader must have after an answer of this many deltas.
    pub(crate) fn expected(deltas: usize) -> Self {
        let mut tally = Self::new();
        let cycle: Vec<String> = (0..CYCLE.min(deltas)).map(delta).collect();
        for index in 0..deltas {
            tally.add(&cycle[index % CYCLE]);
        }
        tally
    }

    /// What a reader must have that is asked whether a tool may run.
    pub(crate) fn of_question() -> Self {
        Self {
            questions: 1,
            ..Self::new()
        }
    }

    pub(crate) fn add(&mut self, text: &str) {
        self.deltas += 1;
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
