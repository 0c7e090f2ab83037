//! Generations that take over what the one before them had, on PoCL. They fail where PoCL is missing.

use std::sync::Arc;

use super::super::tests::{open, settings, unit_rows};
use super::super::tune::{check_candidates, exact_scores};
use crate::backend::{Ask, Backend, Former, Loaded, RowSet, ScreenJob, Screened};
use crate::config::OpenClSettings;
use crate::domain::{Kept, Matrix};

fn of(from: &[&Matrix], rows: impl Iterator<Item = (usize, usize)>) -> Arc<Matrix> {
    let mut matrix = Matrix::with_capacity(0, from[0].dim());
    rows.for_each(|(which, row)| matrix.push(from[which].row(row)));
    Arc::new(matrix)
}

fn screen(loaded: &mut dyn Loaded, probes: &Matrix, k: usize) -> Screened {
    let (skip, mut screened) = (RowSet::default(), Screened::default());
    let asks = vec![Ask { k, skip: &skip }; probes.rows()];
    loaded.screen(&ScreenJob { probes, asks: &asks, attempt: 0 }, &mut screened).unwrap();
    screened
}

fn ready(mut coming: Box<dyn crate::backend::Loading>) -> Box<dyn Loaded> {
    loop {
        if let Some(loaded) = coming.look() {
            return loaded.unwrap();
        }
    }
}

#[test]
fn a_later_generation_takes_over_what_stays() {
    let (old, fresh) = (unit_rows(500, 24, 1), unit_rows(100, 24, 2));
    let probes = unit_rows(9, 24, 3);
    let former = of(&[&old], (0..500).map(|row| (0, row)));
    // The first ten gone, five new in the middle, twenty changed, the last hundred before all others.
    let later: Vec<(usize, usize)> = (400..500)
        .map(|row| (0, row))
        .chain((10..200).map(|row| (0, row)))
        .chain((0..5).map(|row| (1, row)))
        .chain((200..300).map(|row| (0, row)))
        .chain((5..25).map(|row| (1, row)))
        .chain((320..400).map(|row| (0, row)))
        .collect();
    let later = of(&[&old, &fresh], later.into_iter());
    let kept: Arc<[Kept]> = Arc::new([
        Kept { from: 400, to: 0, count: 100 },
        Kept { from: 10, to: 100, count: 190 },
        Kept { from: 200, to: 295, count: 100 },
        Kept { from: 320, to: 415, count: 80 },
    ]);
    let skip = RowSet::default();
    for chunk_rows in [0, 1, 64, 97] {
        let mut backend = open(&OpenClSettings { chunk_rows, zero_copy: false, ..settings() });
        let loaded = backend.load(&former).unwrap();
        let coming = backend.begin(&later, Some(Former { rows: &*loaded, kept: &kept })).unwrap();
        // What was copied is there whatever becomes of the former generation.
        drop(loaded);
        let screened = screen(&mut *ready(coming), &probes, 7);
        for (place, found) in screened.probes.iter().enumerate() {
            let exact = exact_scores(probes.row(place), &later);
            check_candidates(found, &exact, Ask { k: 7, skip: &skip }).unwrap();
        }
    }
}

#[test]
fn what_stays_is_not_brought_from_the_host() {
    let (former, later) = (Arc::new(unit_rows(300, 16, 4)), Arc::new(unit_rows(300, 16, 5)));
    // Untrue: all but the first row are others. The device has to believe it.
    let kept: Arc<[Kept]> = Arc::new([Kept { from: 0, to: 1, count: 299 }]);
    let mut backend = open(&OpenClSettings { zero_copy: false, ..settings() });
    let loaded = backend.load(&former).unwrap();
    let mut taken = ready(backend.begin(&later, Some(Former { rows: &*loaded, kept: &kept })).unwrap());
    let believed = of(&[&later, &former], std::iter::once((0, 0)).chain((0..299).map(|row| (1, row))));
    let mut sound = backend.load(&believed).unwrap();
    let probes = unit_rows(3, 16, 6);
    assert_eq!(screen(&mut *taken, &probes, 5).probes, screen(&mut *sound, &probes, 5).probes);
    assert_ne!(
        screen(&mut *taken, &probes, 5).probes,
        screen(&mut *backend.load(&later).unwrap(), &probes, 5).probes
    );
}
