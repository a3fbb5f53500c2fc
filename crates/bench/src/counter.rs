//! Counts what a server executes, with valgrind's callgrind: instructions and system calls, by thread and by function.
//!
//! Counted work is the same on a quiet machine and on a busy one. The kernel's instructions are not counted, only its
//! calls, and the time that it took for them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::{AddAssign, Mul, Sub};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use crate::component::component;

/// Attached to one server by starting it under [`Counter::wrapper`].
#[derive(Debug)]
pub(crate) struct Counter {
    directory: TempDir,
    ended: AtomicU32,
}

/// What one function on one thread cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) instructions: f64,
    pub(crate) system_calls: f64,
    /// Reads of the clock: valgrind makes them calls of the kernel, which they are not otherwise.
    pub(crate) clock_reads: f64,
    /// The CPU time of the kernel for these calls. It is measured, not counted: it differs from run to run.
    pub(crate) kernel_nanos: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) thread: u32,
    pub(crate) component: String,
    pub(crate) function: String,
}

/// The cost of everything that was executed between two moments.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counts(BTreeMap<Place, Cost>);

impl Counter {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            directory: tempfile::tempdir()?,
            ended: AtomicU32::new(0),
        })
    }

    /// Why nothing can be counted on this machine, if so.
    pub(crate) fn obstacle() -> Option<&'static str> {
        let answers = |program: &str| {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null());
            command.stderr(Stdio::null()).status().is_ok()
        };
        let found = answers("valgrind") && answers("vgdb");
        (!found).then_some("valgrind is not installed")
    }

    /// The words before the command line of a program that is to be counted.
    pub(crate) fn wrapper(&self) -> Vec<OsString> {
        let mut file = OsString::from("--callgrind-out-file=");
        file.push(self.file(""));
        [
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            // Threads run one at a time; this lets all of them run.
            "--fair-sched=yes",
            "--instr-atstart=no",
            "--separate-threads=yes",
            "--collect-systime=nsec",
            "--compress-strings=no",
            "--compress-pos=no",
        ]
        .into_iter()
        .map(OsString::from)
        .chain([file])
        .collect()
    }

    pub(crate) fn begin(&self, process: u32) -> anyhow::Result<()> {
        if self.ended.load(Ordering::Relaxed) == 0 {
            tell(process, &["instrumentation", "on"])?;
        }
        tell(process, &["zero"])
    }

    /// What was executed since [`Self::begin`]. Counting goes on.
    pub(crate) fn end(&self, process: u32) -> anyhow::Result<Counts> {
        tell(process, &["dump"])?;
        let part = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let prefix = format!("counts.{part}-");
        let mut counts = Counts::default();
        for entry in std::fs::read_dir(self.directory.path())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(thread) = name.and_then(|name| name.strip_prefix(&prefix)) {
                counts.read(thread.parse()?, &path)?;
            }
        }
        ensure!(!counts.0.is_empty(), "valgrind wrote no counts");
        Ok(counts)
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.directory.path().join(format!("counts{suffix}"))
    }
}

/// Sends a command to the valgrind of a process, and waits until it was carried out.
fn tell(process: u32, words: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("vgdb")
        .arg(format!("--pid={process}"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("vgdb, a part of valgrind, cannot be started")?;
    if !output.status.success() {
        bail!(
            "valgrind did not take a command: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

impl Counts {
    /// Adds what callgrind wrote for one thread: what each function took itself, without what it called.
    fn read(&mut self, thread: u32, path: &Path) -> anyhow::Result<()> {
        let bytes = std::fs::read(path)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut object = "";
        let mut function = "";
        let mut is_of_called = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("ob=") {
                object = name;
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if line.starts_with("calls=") {
                is_of_called = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit()) {
                if std::mem::take(&mut is_of_called) {
                    continue;
                }
                let place = Place {
                    thread,
                    component: component(function, object),
                    function: function.to_owned(),
                };
                let cost = Cost::read(line)?;
                *self.0.entry(place).or_default() += match function.starts_with("clock_gettime") {
                    true => cost.of_clock(),
                    false => cost,
                };
            }
        }
        Ok(())
    }

    pub(crate) fn total(&self) -> Cost {
        self.sum_where(|_| true)
    }

    pub(crate) fn sum_where(&self, chosen: impl Fn(&Place) -> bool) -> Cost {
        let mut sum = Cost::default();
        for (_, cost) in self.0.iter().filter(|(place, _)| chosen(place)) {
            sum += *cost;
        }
        sum
    }

    /// The sums by what a place has in common with others.
    pub(crate) fn by<K: Ord>(&self, key: impl Fn(&Place) -> K) -> BTreeMap<K, Cost> {
        let mut sums = BTreeMap::new();
        for (place, cost) in &self.0 {
            *sums.entry(key(place)).or_insert_with(Cost::default) += *cost;
        }
        sums
    }

    pub(crate) fn add(&mut self, others: &Self) {
        for (place, cost) in &others.0 {
            *self.0.entry(place.clone()).or_default() += *cost;
        }
    }

    /// What is more in these counts than in the others.
    pub(crate) fn minus(&self, others: &Self) -> Self {
        let mut rest = self.clone();
        for (place, cost) in &others.0 {
            let mine = rest.0.entry(place.clone()).or_default();
            *mine = *mine - *cost;
        }
        rest
    }

    pub(crate) fn times(&self, factor: f64) -> Self {
        let scaled = self.0.iter();
        Self(
            scaled
                .map(|(place, cost)| (place.clone(), *cost * factor))
                .collect(),
        )
    }
}

impl Cost {
    /// A line of callgrind: the line of the source, then events; trailing zeros are left out.
    fn read(line: &str) -> anyhow::Result<Self> {
        let mut numbers = line.split(' ').skip(1).map(str::parse::<f64>);
        let mut next = || numbers.next().unwrap_or(Ok(0.0));
        let (instructions, system_calls, _elapsed) = (next()?, next()?, next()?);
        Ok(Self {
            instructions,
            system_calls,
            clock_reads: 0.0,
            kernel_nanos: next()?,
        })
    }

    fn of_clock(self) -> Self {
        Self {
            instructions: self.instructions,
            clock_reads: self.system_calls,
            ..Self::default()
        }
    }

    /// The smaller one of each number.
    pub(crate) fn least(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.min(other.instructions),
            system_calls: self.system_calls.min(other.system_calls),
            clock_reads: self.clock_reads.min(other.clock_reads),
            kernel_nanos: self.kernel_nanos.min(other.kernel_nanos),
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.system_calls += other.system_calls;
        self.clock_reads += other.clock_reads;
        self.kernel_nanos += other.kernel_nanos;
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            system_calls: self.system_calls - other.system_calls,
            clock_reads: self.clock_reads - other.clock_reads,
            kernel_nanos: self.kernel_nanos - other.kernel_nanos,
        }
    }
}

impl Mul<f64> for Cost {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self {
            instructions: self.instructions * factor,
            system_calls: self.system_calls * factor,
            clock_reads: self.clock_reads * factor,
            kernel_nanos: self.kernel_nanos * factor,
        }
    }
}
