//! What one failure costs: a gallery, or all that is on the device, and how it comes back.

use std::sync::atomic::AtomicBool;

use super::super::verify::tests::fan;
use super::*;
use crate::backend::Description;
use crate::backend::guard::Guarded;
use crate::backend::joined::Joined;
use crate::backend::reference::ReferenceBackend;
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
        residents.load(snapshot, |_, _| false).unwrap();
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
