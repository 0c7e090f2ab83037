//! What one failure costs: a gallery, or all that is on the device, and how it comes back.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use tokio::sync::oneshot;

use super::super::verify::tests::fan;
use super::*;
use crate::backend::guard::Guarded;
use crate::backend::joined::Joined;
use crate::backend::reference::ReferenceBackend;
use crate::backend::{Description, Former, Loading};
use crate::config::CpuSettings;
use crate::domain::Matrix;
use crate::gallery::GalleryProfile;
use crate::telemetry::FallbackReason;

/// The reference, in the guise of an OpenCL device.
struct Disguised(ReferenceBackend, Description);

impl Disguised {
    fn start() -> Result<Joined, BackendError> {
        let text = || "made".to_owned();
        let device = Guarded::start("made", std::time::Duration::from_mins(1), move || {
            let description = Description { backend: BackendName::OpenCl, device: text(), driver: text() };
            Ok(Self(ReferenceBackend::default(), description))
        });
        Ok(Joined::new(vec![device?]))
    }
}

impl Backend for Disguised {
    fn description(&self) -> &Description {
        &self.1
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        self.0.load(rows)
    }
}

/// Two galleries on a device that can be opened again once `well` is set.
fn residents(well: &Arc<AtomicBool>) -> (Residents, [Arc<Snapshot>; 2]) {
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
    let cpu = CpuBackend::new(pool, &CpuSettings { threads: 1, instructions: None }).unwrap();
    let state = Arc::new(State::new());
    let well = Arc::clone(well);
    let reopen: Reopen =
        Arc::new(move || if well.load(Ordering::SeqCst) { Disguised::start() } else { Err(lost()) });
    let primary = Box::new(Disguised::start().unwrap());
    let mut residents =
        Residents::new(primary, cpu, state).falling_back(Fallback::Cpu, None).reopening(Some(reopen));
    let other = Snapshot::new(GalleryProfile::named("other", 2), Vec::new(), Vec::new());
    let snapshots = [Arc::new(fan(20)), Arc::new(other)];
    for snapshot in &snapshots {
        load(&mut residents, snapshot).try_recv().unwrap().unwrap();
    }
    (residents, snapshots)
}

fn lost() -> BackendError {
    BackendError::Device { device: "made".to_owned(), reason: "lost".to_owned() }
}

fn broken_kernel() -> BackendError {
    BackendError::Kernel { kernel: "made.cl".to_owned(), reason: "no".to_owned() }
}

/// Who holds a gallery now, and why it is not the primary.
fn holder(residents: &mut Residents, snapshot: &Arc<Snapshot>) -> (BackendName, Option<FallbackReason>) {
    let resident = residents.take(snapshot).unwrap();
    let told = (resident.backend, resident.fallback.as_ref().map(|why| why.reason));
    residents.put_back(resident);
    told
}

fn fail(residents: &mut Residents, snapshot: &Arc<Snapshot>, error: BackendError) {
    drop(residents.take(snapshot).unwrap());
    let resident = residents.settle_on_cpu(snapshot, error).unwrap();
    residents.put_back(resident);
}

const BY_DEVICE: (BackendName, Option<FallbackReason>) = (BackendName::OpenCl, None);

#[test]
fn a_lost_device_is_lost_to_all_galleries_and_comes_back_for_all() {
    let well = Arc::new(AtomicBool::new(false));
    let (mut residents, [one, other]) = residents(&well);
    assert_eq!(holder(&mut residents, &other), BY_DEVICE);
    fail(&mut residents, &one, lost());
    let by_cpu = (BackendName::Cpu, Some(FallbackReason::DeviceError));
    for snapshot in [&one, &other] {
        assert_eq!(holder(&mut residents, snapshot), by_cpu);
    }
    assert!(!residents.state.up.load(Ordering::Relaxed));
    // Tried after a second, in vain, and two seconds later with success.
    let started = Instant::now();
    while residents.outage.as_ref().is_some_and(|outage| !outage.is_coming()) {
        assert_eq!(holder(&mut residents, &one), by_cpu);
    }
    assert!(started.elapsed().as_millis() > 900, "{:?}", started.elapsed());
    well.store(true, Ordering::SeqCst);
    while holder(&mut residents, &other) != BY_DEVICE {
        assert!(started.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    assert_eq!(holder(&mut residents, &one), BY_DEVICE);
    assert!(residents.state.up.load(Ordering::Relaxed));
}

#[test]
fn a_kernel_that_fails_one_gallery_costs_no_other() {
    let (mut residents, [one, other]) = residents(&Arc::new(AtomicBool::new(true)));
    fail(&mut residents, &one, broken_kernel());
    assert_eq!(holder(&mut residents, &one), (BackendName::Cpu, Some(FallbackReason::KernelError)));
    assert_eq!(holder(&mut residents, &other), BY_DEVICE);
    assert!(residents.outage.is_none());
    // It alone is tried again.
    let started = Instant::now();
    while holder(&mut residents, &one) != BY_DEVICE {
        assert!(started.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    // Where nothing else is on the device, it is opened anew.
    drop(residents.take(&other).unwrap());
    fail(&mut residents, &one, broken_kernel());
    assert!(residents.outage.is_some());
}

/// The reference on the CPU's side of things, which makes rows ready only while it is let; counts what it made ready.
struct Gated {
    inner: ReferenceBackend,
    gate: Arc<AtomicBool>,
    loaded: Arc<AtomicUsize>,
}

struct Behind {
    rows: Option<Box<dyn Loaded>>,
    gate: Arc<AtomicBool>,
}

impl Backend for Gated {
    fn description(&self) -> &Description {
        self.inner.description()
    }

    fn load(&mut self, rows: &Arc<Matrix>) -> Result<Box<dyn Loaded>, BackendError> {
        self.loaded.fetch_add(1, Ordering::SeqCst);
        self.inner.load(rows)
    }

    fn begin(&mut self, rows: &Arc<Matrix>, _: Option<Former<'_>>) -> Result<Box<dyn Loading>, BackendError> {
        Ok(Box::new(Behind { rows: Some(self.load(rows)?), gate: Arc::clone(&self.gate) }))
    }
}

impl Loading for Behind {
    fn look(&mut self) -> Option<Result<Box<dyn Loaded>, BackendError>> {
        self.rows.take_if(|_| self.gate.load(Ordering::SeqCst)).map(Ok)
    }
}

fn generation(generation: u64) -> Arc<Snapshot> {
    let profile = GalleryProfile { generation, ..GalleryProfile::named("one", 2) };
    Arc::new(Snapshot::new(profile, Vec::new(), Vec::new()))
}

fn gated() -> (Residents, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
    let cpu = CpuBackend::new(pool, &CpuSettings { threads: 1, instructions: None }).unwrap();
    let (gate, loaded) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let primary =
        Gated { inner: ReferenceBackend::default(), gate: Arc::clone(&gate), loaded: Arc::clone(&loaded) };
    (Residents::new(Box::new(primary), cpu, Arc::new(State::new())), gate, loaded)
}

fn load(residents: &mut Residents, snapshot: &Arc<Snapshot>) -> oneshot::Receiver<Result<u64, EngineError>> {
    let (reply, loaded) = oneshot::channel();
    residents.load(Wanted { snapshot: Arc::clone(snapshot), former: None, reply });
    loaded
}

#[test]
fn a_later_generation_is_made_ready_while_the_former_is_scanned() {
    let (mut residents, gate, loaded) = gated();
    let (former, later) = (generation(1), generation(2));
    // Nobody asks yet: at once.
    load(&mut residents, &former).try_recv().unwrap().unwrap();
    for _ in 0..3 {
        let resident = residents.take(&former).unwrap();
        residents.put_back(resident);
    }
    let mut coming = load(&mut residents, &later);
    for _ in 0..3 {
        let resident = residents.take(&former).unwrap();
        assert!(coming.try_recv().is_err() && residents.any_coming());
        residents.put_back(resident);
    }
    gate.store(true, Ordering::SeqCst);
    residents.see_to_the_coming();
    coming.try_recv().unwrap().unwrap();
    assert!(!residents.any_coming());
    // Both are held while both are asked for, and none is made ready again.
    for snapshot in [&former, &later, &former] {
        let resident = residents.take(snapshot).unwrap();
        residents.put_back(resident);
        residents.release_unused();
    }
    assert_eq!((residents.held.len(), loaded.load(Ordering::SeqCst)), (2, 2));
    drop(former);
    residents.release_unused();
    assert_eq!(residents.held.len(), 1);
}

#[test]
fn who_asks_for_what_is_on_its_way_waits_for_it_and_what_nobody_wants_is_given_up() {
    let (mut residents, gate, loaded) = gated();
    let (one, other, unwanted) = (generation(1), generation(2), generation(3));
    load(&mut residents, &one).try_recv().unwrap().unwrap();
    let resident = residents.take(&one).unwrap();
    residents.put_back(resident);
    let mut coming =
        [load(&mut residents, &other), load(&mut residents, &other), load(&mut residents, &unwanted)];
    drop(unwanted);
    residents.release_unused();
    assert!(matches!(coming[2].try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            gate.store(true, Ordering::SeqCst);
        });
        let resident = residents.take(&other).unwrap();
        residents.put_back(resident);
    });
    for told in &mut coming[..2] {
        told.try_recv().unwrap().unwrap();
    }
    assert_eq!(loaded.load(Ordering::SeqCst), 3);
}

#[test]
fn a_device_lost_while_a_generation_is_on_its_way_leaves_it_to_the_cpu() {
    let (mut residents, [one, _other]) = residents(&Arc::new(AtomicBool::new(false)));
    let resident = residents.take(&one).unwrap();
    residents.put_back(resident);
    let later = generation(77);
    let mut coming = load(&mut residents, &later);
    residents.take_out(&lost());
    let started = Instant::now();
    while residents.any_coming() {
        assert!(started.elapsed().as_secs() < 60);
        residents.see_to_the_coming();
    }
    coming.try_recv().unwrap().unwrap();
    assert_eq!(holder(&mut residents, &later), (BackendName::Cpu, Some(FallbackReason::DeviceError)));
}
