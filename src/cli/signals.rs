//! The signals that tell the process to stop, and the one that would end it for writing too much.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Has writes beyond the largest file that there may be (`ulimit -f`) fail, as they do on a full disk, not end the process.
pub(super) fn outlive_file_limits() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Listens for SIGTERM and SIGINT from the moment it is made: before drivers are loaded, which bring handlers of their own.
#[derive(Debug)]
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Begins to listen; needs a runtime.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Done when the process is told to stop. Told again, it ends at once.
    pub(super) async fn told(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("told to stop again: ending at once");
            std::process::exit(1);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }
}
