//! What the machine can do at all, measured in the run whose times are compared with it: read memory, and multiply.
//!
//! A search that screens rows in `int8` must read them once (a byte a component, and about twelve a row for what stands beside:
//! scale, norm of the error, mean) and make one multiplication and one addition a component of each pair of row and probe.
//! Neither can go faster than the machine reads and multiplies; the larger of the two times is the limit.

use std::time::Instant;

use aligned_vec::{AVec, ConstAlign};
use rayon::ThreadPool;
use serde::Serialize;

use super::report::median;
use crate::backend::cpu::{self, Peak};

/// Far more than any cache holds.
const BUFFER_BYTES: usize = 512 << 20;

/// How often the buffer is read.
const READS: usize = 15;

/// How often the peak of `int8` is measured.
const PEAKS: usize = 50;

/// Bytes that an `int8` row's components are padded to, and those that stand beside it.
const ROW_ALIGNMENT: usize = 64;
const BESIDE_ROW: usize = 12;

/// The size of a huge page, which the buffer is aligned to.
const HUGE_PAGE: usize = 2 << 20;

/// How much is compared with how much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) dim: usize,
    pub(super) probes: usize,
}

/// What this machine can do with so many threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    memory: Speed,
    int8: Rate,
    f32: Rate,
}

/// Bytes a second, in billions.
#[derive(Clone, Copy, Debug, Serialize)]
struct Speed {
    best: f64,
    median: f64,
}

/// Billions of operations a second, and the instructions that do them.
#[derive(Clone, Copy, Debug, Serialize)]
struct Rate {
    level: &'static str,
    gops: f64,
}

impl Rate {
    fn of(peak: Peak) -> Self {
        Self { level: peak.instructions, gops: peak.ops_per_s / 1e9 }
    }
}

/// The least time that a search can take, and how near it came; times in milliseconds.
#[derive(Debug, Serialize)]
pub(super) struct Limits {
    /// Memory read by all threads at once.
    memory_gb_per_s: Speed,
    /// Operations in registers, two a multiply-add, by all threads at once.
    int8: Rate,
    f32: Rate,
    /// What an `int8` screen reads.
    int8_bytes: usize,
    /// That, at the best speed of memory.
    memory_ms: f64,
    /// All multiplications and additions, at the peak of `int8`.
    arithmetic_ms: f64,
    /// The larger of the two.
    limit_ms: f64,
    limited_by: Limiting,
    /// The median time by the limit.
    times_limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Limiting {
    Memory,
    Arithmetic,
}

/// Measures what so many threads can do.
pub(super) fn measure(threads: usize) -> anyhow::Result<Machine> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let memory = read_speed(&pool);
    // The fastest counts: nothing makes a processor faster than it is. With the best instructions there are, whatever scans use.
    let mut int8 = cpu::peak(threads, None)?;
    for _ in 1..PEAKS {
        let peak = cpu::peak(threads, None)?;
        if peak.ops_per_s > int8.ops_per_s {
            int8 = peak;
        }
    }
    Ok(Machine { memory, int8: Rate::of(int8), f32: Rate::of(cpu::peak_f32(threads)) })
}

/// How fast so many threads read memory, in billions of bytes a second.
pub(in crate::cli) fn memory_gb_per_s(threads: usize) -> anyhow::Result<f64> {
    Ok(read_speed(&rayon::ThreadPoolBuilder::new().num_threads(threads).build()?).best)
}

/// Sums a buffer again and again.
fn read_speed(pool: &ThreadPool) -> Speed {
    let words = BUFFER_BYTES / size_of::<u64>();
    let mut buffer: AVec<u64, ConstAlign<HUGE_PAGE>> = AVec::with_capacity(HUGE_PAGE, words);
    prefer_huge_pages(&mut buffer);
    // Written word by word: pages that nobody wrote to are all one page of zeros, and in the cache.
    (0..words as u64).for_each(|word| buffer.push(word.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let share = words.div_ceil(pool.current_num_threads());
    let read = || {
        let started = Instant::now();
        let sums = pool.broadcast(|thread| {
            let mine = buffer.chunks(share).nth(thread.index()).unwrap_or_default();
            mine.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word))
        });
        std::hint::black_box(sums);
        BUFFER_BYTES as f64 / started.elapsed().as_secs_f64() / 1e9
    };
    read();
    let speeds: Vec<f64> = (0..READS).map(|_| read()).collect();
    Speed { best: speeds.iter().copied().fold(0.0, f64::max), median: median(speeds) }
}

/// Asks for huge pages, which a fast reader of much memory would use; small ones, where the system has no others, do too.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the kernel takes an address")]
fn prefer_huge_pages(buffer: &mut AVec<u64, ConstAlign<HUGE_PAGE>>) {
    let bytes = buffer.capacity() * size_of::<u64>();
    // SAFETY: the range is the buffer's own memory, begins on a page, and the advice changes nothing that is stored there.
    let advised =
        unsafe { rustix::mm::madvise(buffer.as_mut_ptr().cast(), bytes, rustix::mm::Advice::LinuxHugepage) };
    if let Err(error) = advised {
        tracing::debug!(%error, "no huge pages");
    }
}

/// What other systems do with large blocks is their own affair.
#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_: &mut AVec<u64, ConstAlign<HUGE_PAGE>>) {}

impl Machine {
    /// What that means for a search of this size, which took this long.
    pub(super) fn of(self, size: Size, median_ms: f64) -> Limits {
        let int8_bytes = size.rows * (size.dim.next_multiple_of(ROW_ALIGNMENT) + BESIDE_ROW);
        let operations = 2.0 * size.rows as f64 * size.probes as f64 * size.dim as f64;
        let memory_ms = int8_bytes as f64 / self.memory.best / 1e6;
        let arithmetic_ms = operations / self.int8.gops / 1e6;
        let limit_ms = memory_ms.max(arithmetic_ms);
        Limits {
            memory_gb_per_s: self.memory,
            int8: self.int8,
            f32: self.f32,
            int8_bytes,
            memory_ms,
            arithmetic_ms,
            limit_ms,
            limited_by: if memory_ms > arithmetic_ms { Limiting::Memory } else { Limiting::Arithmetic },
            times_limit: median_ms / limit_ms,
        }
    }
}

impl Limits {
    /// The limits as lines of a table.
    pub(super) fn lines(&self) -> [[String; 2]; 3] {
        let Self { memory_gb_per_s: memory, int8, f32, limit_ms, times_limit, .. } = self;
        let machine = format!(
            "memory {:.1} GB/s (median {:.1}), int8 {:.0} GOP/s ({}), f32 {:.0} GFLOP/s ({})",
            memory.best, memory.median, int8.gops, int8.level, f32.gops, f32.level
        );
        let by = match self.limited_by {
            Limiting::Memory => "memory",
            Limiting::Arithmetic => "arithmetic",
        };
        let limits = format!(
            "int8 by memory {:.3} ms ({:.1} MB), by arithmetic {:.3} ms",
            self.memory_ms,
            self.int8_bytes as f64 / 1e6,
            self.arithmetic_ms
        );
        let distance = format!("{times_limit:.2} x the limit of {limit_ms:.3} ms, which {by} sets");
        [("machine", machine), ("limits", limits), ("distance", distance)]
            .map(|(name, text)| [name.to_owned(), text])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_two_times_is_the_limit() {
        let rate = |gops| Rate { level: "made", gops };
        let machine =
            Machine { memory: Speed { best: 20.0, median: 10.0 }, int8: rate(1000.0), f32: rate(100.0) };
        // 1000 rows of 128 + 12 bytes at 20 GB/s; 2 x 1000 x 128 operations a probe at 1000 GOP/s.
        let one = machine.of(Size { rows: 1000, dim: 100, probes: 1 }, 0.014);
        assert_eq!((one.int8_bytes, one.limited_by), (140_000, Limiting::Memory));
        assert!((one.memory_ms - 0.007).abs() < 1e-9 && (one.arithmetic_ms - 0.0002).abs() < 1e-9);
        assert!((one.limit_ms - 0.007).abs() < 1e-9 && (one.times_limit - 2.0).abs() < 1e-6);
        let many = machine.of(Size { rows: 1000, dim: 100, probes: 500 }, 0.3);
        assert_eq!(many.limited_by, Limiting::Arithmetic);
        assert!((many.limit_ms - 0.1).abs() < 1e-9 && (many.times_limit - 3.0).abs() < 1e-6);
    }
}
