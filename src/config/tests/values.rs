//! What values each key takes.

use super::*;

#[test]
fn what_is_known_of_devices_is_kept_in_a_folder_or_not() {
    let set = |text: &str| {
        with_flags(&[&format!("backend.opencl.cache_dir={text}")]).map(|s| s.backend.opencl.cache_dir)
    };
    assert_eq!(set("auto"), Ok(CacheDir::Auto));
    assert_eq!(set("off"), Ok(CacheDir::Off));
    // It need not be there yet.
    assert_eq!(set("/var/cache/x"), Ok(CacheDir::Folder("/var/cache/x".into())));
    // `false` is no text.
    assert!(set("false").is_err() && set("").is_err());
}

#[test]
fn every_range_holds_at_both_ends_and_stands_in_the_comments() {
    for (path, low, high, stated) in [
        ("server.limits.max_message_bytes", 1024_i64, 1_073_741_824_i64, "1024 to 1073741824"),
        ("server.limits.max_probes", 1, 65_536, "1 to 65536"),
        ("server.limits.max_top_k", 1, 1_000_000, "1 to 1000000"),
        ("server.limits.max_neighbors", 1, 100_000_000, "1 to 100000000"),
        ("server.limits.max_candidates", 1, 100_000, "1 to 100000"),
        ("server.limits.max_connections", 1, 1_000_000, "1 to 1000000"),
        ("server.limits.max_in_flight", 1, 100_000, "1 to 100000"),
        ("server.limits.queue", 1, 100_000, "1 to 100000"),
        ("recognition.top_k", 1, 1_000_000, "1 to 1000000"),
        ("backend.batch_probes", 1, 65_536, "1 to 65536"),
        ("backend.cpu.threads", 0, 1024, "1 to 1024, or 0"),
        ("backend.opencl.chunk_rows", 0, 100_000_000, "1 to 100000000, or 0"),
        ("backend.opencl.memory_limit_mib", 1, 1_048_576, "1 to 1048576"),
        ("shadow.queue", 1, 1_000_000, "1 to 1000000"),
        ("shadow.timeout_ms", 1, 600_000, "1 to 600000"),
        ("shadow.record.max_bytes", 65_536, 1_099_511_627_776, "65536 to 1099511627776"),
        ("shadow.gate.min_comparisons", 1, 1_000_000_000_000, "1 to 1000000000000"),
    ] {
        for value in [low, high] {
            assert!(with_flags(&[&format!("{path}={value}")]).is_ok(), "{path} takes {value}");
        }
        for value in [(low - 1).to_string(), (high + 1).to_string(), "1.5e3".to_owned(), "1e99".to_owned()] {
            let error = with_flags(&[&format!("{path}={value}")]).unwrap_err();
            let expected = format!("{path}: expected an integer from {low} to {high}, got ");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        assert!(comment_of(path).contains(stated), "{path} says {stated}");
    }
    for (path, within, beyond, stated) in [
        ("recognition.threshold", ["-1", "1.0"], ["-1.01", "1.001"], "-1 to 1"),
        ("recognition.margin", ["0", "2"], ["-0.001", "2.1"], "0 to 2"),
        ("shadow.sampling", ["0", "1"], ["-0.001", "1.001"], "0 to 1"),
        ("shadow.score_tolerance", ["0", "0.01"], ["-0.001", "0.0101"], "0 to 0.01"),
        ("shadow.gate.max_hard_rate", ["0", "1"], ["-0.001", "1.001"], "0 to 1"),
        ("shadow.gate.max_soft_ratio", ["0", "1"], ["-0.001", "1.001"], "0 to 1"),
        ("shadow.gate.max_failure_ratio", ["0", "1"], ["-0.001", "1.001"], "0 to 1"),
        ("shadow.gate.max_drop_ratio", ["0", "1"], ["-0.001", "1.001"], "0 to 1"),
        ("shadow.gate.max_latency_ratio", ["0", "1000"], ["-0.001", "1000.1"], "0 to 1000"),
        ("server.shutdown_grace", ["0s", "1h"], ["-1s", "3601s"], "0s to 1h"),
        ("backend.opencl.probe_timeout", ["1s", "10m"], ["999ms", "601s"], "1s to 10m"),
        ("backend.opencl.timeout", ["100ms", "1h"], ["99ms", "3601s"], "100ms to 1h"),
    ] {
        for value in within {
            assert!(with_flags(&[&format!("{path}={value}")]).is_ok(), "{path} takes {value}");
        }
        for value in beyond.into_iter().chain([".inf", "-.inf", ".nan", "true", "9e99", "~", "ten"]) {
            let error = with_flags(&[&format!("{path}={value}")]).unwrap_err();
            assert_eq!(error.problems().len(), 1, "{path}={value}");
            assert_eq!(error.problems()[0].path, path);
        }
        assert!(comment_of(path).contains(stated), "{path} says {stated}");
    }
}

/// The comment above a key of the defaults.
fn comment_of(path: &str) -> String {
    let mut lines = DEFAULTS.lines();
    let mut comment = String::new();
    for (depth, key) in path.split('.').enumerate() {
        let start = format!("{}{key}:", "  ".repeat(depth));
        comment.clear();
        for line in lines.by_ref().take_while(|line| !line.starts_with(&start)) {
            if line.trim_start().starts_with('#') {
                comment.push_str(line);
            } else {
                comment.clear();
            }
        }
    }
    comment
}

#[test]
fn addresses_are_numbers_or_localhost() {
    let listen =
        |text: &str| with_flags(&[&format!("server.listen={text}")]).map(|s| s.server.listen.to_string());
    assert_eq!(listen("localhost:0").unwrap(), "127.0.0.1:0");
    for loopback in ["127.8.9.1:1", "[::1]:50051", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(listen(loopback).unwrap(), loopback);
    }
    for other in
        ["50051", "127.0.0.1", "127.0.0.1:65536", ":50051", "localhost", "example.org:1", "localhost:x"]
    {
        let error = listen(other).unwrap_err().to_string();
        assert!(
            error.starts_with("server.listen: expected an address such as 127.0.0.1:50051, got "),
            "{error}"
        );
    }
}

#[test]
fn listening_beyond_loopback_must_be_allowed_by_name() {
    for open in ["0.0.0.0:50051", "[::]:50051", "192.168.1.2:50051", "[::ffff:10.0.0.1]:1"] {
        let listen = format!("server.listen={open}");
        let error = with_flags(&[&listen]).unwrap_err().to_string();
        assert!(error.contains("server.allow_insecure: true allows that"), "{error}");
        let allowed = with_flags(&[&listen, "server.allow_insecure=true"]).unwrap();
        assert_eq!(allowed.server.listen, open.parse().unwrap());
    }
    assert!(with_flags(&["metrics.listen=0.0.0.0:9464"]).is_err());
    assert!(with_flags(&["metrics.listen=0.0.0.0:9464", "server.allow_insecure=true"]).is_ok());
}

#[test]
fn two_listeners_need_two_addresses() {
    for (server, metrics, clash) in [
        ("127.0.0.1:7000", "127.0.0.1:7000", true),
        ("127.0.0.1:7000", "0.0.0.0:7000", true),
        ("127.0.0.1:7000", "[::]:7000", true),
        ("[::1]:7000", "0.0.0.0:7000", false),
        ("127.0.0.1:7000", "127.0.0.2:7000", false),
        ("127.0.0.1:7000", "127.0.0.1:7001", false),
        ("127.0.0.1:0", "127.0.0.1:0", false),
        ("127.0.0.1:7000", "off", false),
    ] {
        let (server_flag, metrics_flag) =
            (format!("server.listen={server}"), format!("metrics.listen={metrics}"));
        let loaded = with_flags(&[&server_flag, &metrics_flag, "server.allow_insecure=true"]);
        let problems = loaded.map_or_else(|error| lines(&error), |_| Vec::new());
        let expected = format!(
            "metrics.listen: expected another address than server.listen ({server}), got \"{metrics}\" \
             (from flag --set metrics.listen)"
        );
        assert_eq!(problems, if clash { vec![expected] } else { Vec::new() });
    }
}

#[test]
fn devices_are_automatic_named_or_numbered() {
    let device =
        |text: &str| with_flags(&[&format!("backend.opencl.device={text}")]).map(|s| s.backend.opencl.device);
    assert_eq!(device("auto"), Ok(DeviceChoice::Auto));
    assert_eq!(device("0:1"), Ok(DeviceChoice::Numbered { platform: 0, device: 1 }));
    for name in ["Mali-G610", "0:1:2", "0:x", "NVIDIA H200"] {
        assert_eq!(device(name), Ok(DeviceChoice::Named(name.to_owned())));
    }
    for bad in ["''", "' '", "4090", "true", "~"] {
        assert_eq!(device(bad).unwrap_err().problems()[0].path, "backend.opencl.device", "{bad}");
    }
}

#[test]
fn log_levels_are_levels_or_directives() {
    for level in
        ["trace", "WARN", "off", "lookalike=debug,warn", "info,tonic=off", "[request{id=\"a\"}]=trace"]
    {
        assert_eq!(with_flags(&[&format!("log.level={level:?}")]).map(|s| s.log.level), Ok(level.to_owned()));
    }
    for bad in ["inof", "lookalike", "lookalike=loud", "", "info,,warn", "3"] {
        assert!(with_flags(&[&format!("log.level={bad}")]).is_err(), "{bad}");
    }
}

#[test]
fn a_kernel_folder_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let set = |path: &Path| with_flags(&[&format!("backend.opencl.kernel_dir={}", path.display())]);
    assert_eq!(set(folder.path()).unwrap().backend.opencl.kernel_dir.as_deref(), Some(folder.path()));
    let file = file(b"");
    assert!(set(file.path()).is_err());
}

#[test]
fn a_shadow_is_another_backend_than_the_primary_and_both_are_known() {
    let shadow = |primary: &str, shadow: &str| {
        let flags = [
            "shadow.enabled=true".to_owned(),
            format!("backend.kind={primary}"),
            format!("shadow.backend={shadow}"),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        with_flags(&flags).map_err(|error| error.problems()[0].path.clone())
    };
    assert!(shadow("cpu", "opencl").is_ok() && shadow("opencl", "cpu").is_ok());
    assert!(shadow("cpu", "reference").is_ok() && shadow("reference", "opencl").is_ok());
    assert_eq!(shadow("cpu", "cpu").unwrap_err(), "shadow.backend");
    assert_eq!(shadow("auto", "opencl").unwrap_err(), "backend.kind");
    assert_eq!(shadow("cpu", "auto").unwrap_err(), "shadow.backend");
    let told = with_flags(&["shadow.enabled=true", "backend.kind=auto"]).unwrap_err().to_string();
    assert!(told.contains("name cpu here and opencl as shadow.backend"), "{told}");
    // Nobody is compared: anything goes.
    assert!(with_flags(&["backend.kind=cpu", "shadow.backend=cpu"]).is_ok());
}
