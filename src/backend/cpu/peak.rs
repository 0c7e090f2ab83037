//! What the processor's arithmetic can do at most: multiply-adds in registers, with no memory in the way.
//!
//! Each kernel runs chains of multiply-adds that do not wait for each other, more than the processor can have in flight, and each
//! chain's next step needs its last, so that the compiler can neither drop a step nor move one out of the loop.

use std::time::Instant;

use serde::Serialize;

/// Chains that run side by side: enough to hide a latency of six cycles at two instructions a cycle.
const CHAINS: usize = 12;

/// Steps of every chain between two looks at the clock.
const STEPS: usize = 1 << 20;

/// How often a peak is measured; the best counts, since nothing makes a processor faster than it is.
const ROUNDS: usize = 7;

/// Operations a second by all threads at once, two a multiply-add.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Peak {
    /// The instructions.
    pub level: &'static str,
    /// Billions of operations a second.
    pub gops: f64,
}

/// One way to multiply and add.
struct Kernel {
    level: &'static str,
    /// Multiply-adds of one step of one chain.
    lanes: usize,
    /// Runs so many steps of all chains, and answers what keeps it from being dropped.
    run: fn(usize) -> i64,
}

/// The most `int8` multiply-adds that so many threads do.
pub fn peak_int8(threads: usize) -> Peak {
    measure(threads, &int8())
}

/// The most `f32` multiply-adds that so many threads do.
pub fn peak_f32(threads: usize) -> Peak {
    measure(threads, &f32())
}

fn measure(threads: usize, kernel: &Kernel) -> Peak {
    let operations = (2 * kernel.lanes * CHAINS * STEPS * threads.max(1)) as f64;
    let round = || {
        let start = std::sync::Barrier::new(threads.max(1));
        let run = || {
            start.wait();
            let started = Instant::now();
            std::hint::black_box((kernel.run)(std::hint::black_box(STEPS)));
            started.elapsed()
        };
        let longest = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
            let mine = run();
            others.into_iter().filter_map(|other| other.join().ok()).fold(mine, std::cmp::Ord::max)
        });
        operations / longest.as_secs_f64() / 1e9
    };
    let gops = (0..ROUNDS).map(|_| round()).fold(0.0, f64::max);
    Peak { level: kernel.level, gops }
}

fn int8() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return Kernel { level: "avx2", lanes: 32, run: x86::run_int8_avx2 };
    }
    Kernel { level: "portable", lanes: 64, run: portable_int8 }
}

fn f32() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return Kernel { level: "avx512f", lanes: 16, run: x86::run_f32_avx512 };
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return Kernel { level: "avx2+fma", lanes: 8, run: x86::run_f32_fma };
        }
    }
    Kernel { level: "portable", lanes: 8, run: portable_f32 }
}

/// Vectors of as many bytes as the compiler likes, widened as it can.
fn portable_int8(steps: usize) -> i64 {
    let mut sums: [[i16; 64]; CHAINS] = std::array::from_fn(|chain| [chain as i16; 64]);
    let factor = std::hint::black_box([3_i8; 64]);
    for _ in 0..steps {
        for sum in &mut sums {
            for (lane, factor) in sum.iter_mut().zip(factor) {
                *lane = lane.wrapping_add(i16::from(*lane as i8).wrapping_mul(i16::from(factor)));
            }
        }
    }
    sums.iter().flatten().map(|lane| i64::from(*lane)).sum()
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
        __m256, __m256i, __m512, _mm_cvtsi128_si64, _mm_cvtss_f32, _mm256_add_epi16, _mm256_castps256_ps128,
        _mm256_castsi256_si128, _mm256_fmadd_ps, _mm256_maddubs_epi16, _mm256_set1_epi8, _mm256_set1_ps,
        _mm512_cvtss_f32, _mm512_fmadd_ps, _mm512_set1_ps,
    };

    use super::CHAINS;

    #[expect(unsafe_code, reason = "instructions that not every processor has")]
    pub(super) fn run_int8_avx2(steps: usize) -> i64 {
        // SAFETY: chosen only where the processor has AVX2.
        unsafe { int8_avx2(steps) }
    }

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

    /// A step: 32 products of bytes, added in pairs, and added to the chain's sums of 16 bits.
    #[target_feature(enable = "avx2")]
    fn int8_avx2(steps: usize) -> i64 {
        let factor = _mm256_set1_epi8(std::hint::black_box(3));
        let mut sums: [__m256i; CHAINS] = std::array::from_fn(|chain| _mm256_set1_epi8(chain as i8));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(*sum, factor));
            }
        }
        sums.iter()
            .fold(0, |total: i64, sum| total.wrapping_add(_mm_cvtsi128_si64(_mm256_castsi256_si128(*sum))))
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

    /// Less than one multiply-add in ten cycles would be a kernel that measures something else; more than 10^6 GOP/s one that the
    /// compiler saw through.
    #[test]
    fn peaks_are_what_a_processor_can_do() {
        for peak in [peak_int8(1), peak_f32(1), peak_int8(2), peak_f32(2)] {
            assert!(peak.gops > 0.1 && peak.gops < 1e6 && !peak.level.is_empty(), "{peak:?}");
        }
    }
}
