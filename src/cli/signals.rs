//! The signals that tell the process to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

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
