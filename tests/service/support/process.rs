//! The real program as a process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};

use lookalike::grpc::proto::operations_client::OperationsClient;
use lookalike::grpc::proto::recognition_client::RecognitionClient;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::served::PROGRAM_CACHE;

/// A finished run of the program.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The result, of a run that succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The result as one JSON document, of a run that succeeded.
    pub(crate) fn json(self) -> Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }
}

/// The program, ready for arguments; in an environment that sets nothing of ours but where compiled kernels are kept.
pub(crate) fn lookalike() -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lookalike"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.to_uppercase().starts_with("LOOKALIKE")) {
        command.env_remove(name);
    }
    command.env("LOOKALIKE__BACKEND__OPENCL__CACHE_DIR", PROGRAM_CACHE).stdin(Stdio::null());
    Program(command)
}

/// The program before it runs.
pub(crate) struct Program(Command);

impl Program {
    pub(crate) fn args<S: AsRef<std::ffi::OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.0.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// On a machine with no OpenCL library, as far as the program can tell.
    pub(crate) fn without_opencl(self) -> Self {
        self.env("LOOKALIKE_OPENCL_LIBRARY", "/nonexistent")
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Run {
        let output = self.0.output().unwrap();
        Run {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Starts `serve` on free ports, with more flags, and waits until it serves.
    pub(crate) async fn serve(self, data: &Path, flags: &[&str]) -> Served {
        let data = data.to_str().unwrap();
        let own = ["serve", "--data", data, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
        let set = flags.iter().flat_map(|flag| ["--set", flag]);
        let mut program = self.args(own).args(set).args(["--set", "log.format=json"]);
        program.0.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.0.spawn().unwrap();
        let lines = lines_of(child.stderr.take().unwrap());
        let listening = loop {
            let line = lines.recv().unwrap();
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if line["message"] == "listening" {
                break line;
            }
        };
        let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let grpc = address(listening["grpc"].as_str().unwrap());
        let http = address(listening["metrics"].as_str().unwrap());
        let channel = Channel::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap();
        let mut watch = HealthClient::new(channel.clone())
            .watch(HealthCheckRequest::default())
            .await
            .unwrap()
            .into_inner();
        while watch.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
        Served { child, lines, channel, grpc, http }
    }
}

/// The lines of a pipe, read by a thread so that it never fills.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// A running `lookalike serve`; killed when dropped.
pub(crate) struct Served {
    child: Child,
    lines: Receiver<String>,
    pub(crate) channel: Channel,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    pub(crate) fn recognition(&self) -> RecognitionClient<Channel> {
        RecognitionClient::new(self.channel.clone())
    }

    pub(crate) fn operations(&self) -> OperationsClient<Channel> {
        OperationsClient::new(self.channel.clone())
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let kill = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", self.child.id())).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for the end: the exit status, what it wrote to stdout, and its log lines as JSON.
    pub(crate) fn end(mut self) -> (ExitStatus, String, Vec<Value>) {
        let status = self.child.wait().unwrap();
        let mut stdout = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        // Drivers write to stderr in their own words.
        let lines = self.lines.iter().filter_map(|line| serde_json::from_str(&line).ok()).collect();
        (status, stdout, lines)
    }

    /// The metrics as text.
    pub(crate) async fn metrics(&self) -> String {
        let (status, body) = http_get(self.http, "/metrics").await;
        assert_eq!(status, 200);
        body
    }

    /// The value of one series, as it is written: name and labels.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let text = self.metrics().await;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
    }

    /// Asks for a metric until it is `value`.
    pub(crate) async fn until_metric(&self, series: &str, value: f64) {
        super::until(series, async || {
            ((self.metric(series).await - value).abs() < f64::EPSILON).then_some(())
        })
        .await;
    }
}

/// One plain HTTP/1 request: status and body.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
