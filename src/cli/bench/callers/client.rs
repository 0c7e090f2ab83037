//! A gRPC client that does as little as a unary call takes: a message that was encoded before, one stream of a connection that is
//! open already, and the reply's bytes as they come.

use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use h2::client::SendRequest;
use http::Request;
use tokio::net::TcpStream;
use tonic::{Code, Status};

/// Bytes before a message: not compressed, and its length.
const PREFIX: usize = 5;

/// A message as gRPC frames it.
pub(super) type Frame = Arc<[u8]>;

/// Frames a message.
pub(super) fn frame(message: &[u8]) -> Frame {
    let mut frame = Vec::with_capacity(PREFIX + message.len());
    frame.push(0);
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame.into()
}

/// An open connection for calls of one method.
pub(super) struct Connection {
    sender: SendRequest<Cursor<Frame>>,
    head: Request<()>,
}

impl Connection {
    /// Opens one, for calls of `/package.Service/Method`. It is driven by the runtime that this is called on, until it is dropped.
    pub(super) async fn open(address: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = h2::client::Builder::new().handshake(stream).await?;
        // How it ends is seen by the calls on it.
        tokio::spawn(driver);
        let head = Request::post(format!("http://{address}{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        Ok(Self { sender, head })
    }

    /// Sends a message and answers the reply's; a status that is not OK is an error.
    pub(super) async fn call(&self, frame: &Frame) -> anyhow::Result<Vec<u8>> {
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut body) = sender.send_request(self.head.clone(), false)?;
        body.send_data(Cursor::new(Arc::clone(frame)), true)?;
        let (head, mut body) = response.await?.into_parts();
        refuse(Status::from_header_map(&head.headers))?;
        let mut reply = Vec::new();
        while let Some(bytes) = body.data().await {
            let bytes = bytes?;
            reply.extend_from_slice(&bytes);
            body.flow_control().release_capacity(bytes.len())?;
        }
        let trailers = body.trailers().await?.context("a reply without trailers")?;
        refuse(Status::from_header_map(&trailers))?;
        if reply.len() < PREFIX {
            bail!("a reply without a message");
        }
        reply.drain(..PREFIX);
        Ok(reply)
    }
}

fn refuse(status: Option<Status>) -> anyhow::Result<()> {
    match status {
        Some(status) if status.code() != Code::Ok => Err(status.into()),
        Some(_) | None => Ok(()),
    }
}
