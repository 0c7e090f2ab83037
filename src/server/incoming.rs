//! New connections: so many at once, and each must begin.
//!
//! Each holds a file descriptor, and whoever reaches a port may open as many as they like: what is beyond the bound is closed at once, so that its
//! peer learns of it and may go elsewhere. Where the process or the machine is out of file descriptors all the same, accepting fails at once,
//! again and again: that is waited out and logged, not spun on.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long accepting pauses after it failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes with which a peer opens HTTP/2 (RFC 9113, section 3.4).
const GREETING_BYTES: usize = 24;

/// What is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The listener's key, for the log.
    pub(super) key: &'static str,
    /// Connections at once.
    pub(super) most: usize,
    /// How long a peer may take to say that it speaks HTTP/2, for which nothing above waits with a limit; `None` where something does.
    pub(super) greeting: Option<Duration>,
    /// How long a peer may read nothing of what it is sent; `None` where something above finds that out.
    pub(super) reading: Option<Duration>,
}

/// Every connection to `listener`, until the stream is dropped; that closes the listener.
pub(super) fn connections(listener: TcpListener, bounds: Bounds) -> ReceiverStream<io::Result<Connection>> {
    let (accepted, connections) = mpsc::channel(1);
    let places = Arc::new(Semaphore::new(bounds.most));
    tokio::spawn(async move {
        // Each is said once of all that fail in a row.
        let (mut full, mut failing) = (false, false);
        loop {
            let connection = tokio::select! {
                connection = listener.accept() => connection,
                () = accepted.closed() => return,
            };
            let (stream, peer) = match connection {
                Ok(connection) => connection,
                Err(error) => {
                    if !failing {
                        tracing::warn!(listener = bounds.key, %error, pause = ?PAUSE, "a connection could not be accepted: trying again and again");
                    }
                    failing = true;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            failing = false;
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                if !full {
                    tracing::warn!(listener = bounds.key, most = bounds.most, %peer, "too many connections: refused");
                }
                full = true;
                continue;
            };
            full = false;
            // Answers are small and waited for: they must not be held back to fill a packet.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%peer, %error, "a connection ended as it began");
            }
            let greeting = bounds.greeting.map(Greeting::within);
            let connection =
                Connection { stream, greeting, reading: bounds.reading, stalled: None, _place: place };
            if accepted.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(connections)
}

/// A connection, which holds its place among those that there may be.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// `None` once it came, and where none is waited for.
    greeting: Option<Greeting>,
    reading: Option<Duration>,
    /// Until when the peer may read nothing; `None` while it reads.
    stalled: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

/// What a peer has still to send, and until when.
#[derive(Debug)]
struct Greeting {
    missing: usize,
    until: Pin<Box<Sleep>>,
}

impl Greeting {
    fn within(limit: Duration) -> Self {
        Self { missing: GREETING_BYTES, until: Box::pin(tokio::time::sleep(limit)) }
    }
}

impl Connection {
    /// What became of a write, which is not waited for longer than the peer may read nothing.
    fn bounded(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let Some(limit) = self.reading else { return written };
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(greeting) = &mut self.greeting {
            greeting.missing = greeting.missing.saturating_sub(buffer.filled().len() - before);
            if greeting.missing == 0 {
                self.greeting = None;
            } else if read.is_pending() && greeting.until.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_stream::StreamExt;

    use super::*;

    async fn listening(
        most: usize,
        greeting: Option<Duration>,
    ) -> (String, ReceiverStream<io::Result<Connection>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let reading = Some(Duration::from_millis(500));
        (address, connections(listener, Bounds { key: "test", most, greeting, reading }))
    }

    /// Were it waited for, this would never end.
    #[tokio::test]
    async fn who_does_not_read_is_let_go() {
        let (address, mut incoming) = listening(1, None).await;
        let mut peer = TcpStream::connect(&address).await.unwrap();
        let mut sending = incoming.next().await.unwrap().unwrap();
        let much = vec![0; 64 << 20];
        assert_eq!(sending.write_all(&much).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // One that reads again in time may read slowly.
        sending.stalled = None;
        let (mut some, reads) = (vec![0; 1 << 20], 30);
        let reading = async {
            for _ in 0..reads {
                tokio::time::sleep(Duration::from_millis(5)).await;
                peer.read_exact(&mut some).await.unwrap();
            }
        };
        tokio::select! {
            () = reading => (),
            ended = sending.write_all(&much) => panic!("{ended:?}"),
        }
    }

    #[tokio::test]
    async fn what_is_beyond_the_bound_is_closed_and_a_place_is_free_again_afterwards() {
        let (address, mut incoming) = listening(1, None).await;
        let _first = TcpStream::connect(&address).await.unwrap();
        let held = incoming.next().await.unwrap().unwrap();
        let mut second = TcpStream::connect(&address).await.unwrap();
        assert_eq!(second.read(&mut [0]).await.unwrap(), 0);
        drop(held);
        let _third = TcpStream::connect(&address).await.unwrap();
        assert!(incoming.next().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn who_does_not_greet_is_not_waited_for() {
        let (address, mut incoming) = listening(2, Some(Duration::from_millis(20))).await;
        let mut silent = TcpStream::connect(&address).await.unwrap();
        silent.write_all(b"PRI * HTTP/2.0").await.unwrap();
        let mut half = incoming.next().await.unwrap().unwrap();
        let waited = half.read_to_end(&mut Vec::new()).await;
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::TimedOut);

        let mut whole = TcpStream::connect(&address).await.unwrap();
        whole.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut greeted = incoming.next().await.unwrap().unwrap();
        greeted.read_exact(&mut [0; GREETING_BYTES]).await.unwrap();
        // From then on it may be silent as long as it likes: pings find out whether it is there.
        let later = tokio::time::timeout(Duration::from_millis(60), greeted.read(&mut [0])).await;
        assert!(later.is_err(), "{later:?}");
    }
}
