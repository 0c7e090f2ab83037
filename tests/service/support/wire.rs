//! One gRPC call as bytes on the wire: what tonic's client would not send, or would answer in the server's place.

use std::io::Cursor;
use std::net::SocketAddr;

use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) headers: HeaderMap,
}

/// Requests that were begun, on one connection, and of which nothing but the headers was sent.
pub(crate) struct Begun {
    connection: JoinHandle<Result<(), h2::Error>>,
    _streams: Vec<(h2::client::ResponseFuture, h2::SendStream<Cursor<Vec<u8>>>)>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Begins `count` calls of `/package.Service/Method` and sends no message.
pub(crate) async fn begin_only(address: SocketAddr, path: &str, count: usize) -> Begun {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) =
        h2::client::Builder::new().handshake::<_, Cursor<Vec<u8>>>(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        client = client.ready().await.unwrap();
        let request = Request::post(format!("http://{address}{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        streams.push(client.send_request(request, false).unwrap());
    }
    Begun { connection, _streams: streams }
}

/// Calls `/package.Service/Method` with these bytes as the message.
pub(crate) async fn call(address: SocketAddr, path: &str, headers: &[(&str, &str)], message: &[u8]) -> Ended {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) =
        h2::client::Builder::new().handshake::<_, Cursor<Vec<u8>>>(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    let (response, mut body) =
        client.ready().await.unwrap().send_request(request.body(()).unwrap(), false).unwrap();
    // What is refused by its head may be answered, and the stream be closed, before the message is on its way.
    let _ = body.send_data(Cursor::new(frame), true);
    let (head, mut body) = response.await.unwrap().into_parts();
    let status = if let Some(status) = Status::from_header_map(&head.headers) {
        status
    } else {
        while let Some(bytes) = body.data().await {
            let bytes = bytes.unwrap().len();
            body.flow_control().release_capacity(bytes).unwrap();
        }
        let trailers = body.trailers().await.unwrap().unwrap();
        Status::from_header_map(&trailers).unwrap_or_else(|| Status::new(Code::Ok, ""))
    };
    connection.abort();
    Ended { status, headers: head.headers }
}
