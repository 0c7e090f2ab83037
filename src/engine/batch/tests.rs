//! Batches of made requests: shares, turns, and whatever order requests come in.

use proptest::prelude::*;

use super::*;

/// One batch: `(request, probes)` of each slice.
fn batch(waiting: &mut Waiting<u8, u32>, limit: usize) -> Vec<(u32, usize)> {
    let mut slices = Vec::new();
    let formed = match waiting.next(limit, &mut slices) {
        Some(turn) => slices.iter().map(|slice| (*turn.item(slice), slice.probes.len())).collect(),
        None => Vec::new(),
    };
    waiting.end();
    formed
}

#[test]
fn small_requests_fit_whole_and_the_first_takes_what_they_leave() {
    let mut waiting = Waiting::new();
    for (request, probes) in [(0, 4096), (1, 100), (2, 1)] {
        waiting.push(0, request, probes);
    }
    assert_eq!(batch(&mut waiting, 256), [(0, 170), (1, 85), (2, 1)]);
    assert_eq!(batch(&mut waiting, 256), [(0, 241), (1, 15)]);
    waiting.push(0, 3, 1);
    assert_eq!(batch(&mut waiting, 256), [(3, 1), (0, 255)]);
    assert_eq!(batch(&mut waiting, 256), [(0, 256)]);
}

#[test]
fn more_requests_than_places_take_turns_and_a_new_one_goes_before_those_just_served() {
    let mut waiting = Waiting::new();
    for request in 0..3 {
        waiting.push(0, request, 2);
    }
    assert_eq!(batch(&mut waiting, 2), [(0, 1), (1, 1)]);
    waiting.push(0, 3, 1);
    assert_eq!(batch(&mut waiting, 2), [(2, 1), (3, 1)]);
    assert_eq!(batch(&mut waiting, 2), [(0, 1), (1, 1)]);
    assert_eq!(batch(&mut waiting, 2), [(2, 1)]);
    assert!(waiting.is_empty());
    waiting.push(0, 4, 9);
    assert_eq!(batch(&mut waiting, 1), [(4, 1)]);
    waiting.push(0, 5, 1);
    assert_eq!(batch(&mut waiting, 1), [(5, 1)]);
}

#[test]
fn groups_take_turns() {
    let mut waiting = Waiting::new();
    waiting.push(0, 0, 20);
    assert_eq!(batch(&mut waiting, 8), [(0, 8)]);
    waiting.push(1, 1, 9);
    assert_eq!(batch(&mut waiting, 8), [(1, 8)]);
    assert_eq!(batch(&mut waiting, 8), [(0, 8)]);
    assert_eq!(batch(&mut waiting, 8), [(1, 1)]);
    assert_eq!(batch(&mut waiting, 8), [(0, 4)]);
    assert_eq!(batch(&mut waiting, 8), []);
}

#[test]
fn those_who_have_gone_and_those_abandoned_are_given_out_no_more() {
    let mut waiting = Waiting::new();
    for request in 0..4 {
        waiting.push(request / 2, u32::from(request), 10);
    }
    assert_eq!(batch(&mut waiting, 4), [(0, 2), (1, 2)]);
    assert_eq!(waiting.drop_those(|request| *request == 0), 1);
    assert_eq!(batch(&mut waiting, 4), [(2, 2), (3, 2)]);
    assert_eq!(waiting.drop_those(|request| *request != 1), 2);
    assert_eq!(batch(&mut waiting, 4), [(1, 4)]);
    waiting.push(0, 9, 10);
    assert!(waiting.next(4, &mut Vec::new()).is_some());
    waiting.abandon();
    assert!(waiting.is_empty());
}

/// What may happen to the queue.
#[derive(Clone, Debug)]
enum Event {
    Comes { key: u8, probes: usize },
    Goes { request: u32 },
    Batch,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![
        3 => (0..3_u8, prop_oneof![Just(1_usize), 1..20_usize, 1..600_usize])
            .prop_map(|(key, probes)| Event::Comes { key, probes }),
        1 => (0..40_u32).prop_map(|request| Event::Goes { request }),
        4 => Just(Event::Batch),
    ];
    prop::collection::vec(one, 1..80)
}

/// What is known of a request: how much of it was given out, and for how many batches of its group it got nothing.
struct Request {
    key: u8,
    probes: usize,
    given: usize,
    passed_over: usize,
    gone: bool,
}

impl Request {
    fn waits(&self) -> bool {
        !self.gone && self.given < self.probes
    }
}

struct Check {
    waiting: Waiting<u8, u32>,
    requests: Vec<Request>,
    limit: usize,
    /// The groups of the batches so far.
    turns: Vec<u8>,
}

impl Check {
    /// Forms a batch and holds it against the invariants; says whether there was one.
    fn batch(&mut self) -> bool {
        let waiting_before: Vec<u32> =
            (0..).zip(&self.requests).filter(|(_, request)| request.waits()).map(|(id, _)| id).collect();
        let mut slices = Vec::new();
        let Some(turn) = self.waiting.next(self.limit, &mut slices) else {
            assert!(waiting_before.is_empty(), "{waiting_before:?} wait and no batch is formed");
            return false;
        };
        let key = *turn.key();
        let total: usize = slices.iter().map(|slice| slice.probes.len()).sum();
        let wait: Vec<u32> =
            waiting_before.into_iter().filter(|id| self.requests[*id as usize].key == key).collect();
        let left: usize =
            wait.iter().map(|id| &self.requests[*id as usize]).map(|r| r.probes - r.given).sum();
        assert_eq!(total, left.min(self.limit), "no place stays empty while probes wait");
        let mut served = Vec::new();
        for slice in &slices {
            let id = *turn.item(slice);
            let request = &mut self.requests[id as usize];
            assert!(!request.gone && !slice.probes.is_empty() && !served.contains(&id));
            assert_eq!(slice.probes.start, request.given, "every probe once, in order");
            request.given = slice.probes.end;
            assert_eq!(turn.is_last(slice), request.given == request.probes);
            served.push(id);
        }
        if wait.len() <= self.limit {
            assert_eq!(served.len(), wait.len(), "everyone is in a batch that has a place for everyone");
        }
        for id in wait {
            let request = &mut self.requests[id as usize];
            request.passed_over = if served.contains(&id) { 0 } else { request.passed_over + 1 };
            // At most all that were there when it came, and all that came with it, go before it.
            assert!(request.passed_over <= 80_usize.div_ceil(self.limit), "request {id} waits for ever");
        }
        self.waiting.end();
        self.turns.push(key);
        true
    }
}

proptest! {
    #[test]
    fn every_probe_is_given_out_once_and_nobody_waits_for_ever(events in events(), limit in 1..300_usize) {
        let mut check = Check { waiting: Waiting::new(), requests: Vec::new(), limit, turns: Vec::new() };
        for event in events {
            match event {
                Event::Comes { key, probes } => {
                    check.waiting.push(key, check.requests.len() as u32, probes);
                    check.requests.push(Request { key, probes, given: 0, passed_over: 0, gone: false });
                }
                Event::Goes { request } => {
                    if let Some(going) = check.requests.get_mut(request as usize) {
                        going.gone = true;
                    }
                    let mut asked = Vec::new();
                    check.waiting.drop_those(|id| {
                        asked.push(*id);
                        check.requests[*id as usize].gone
                    });
                    let waited = asked.len();
                    asked.sort_unstable();
                    asked.dedup();
                    prop_assert_eq!(asked.len(), waited, "each is asked about once");
                }
                Event::Batch => drop(check.batch()),
            }
        }
        while check.batch() {}
        prop_assert!(check.waiting.is_empty());
        prop_assert!(check.requests.iter().all(|request| request.gone || request.given == request.probes));
    }

    /// Whatever waits, a group with waiting requests is served at the latest after every other group once.
    #[test]
    fn groups_are_served_in_turn(sizes in prop::collection::vec((0..4_u8, 1..50_usize), 1..20), limit in 1..20_usize) {
        let mut check = Check { waiting: Waiting::new(), requests: Vec::new(), limit, turns: Vec::new() };
        for (key, probes) in sizes {
            check.waiting.push(key, check.requests.len() as u32, probes);
            check.requests.push(Request { key, probes, given: 0, passed_over: 0, gone: false });
        }
        while check.batch() {
            let turns = &check.turns;
            if let [.., before, now] = turns[..] && before == now {
                let other = check.requests.iter().any(|request| request.waits() && request.key != now);
                prop_assert!(!other, "group {now} was served twice while another waits");
            }
        }
    }

    #[test]
    fn one_probe_is_in_the_very_next_batch_however_large_the_request_in_progress(
        limit in 1..300_usize, batches in 1..5_usize,
    ) {
        let mut waiting = Waiting::new();
        waiting.push(0, 0, 4096);
        for _ in 0..batches {
            batch(&mut waiting, limit);
        }
        waiting.push(0, 1, 1);
        prop_assert!(batch(&mut waiting, limit).contains(&(1, 1)));
    }
}
