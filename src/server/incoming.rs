//! New connections, also when there can be none for a while.
//!
//! Where the process or the machine is out of file descriptors, accepting fails at once, again and again: that is waited out
//! and logged, not spun on.

use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// How long accepting pauses after it failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Every connection to `listener`, until the stream is dropped; that closes the listener.
pub(super) fn connections(listener: TcpListener) -> ReceiverStream<io::Result<TcpStream>> {
    let (accepted, connections) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let connection = tokio::select! {
                connection = listener.accept() => connection,
                () = accepted.closed() => return,
            };
            match connection {
                Ok((stream, peer)) => {
                    // Answers are small and waited for: they must not be held back to fill a packet.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%peer, %error, "a connection ended as it began");
                    }
                    if accepted.send(Ok(stream)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, pause = ?PAUSE, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    });
    ReceiverStream::new(connections)
}
