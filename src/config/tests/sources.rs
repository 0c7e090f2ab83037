//! What each source says, and which one wins.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use super::*;

/// What loading a file with this text says, its name left out.
fn of_file(text: &[u8]) -> Result<Settings, Vec<String>> {
    let file = file(text);
    let origin = format!(" (from file {})", file.path().display());
    load(&sources(Some(file.path()), &[], &[]))
        .map_err(|error| error.to_string().lines().map(|line| line.replace(&origin, "")).collect())
}

#[test]
fn the_defaults_load() {
    let settings = load(&Sources::default()).unwrap();
    assert_eq!(settings.server.listen, "127.0.0.1:50051".parse().unwrap());
    assert_eq!(settings.server.shutdown_grace, Duration::from_secs(10));
    assert_eq!(settings.server.limits.max_neighbors, 1_000_000);
    assert_eq!(settings.metrics.listen, Some("127.0.0.1:9464".parse().unwrap()));
    assert_eq!(settings.log, LogSettings { level: "info".to_owned(), format: LogFormat::Human });
    assert_eq!(settings.storage.path, PathBuf::from("lookalike-data"));
    assert!((settings.recognition.threshold.get() - 0.5).abs() < f32::EPSILON);
    assert_eq!(settings.backend.kind, BackendKind::Auto);
    assert_eq!(settings.backend.cpu.threads, available_parallelism().map_or(1, NonZero::get));
    assert_eq!(settings.backend.opencl.device, DeviceChoice::Auto);
    assert_eq!(
        (settings.backend.opencl.memory_limit_bytes, settings.backend.opencl.kernel_dir),
        (None, None)
    );
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file = file(b"server:\n  limits: {max_probes: 2, max_top_k: 2, queue: 2}\n");
    let environment = [
        ("LOOKALIKE__SERVER__LIMITS__MAX_TOP_K", "3"),
        ("lookalike__server__limits__Queue", "3"),
        ("LOOKALIKE_SERVER_LIMITS_MAX_PROBES", "none of ours"),
        ("PATH", "/bin"),
    ];
    let flags = ["server.limits.queue=3", "server.limits.queue=4"];
    let limits = load(&sources(Some(file.path()), &environment, &flags)).unwrap().server.limits;
    assert_eq!((limits.max_probes, limits.max_top_k, limits.queue), (2, 3, 4));
    assert_eq!(limits.max_candidates, 1000);
}

#[test]
fn values_given_as_text_are_yaml_scalars_or_themselves() {
    let environment = [
        ("LOOKALIKE__BACKEND__OPENCL__ALLOW_CPU_DEVICES", "true"),
        ("LOOKALIKE__BACKEND__OPENCL__KERNEL_DIR", ""),
        ("LOOKALIKE__BACKEND__OPENCL__MEMORY_LIMIT_MIB", "2"),
        ("LOOKALIKE__STORAGE__PATH", "'2024'"),
        ("LOOKALIKE__SERVER__SHUTDOWN_GRACE", "1m 30s"),
    ];
    let flags = ["backend.opencl.device=NVIDIA: [H200", "recognition.threshold=1", "metrics.listen=off"];
    let settings = load(&sources(None, &environment, &flags)).unwrap();
    assert!(settings.backend.opencl.allow_cpu_devices);
    assert_eq!(settings.backend.opencl.kernel_dir, None);
    assert_eq!(settings.backend.opencl.memory_limit_bytes, Some(2 << 20));
    assert_eq!(settings.backend.opencl.device, DeviceChoice::Named("NVIDIA: [H200".to_owned()));
    assert_eq!(settings.storage.path, PathBuf::from("2024"));
    assert_eq!(settings.server.shutdown_grace, Duration::from_secs(90));
    assert!((settings.recognition.threshold.get() - 1.0).abs() < f32::EPSILON);
    assert_eq!(settings.metrics.listen, None);
}

#[test]
fn every_fault_of_a_file_is_listed_with_its_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/faulty-config.yaml");
    let error = load(&sources(Some(&path), &[], &[])).unwrap_err();
    let origin = format!(" (from file {})", path.display());
    let lines: Vec<String> = lines(&error).iter().map(|line| line.replace(&origin, "")).collect();
    let expected = [
        "server.limits.queue: expected one value, got the same key again",
        "backend.fallback: expected a single value, got a section",
        "backend.opencl.chunk_rows: expected a single value, got a list",
        "listen: expected a known key (did you mean metrics.listen?), got an unknown one",
        "log: expected a section with keys of format, level, got \"info\"",
        "recognition.min_margin: expected a known key (lookalike has recognition.margin, recognition.threshold, recognition.top_k), got an unknown one",
        "server.limts: expected a known key (did you mean server.limits?), got an unknown one",
        "server.shutdown_grace: expected a duration from 0s to 1h, such as 10s, got \"2h\"",
        "server.limits.max_probes: expected an integer from 1 to 65536, got 0",
        "server.limits.max_top_k: expected an integer from 1 to 1000000, got 10.5",
        "server.limits.max_candidates: expected an integer from 1 to 100000, got \"many\"",
        "server.listen: expected a loopback address, since beyond it embeddings travel in the clear to whoever asks (server.allow_insecure: true allows that), got \"0.0.0.0:50051\"",
        "metrics.listen: expected an address such as 127.0.0.1:9464, or off, got 9464",
        "metrics.gallery_label: expected true or false, got \"yes\"",
        "storage.path: expected a folder's path (in quotes if it reads as a number), got \"\"",
        "recognition.threshold: expected a number from -1 to 1, got 1.5",
        "recognition.margin: expected a number from 0 to 2, got \".nan\"",
        "backend.kind: expected auto, cpu, opencl or reference, got \"gpu\"",
        "backend.cpu.threads: expected an integer from 0 to 1024, got -1",
        "backend.opencl.device: expected auto, all, part of a device's name (in quotes if it reads as a number), or numbers such as 0:1, got nothing (null)",
        "backend.opencl.kernel_dir: expected an existing folder (in quotes if it reads as a number), or null, got \"/no/such/folder\"",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_faulty_file_does_not_hide_the_faults_of_other_sources() {
    let missing = Path::new("/no/such/config.yaml");
    let environment = [
        ("LOOKALIKE__SERVER__LISTNE", "x"),
        ("LOOKALIKE__LOG__LEVEL", "loud"),
        ("lookalike__log__level", "info"),
        ("LOOKALIKE__", "x"),
        ("LOOKALIKE__STORAGE__PATH", "caf\u{fffd}"),
    ];
    let flags = ["server.limits.queue=0", "queue", "=3", "server=5"];
    let error = load(&sources(Some(missing), &environment, &flags)).unwrap_err();
    let expected = [
        "configuration: expected a readable file, got No such file or directory (os error 2) (from file /no/such/config.yaml)",
        "configuration: expected a variable named LOOKALIKE__SECTION__KEY, got \"LOOKALIKE__\" (from environment LOOKALIKE__)",
        "server.listne: expected a known key (did you mean server.listen?), got an unknown one (from environment LOOKALIKE__SERVER__LISTNE)",
        "storage.path: expected UTF-8 text, got \"caf\u{fffd}\" (from environment LOOKALIKE__STORAGE__PATH)",
        "log.level: expected one variable for this key, as LOOKALIKE__LOG__LEVEL sets it too, got \"info\" (from environment lookalike__log__level)",
        "configuration: expected key.path=value, got \"queue\" (from flag --set)",
        "configuration: expected key.path=value, got \"=3\" (from flag --set)",
        "server: expected a section with keys of allow_insecure, limits, listen, shutdown_grace, tokens, got 5 (from flag --set server)",
        "server.limits.queue: expected an integer from 1 to 100000, got 0 (from flag --set server.limits.queue)",
        "log.level: expected error, warn, info, debug, trace, off or target=level, comma-separated without spaces, got \"loud\" (from environment LOOKALIKE__LOG__LEVEL)",
    ];
    assert_eq!(lines(&error), expected);
}

/// A command's own flag wins over all else, and a fault of it names the flag that was typed.
#[test]
fn a_commands_own_flags_are_named_as_they_were_typed() {
    let own = |setting: &str| OwnSetting { origin: "flag --backend", setting: setting.to_owned() };
    let flags = ["backend.kind=opencl"];
    let with = |setting| load(&Sources { own: vec![own(setting)], ..sources(None, &[], &flags) });
    assert_eq!(with("backend.kind=cpu"), with_flags(&["backend.kind=cpu"]));
    let [told] = &lines(&with("backend.kind=foo").unwrap_err())[..] else { panic!("one fault") };
    assert!(told.ends_with("got \"foo\" (from flag --backend)"), "{told}");
}

#[test]
fn a_file_that_is_no_mapping_is_refused_with_the_place() {
    let first = |text: &[u8]| of_file(text).unwrap_err().remove(0);
    let broken = first(b"server:\n  listen: [\n");
    assert!(
        broken.starts_with("configuration: expected a YAML mapping, got ") && broken.contains("line "),
        "{broken}"
    );
    let tagged = first(b"server: !secret\n  listen: x\n");
    assert!(tagged.contains("a tag, which no setting takes at line 1"), "{tagged}");
    assert!(
        first(b"- 1\n").starts_with("configuration: expected a section with keys of backend, log, metrics")
    );
    assert!(first(b"server: {}\n---\nserver: {}\n").contains("more than one document"));
    assert_eq!(
        first(b"storage: {path: \xff}\n"),
        "configuration: expected UTF-8 text, got another byte at offset 16"
    );
    for nothing in [&b""[..], b"# all commented out\n"] {
        assert_eq!(of_file(nothing), Ok(load(&Sources::default()).unwrap()));
    }
    let folder = tempfile::tempdir().unwrap();
    let error = load(&sources(Some(folder.path()), &[], &[])).unwrap_err();
    assert!(error.to_string().starts_with("configuration: expected a readable file, got "), "{error}");
}

#[test]
fn what_a_file_may_come_to_is_bounded() {
    let mut text = b"server: {}\n".to_vec();
    text.resize(1 << 20, b'#');
    assert!(of_file(&text).is_ok());
    text.push(b'#');
    assert_eq!(of_file(&text).unwrap_err(), ["configuration: expected at most 1048576 bytes, got more"]);

    let long = "x".repeat(100_000);
    let bomb = format!("a: &a {long}\nb: [{}]\n", "*a, ".repeat(100));
    let refused = of_file(bomb.as_bytes()).unwrap_err();
    assert!(refused[0].contains("more than 4194304 bytes once aliases are followed"), "{refused:?}");

    let deep = of_file("[".repeat(1000).as_bytes()).unwrap_err();
    assert!(deep[0].contains("recursion limit exceeded"), "{deep:?}");

    let keys: Vec<String> = (0..3000).map(|key| format!("unknown_{key}: 1")).collect();
    let refused = of_file(keys.join("\n").as_bytes()).unwrap_err();
    assert_eq!(refused.len(), 1001);
    assert_eq!(refused[1000], "only the first 1000 problems are listed");
}
