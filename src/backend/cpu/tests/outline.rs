//! Long rows near a plane of few dimensions: most are told apart by their outline, and no answer is changed by that.

use super::*;

const NONE: &[(u32, u32)] = &[];
const SOME: &[(u32, u32)] = &[(2, 4), (50, 300)];

/// Screens and checks; how many pairs of panel and probe the outline has settled.
fn settled(
    rows: &Arc<Matrix>,
    probes: &Matrix,
    k: usize,
    (instructions, threads): (Instructions, usize),
) -> usize {
    let skips = [NONE, SOME].map(|ranges| RowSet::from_ranges(ranges.to_vec()));
    let asks: Vec<Ask<'_>> = (0..probes.rows()).map(|p| Ask { k, skip: &skips[p % 2] }).collect();
    let mut backend = backend(instructions, threads);
    let mut loaded = backend.load(rows).unwrap();
    let mut screened = Screened::default();
    let job = ScreenJob { probes, asks: &asks, attempt: 0 };
    loaded.screen(&job, &mut screened).unwrap();
    check(rows, &job, &screened);
    backend.scratch.borrow().sweep.settled()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Rows of one lie, of which some are repeated exactly, and probes that are rows, lie likewise or elsewhere.
    #[test]
    fn outlines_settle_most_pairs_and_change_no_answer(
        rows in 4000_usize..6000,
        dim in 256_usize..600,
        probes in 1_usize..9,
        k in 1_usize..9,
        seed in 0_u64..1_000_000,
        threads in 1_usize..3,
    ) {
        let rows = matrix(dim, (0..rows as u64).map(|row| vector(Lie::Flat, dim, row / 2 * 2, seed)));
        let rows = Arc::new(rows);
        let near = matrix(dim, (0..probes as u64).map(|p| vector(Lie::Flat, dim, 2 * p, seed)));
        let far = matrix(dim, (0..probes as u64).map(|p| vector(LIES[p as usize % LIES.len()], dim, p, seed + 1)));
        for kernel in Kernel::present() {
            let with = (kernel.instructions, threads);
            let pairs = probes * rows.rows().div_ceil(16);
            let found = settled(&rows, &near, k, with);
            prop_assert!(4 * found > pairs, "{} of {}", found, pairs);
            settled(&rows, &far, k, with);
        }
    }
}

/// What has no plane, and what has nothing else.
#[test]
fn any_rows_are_answered_right_and_only_what_is_flat_has_an_outline() {
    for (lie, has) in [
        (Lie::Flat, true),
        (Lie::Line, true),
        (Lie::Tied, true),
        (Lie::Everywhere, false),
        (Lie::Equal, false),
        (Lie::AllButEqual, false),
    ] {
        let dim = 320;
        let rows = Arc::new(matrix(dim, (0..3000).map(|row| vector(lie, dim, row, 3))));
        let probes = matrix(dim, (0..5).map(|p| vector(lie, dim, 7 * p, 3)));
        for kernel in Kernel::present() {
            let quantized = QuantizedRows::new(&rows, kernel);
            let plain = 3008 * (320 + 8) + 320 * 4;
            // An eighth of a byte a component, two numbers in one a row, the axes and the centre's shadow on them.
            let outline = 3008 * (32 + 4) + 32 * (320 + 1) * 4;
            assert_eq!(quantized.bytes(), plain + if has { outline } else { 0 }, "{lie:?}");
            settled(&rows, &probes, 8, (kernel.instructions, 2));
        }
    }
}

/// Where many rows pass, the outline is left aside: it settles little, and costs little.
#[test]
fn low_floors_leave_the_outline_aside() {
    let dim = 256;
    let rows = Arc::new(matrix(dim, (0..6000).map(|row| vector(Lie::Flat, dim, row, 3))));
    let probes = matrix(dim, (0..4).map(|p| vector(Lie::Everywhere, dim, p, 3)));
    for kernel in Kernel::present() {
        let found = settled(&rows, &probes, 300, (kernel.instructions, 1));
        assert!(found < 4 * 375 / 4, "{found}");
    }
}
