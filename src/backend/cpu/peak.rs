//! How fast this processor multiplies bytes, for judging how near to it a scan comes.

use std::time::{Duration, Instant};

use super::kernel::{Kernel, PORTABLE};
use super::{NoInstructions, kernel};
use crate::config::Instructions;

/// How long each thread multiplies in one measurement: short, so that some of several measurements are not interrupted by whatever else
/// the machine does. A peak taken too low would make scans look better than they are.
const LENGTH: Duration = Duration::from_millis(3);

/// Rounds between two looks at the clock.
const ROUNDS: u64 = 2_000;

/// A measured peak.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    /// The instructions used.
    pub instructions: &'static str,
    /// Operations a second of all threads together, a multiplication and an addition being two.
    pub ops_per_s: f64,
}

/// Multiplies bytes in registers on so many threads at once, with the very instructions that a scan uses; measures for about 3 ms.
pub fn peak(threads: usize, instructions: Option<Instructions>) -> Result<Peak, NoInstructions> {
    let kernel = kernel(instructions)?.unwrap_or(&PORTABLE);
    let ops_per_s = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| rate(kernel))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    });
    Ok(Peak { instructions: kernel.instructions.as_str(), ops_per_s })
}

fn rate(kernel: &Kernel) -> f64 {
    let started = Instant::now();
    let mut products = 0;
    while started.elapsed() < LENGTH {
        products += kernel.multiply_in_registers(ROUNDS);
    }
    2.0 * products as f64 / started.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_has_a_peak() {
        for present in Kernel::present() {
            let peak = peak(2, Some(present.instructions)).unwrap();
            // A tenth of the slowest machine worth the name, and a thousand times the fastest core.
            assert!(peak.ops_per_s > 1e8 && peak.ops_per_s < 1e15, "{peak:?}");
        }
    }
}
