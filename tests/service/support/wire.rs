//! One gRPC call as bytes on the wire: what tonic's client would not send, or would answer in the server's place.

use std::io::Cursor;
use std::net::SocketAddr;

use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tonic::{Code, Status};

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) headers: HeaderMap,
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
    body.send_data(Cursor::new(frame), true).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    let status = match Status::from_header_map(&head.headers) {
        Some(status) => status,
        None => {
            while let Some(bytes) = body.data().await {
                let bytes = bytes.unwrap().len();
                body.flow_control().release_capacity(bytes).unwrap();
            }
            let trailers = body.trailers().await.unwrap().unwrap();
            Status::from_header_map(&trailers).unwrap_or_else(|| Status::new(Code::Ok, ""))
        }
    };
    connection.abort();
    Ended { status, headers: head.headers }
}
