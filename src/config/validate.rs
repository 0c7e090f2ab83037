//! Turns the effective tree into [`Settings`]: types, ranges, and what keys say about each other.
//!
//! Invariant: every key of the defaults is read here, and nothing else is (a test compares the two). A faulty key never
//! hides another's fault: each section reads all its keys before it gives up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::model::{
    BackendKind, BackendSettings, CacheDir, CpuSettings, DeviceChoice, Fallback, Instructions, Limits,
    LogFormat, LogSettings, MetricsSettings, OpenClScan, OpenClSettings, Prober, RecognitionSettings,
    ServerSettings, Settings, StorageSettings,
};
use super::problem::Problem;
use super::reader::Reader;
use super::shadow::shadow;
use super::tree::Tree;
use crate::domain::{Margin, Threshold};

const BYTES_PER_MIB: u64 = 1 << 20;
const MAX_SHUTDOWN_GRACE: Duration = Duration::from_hours(1);

/// The settings, unless `problems` gained a fault.
pub(super) fn validate(tree: &Tree, problems: &mut Vec<Problem>) -> Option<Settings> {
    settings(&mut Reader::new(tree, problems))
}

fn settings(reader: &mut Reader<'_>) -> Option<Settings> {
    let server = server(reader);
    let metrics = metrics(reader);
    let log = log(reader);
    let storage = storage(reader);
    let recognition = recognition(reader);
    let backend = backend(reader);
    let shadow = shadow(reader, backend.as_ref().map(|backend| backend.kind));
    if let (Some(server), Some(metrics)) = (&server, &metrics) {
        check_distinct(reader, server, metrics);
    }
    Some(Settings {
        server: server?,
        metrics: metrics?,
        log: log?,
        storage: storage?,
        recognition: recognition?,
        backend: backend?,
        shadow: shadow?,
    })
}

fn server(reader: &mut Reader<'_>) -> Option<ServerSettings> {
    let listen = reader.parsed("server.listen", "an address such as 127.0.0.1:50051", address);
    let allow_insecure = reader.flag("server.allow_insecure");
    let tokens = if reader.is_null("server.tokens") {
        Some(None)
    } else {
        let expected = "a file's path (in quotes if it reads as a number), or null";
        reader.parsed("server.tokens", expected, |text| Some(PathBuf::from(text))).map(Some)
    };
    let grace = "a duration from 0s to 1h, such as 10s";
    let shutdown_grace = reader
        .parsed("server.shutdown_grace", grace, |text| duration(text, Duration::ZERO..=MAX_SHUTDOWN_GRACE));
    let limits = limits(reader);
    if let (Some(listen), Some(false)) = (listen, allow_insecure)
        && !is_loopback(listen)
    {
        let expected = "a loopback address, since beyond it embeddings travel in the clear to whoever asks \
                        (server.allow_insecure: true allows that)";
        reader.refuse("server.listen", expected);
    }
    Some(ServerSettings {
        listen: listen?,
        tokens: tokens?,
        shutdown_grace: shutdown_grace?,
        limits: limits?,
    })
}

fn duration(text: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|duration| range.contains(duration))
}

fn is_loopback(address: SocketAddr) -> bool {
    // `to_canonical` sees through ::ffff:127.0.0.1.
    address.ip().to_canonical().is_loopback()
}

fn limits(reader: &mut Reader<'_>) -> Option<Limits> {
    let max_message_bytes = reader.size("server.limits.max_message_bytes", 1024..=1_073_741_824);
    let max_probes = reader.size("server.limits.max_probes", 1..=65_536);
    let max_top_k = reader.size("server.limits.max_top_k", 1..=1_000_000);
    let max_neighbors = reader.size("server.limits.max_neighbors", 1..=100_000_000);
    let max_candidates = reader.size("server.limits.max_candidates", 1..=100_000);
    let max_connections = reader.size("server.limits.max_connections", 1..=1_000_000);
    let max_in_flight = reader.size("server.limits.max_in_flight", 1..=100_000);
    let queue = reader.size("server.limits.queue", 1..=100_000);
    Some(Limits {
        max_message_bytes: max_message_bytes?,
        max_probes: max_probes?,
        max_top_k: max_top_k?,
        max_neighbors: max_neighbors?,
        max_candidates: max_candidates?,
        max_connections: max_connections?,
        max_in_flight: max_in_flight?,
        queue: queue?,
    })
}

fn metrics(reader: &mut Reader<'_>) -> Option<MetricsSettings> {
    let expected = "an address such as 127.0.0.1:9464, or off";
    let listen = reader.parsed("metrics.listen", expected, |text| {
        if text == "off" { Some(None) } else { address(text).map(Some) }
    });
    let gallery_label = reader.flag("metrics.gallery_label");
    if let (Some(Some(listen)), Some(false)) = (listen, reader.flag("server.allow_insecure"))
        && !is_loopback(listen)
    {
        let expected = "a loopback address, since beyond it anybody can read what is served, and by what \
                        (server.allow_insecure: true allows that)";
        reader.refuse("metrics.listen", expected);
    }
    Some(MetricsSettings { listen: listen?, gallery_label: gallery_label? })
}

fn log(reader: &mut Reader<'_>) -> Option<LogSettings> {
    let expected = "error, warn, info, debug, trace, off or target=level, comma-separated without spaces";
    let level = reader.parsed("log.level", expected, |text| directives(text).then(|| text.to_owned()));
    let format = reader.choice("log.format", &[("human", LogFormat::Human), ("json", LogFormat::Json)]);
    Some(LogSettings { level: level?, format: format? })
}

fn storage(reader: &mut Reader<'_>) -> Option<StorageSettings> {
    let path = reader.parsed("storage.path", "a folder's path (in quotes if it reads as a number)", |text| {
        Some(PathBuf::from(text))
    });
    Some(StorageSettings { path: path? })
}

fn recognition(reader: &mut Reader<'_>) -> Option<RecognitionSettings> {
    let threshold = reader.number("recognition.threshold", Threshold::parse);
    let margin = reader.number("recognition.margin", Margin::parse);
    let top_k = reader.size("recognition.top_k", 1..=1_000_000);
    Some(RecognitionSettings { threshold: threshold?, margin: margin?, top_k: top_k? })
}

fn backend(reader: &mut Reader<'_>) -> Option<BackendSettings> {
    let kinds = [
        ("auto", BackendKind::Auto),
        ("cpu", BackendKind::Cpu),
        ("opencl", BackendKind::OpenCl),
        ("reference", BackendKind::Reference),
    ];
    let kind = reader.choice("backend.kind", &kinds);
    let fallback = reader.choice("backend.fallback", &[("cpu", Fallback::Cpu), ("fail", Fallback::Fail)]);
    let batch_probes = reader.size("backend.batch_probes", 1..=65_536);
    let threads = reader.size("backend.cpu.threads", 0..=1024).map(|threads| match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    });
    let instructions: Vec<_> = std::iter::once(("auto", None))
        .chain(Instructions::ALL.map(|instructions| (instructions.as_str(), Some(instructions))))
        .collect();
    let instructions = reader.choice("backend.cpu.instructions", &instructions);
    let opencl = opencl(reader);
    Some(BackendSettings {
        kind: kind?,
        fallback: fallback?,
        batch_probes: batch_probes?,
        cpu: CpuSettings { threads: threads?, instructions: instructions? },
        opencl: opencl?,
    })
}

fn opencl(reader: &mut Reader<'_>) -> Option<OpenClSettings> {
    let expected =
        "auto, all, part of a device's name (in quotes if it reads as a number), or numbers such as 0:1";
    let device = reader.parsed("backend.opencl.device", expected, |text| Some(device(text)));
    let allow_cpu_devices = reader.flag("backend.opencl.allow_cpu_devices");
    let chunk_rows = reader.size("backend.opencl.chunk_rows", 0..=100_000_000);
    let zero_copy = reader.flag("backend.opencl.zero_copy");
    let limit = "backend.opencl.memory_limit_mib";
    let memory_limit_mib =
        if reader.is_null(limit) { Some(None) } else { reader.integer(limit, 1..=1_048_576).map(Some) };
    let scans = [
        ("auto", OpenClScan::Auto),
        ("lanes", OpenClScan::Lanes),
        ("bytes", OpenClScan::Bytes),
        ("floats", OpenClScan::Floats),
    ];
    let scan = reader.choice("backend.opencl.scan", &scans);
    let profiling = reader.flag("backend.opencl.profiling");
    let folder = "backend.opencl.kernel_dir";
    let expected = "an existing folder (in quotes if it reads as a number), or null";
    let kernel_dir = if reader.is_null(folder) {
        Some(None)
    } else {
        reader
            .parsed(folder, expected, |text| Some(PathBuf::from(text)).filter(|path| path.is_dir()))
            .map(Some)
    };
    let expected = "auto, off or a folder's path (in quotes if it reads as a number)";
    let cache_dir = reader.parsed("backend.opencl.cache_dir", expected, |text| Some(cache_dir(text)));
    let expected = "a duration from 1s to 10m, such as 1m";
    let probe_timeout = reader.parsed("backend.opencl.probe_timeout", expected, |text| {
        duration(text, Duration::from_secs(1)..=Duration::from_mins(10))
    });
    let expected = "a duration from 100ms to 1h, such as 1m";
    let timeout = reader.parsed("backend.opencl.timeout", expected, |text| {
        duration(text, Duration::from_millis(100)..=Duration::from_hours(1))
    });
    Some(OpenClSettings {
        device: device?,
        allow_cpu_devices: allow_cpu_devices?,
        chunk_rows: chunk_rows?,
        zero_copy: zero_copy?,
        profiling: profiling?,
        memory_limit_bytes: memory_limit_mib?.map(|mib| mib * BYTES_PER_MIB),
        scan: scan?,
        kernel_dir: kernel_dir?,
        cache_dir: cache_dir?,
        probe_timeout: probe_timeout?,
        timeout: timeout?,
        prober: Prober::ThisProcess,
        warm_up_top_k: None,
    })
}

/// Both listeners must be able to bind.
fn check_distinct(reader: &mut Reader<'_>, server: &ServerSettings, metrics: &MetricsSettings) {
    if metrics.listen.is_some_and(|metrics| overlap(server.listen, metrics)) {
        let expected = format!("another address than server.listen ({})", server.listen);
        reader.refuse("metrics.listen", &expected);
    }
}

/// Whether two listeners cannot both have what they ask for.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let covers = |all: IpAddr, one: IpAddr| match all {
        IpAddr::V4(all) => all.is_unspecified() && one.is_ipv4(),
        // [::] takes IPv4 too.
        IpAddr::V6(all) => all.is_unspecified(),
    };
    let (x, y) = (a.ip().to_canonical(), b.ip().to_canonical());
    a.port() != 0 && a.port() == b.port() && (x == y || covers(x, y) || covers(y, x))
}

/// `IP:port`, or `localhost:port` for 127.0.0.1. No other name: it would have to be looked up.
fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?))),
        None => text.parse().ok(),
    }
}

fn device(text: &str) -> DeviceChoice {
    let numbers = text.split_once(':').and_then(|(p, d)| Some((p.parse().ok()?, d.parse().ok()?)));
    match numbers {
        Some((platform, device)) => DeviceChoice::Numbered { platform, device },
        None if text == "auto" => DeviceChoice::Auto,
        None if text == "all" => DeviceChoice::All,
        None => DeviceChoice::Named(text.to_owned()),
    }
}

fn cache_dir(text: &str) -> CacheDir {
    match text {
        "auto" => CacheDir::Auto,
        "off" => CacheDir::Off,
        folder => CacheDir::Folder(PathBuf::from(folder)),
    }
}

/// Whether `tracing` takes `text`, and would not take a misspelt level for a target: `inof` alone logs nothing.
fn directives(text: &str) -> bool {
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    let clear = text.split(',').all(|directive| {
        directive.contains(['=', '[']) || levels.iter().any(|level| directive.eq_ignore_ascii_case(level))
    });
    clear && EnvFilter::builder().parse(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::load::defaults;
    use super::*;

    #[test]
    fn every_key_of_the_defaults_is_read() {
        let (tree, mut problems) = (defaults(), Vec::new());
        let mut reader = Reader::new(&tree, &mut problems);
        settings(&mut reader).unwrap();
        let read: Vec<&str> = reader.paths_read().collect();
        assert_eq!(read, tree.paths().collect::<Vec<_>>());
        assert_eq!(problems, []);
    }
}
