//! How fast this processor multiplies and adds `f32`, beside what it does with bytes ([`peak`](mod@super::peak)).
//!
//! Each kernel runs chains of multiply-adds that do not wait for each other, more than the processor can have in flight, and each
//! chain's next step needs its last, so that the compiler can neither drop a step nor move one out of the loop.

use std::time::Instant;

use super::Peak;

/// Chains that run side by side: enough to hide a latency of six cycles at two instructions a cycle.
const CHAINS: usize = 12;

/// Steps of every chain between two looks at the clock.
const STEPS: usize = 1 << 20;

/// How often a peak is measured; the best counts, since nothing makes a processor faster than it is.
const ROUNDS: usize = 7;

/// One way to multiply and add.
struct Kernel {
    instructions: &'static str,
    /// Multiply-adds of one step of one chain.
    lanes: usize,
    /// Runs so many steps of all chains, and answers what keeps it from being dropped.
    run: fn(usize) -> i64,
}

/// Multiplies and adds in registers on so many threads at once, for some milliseconds.
pub fn peak_f32(threads: usize) -> Peak {
    let (kernel, threads) = (f32(), threads.max(1));
    let operations = (2 * kernel.lanes * CHAINS * STEPS * threads) as f64;
    let start = std::sync::Barrier::new(threads);
    let run = || {
        start.wait();
        let started = Instant::now();
        std::hint::black_box((kernel.run)(std::hint::black_box(STEPS)));
        started.elapsed()
    };
    let round = || {
        let longest = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
            let mine = run();
            others.into_iter().filter_map(|other| other.join().ok()).fold(mine, std::cmp::Ord::max)
        });
        operations / longest.as_secs_f64()
    };
    let ops_per_s = (0..ROUNDS).map(|_| round()).fold(0.0, f64::max);
    Peak { instructions: kernel.instructions, ops_per_s }
}

fn f32() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return Kernel { instructions: "avx512f", lanes: 16, run: x86::run_f32_avx512 };
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return Kernel { instructions: "avx2+fma", lanes: 8, run: x86::run_f32_fma };
        }
    }
    Kernel { instructions: "portable", lanes: 8, run: portable_f32 }
}

fn portable_f32(steps: usize) -> i64 {
    let mut sums: [[f32; 8]; CHAINS] = std::array::from_fn(|chain| [chain as f32; 8]);
    let (factor, term) = std::hint::black_box((0.999_f32, 0.001_f32));
    for _ in 0..steps {
        for lane in sums.iter_mut().flatten() {
            // Fused in one instruction where every processor has it; elsewhere the library's way would be slow.
            *lane = if cfg!(target_arch = "aarch64") {
                lane.mul_add(factor, term)
            } else {
                *lane * factor + term
            };
        }
    }
    sums.iter().flatten().map(|lane| *lane as i64).sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The kernels for x86-64.

    use std::arch::x86_64::{
        __m256, __m512, _mm_cvtss_f32, _mm256_castps256_ps128, _mm256_fmadd_ps, _mm256_set1_ps,
        _mm512_cvtss_f32, _mm512_fmadd_ps, _mm512_set1_ps,
    };

    use super::CHAINS;

    #[expect(unsafe_code, reason = "instructions that not every processor has")]
    pub(super) fn run_f32_fma(steps: usize) -> i64 {
        // SAFETY: chosen only where the processor has AVX2 and FMA.
        unsafe { f32_fma(steps) }
    }

    #[expect(unsafe_code, reason = "instructions that not every processor has")]
    pub(super) fn run_f32_avx512(steps: usize) -> i64 {
        // SAFETY: chosen only where the processor has AVX-512F.
        unsafe { f32_avx512(steps) }
    }

    #[target_feature(enable = "avx2,fma")]
    fn f32_fma(steps: usize) -> i64 {
        let (factor, term) = (std::hint::black_box(0.999), std::hint::black_box(0.001));
        let (factor, term) = (_mm256_set1_ps(factor), _mm256_set1_ps(term));
        let mut sums: [__m256; CHAINS] = std::array::from_fn(|chain| _mm256_set1_ps(chain as f32));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, term);
            }
        }
        sums.iter().map(|sum| _mm_cvtss_f32(_mm256_castps256_ps128(*sum)) as i64).sum()
    }

    #[target_feature(enable = "avx512f")]
    fn f32_avx512(steps: usize) -> i64 {
        let (factor, term) = (std::hint::black_box(0.999), std::hint::black_box(0.001));
        let (factor, term) = (_mm512_set1_ps(factor), _mm512_set1_ps(term));
        // Chains that begin alike would be computed once.
        let mut sums: [__m512; CHAINS] = std::array::from_fn(|chain| _mm512_set1_ps(chain as f32));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, term);
            }
        }
        sums.iter().map(|sum| _mm512_cvtss_f32(*sum) as i64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Less would be a kernel that measures something else, more one that the compiler saw through.
    #[test]
    fn the_peak_is_what_a_processor_can_do() {
        for threads in [1, 2] {
            let peak = peak_f32(threads);
            assert!(
                peak.ops_per_s > 1e8 && peak.ops_per_s < 1e15 && !peak.instructions.is_empty(),
                "{peak:?}"
            );
        }
    }
}
