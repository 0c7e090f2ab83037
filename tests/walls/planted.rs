//! The checks tried on bad text: each finds what was planted, and leaves good text alone.

use super::checks::{
    crates_out_of_place, forbidden_words, metric_names_out_of_place, no_comment_first, no_head, too_long,
    unwraps,
};
use super::layers::against_the_order;
use super::text::Source;

/// The lines on which a check finds fault.
fn lines(check: fn(&Source) -> Vec<String>, path: &str, text: &str) -> Vec<usize> {
    let prefix = format!("{path}:");
    let faults = check(&Source::new(path, text));
    faults
        .iter()
        .map(|fault| fault.strip_prefix(&prefix).unwrap().split(':').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn an_import_against_the_order_is_found_however_it_is_written() {
    for text in [
        "use crate::engine::Engine;",
        "use crate::{domain::Matrix, engine::Engine};",
        "use crate::{\n    domain::{Matrix, by_rank},\n    server,\n};",
        "fn f() -> crate::engine::Engine { todo() }",
        "use super::super::engine::Engine;",
        "#[cfg(test)]\nmod tests {\n    use crate::grpc::proto;\n}",
        "use lookalike::cli;",
    ] {
        assert_eq!(lines(against_the_order, "src/backend/cpu.rs", text).len(), 1, "{text}");
    }
    assert_eq!(lines(against_the_order, "src/backend/mod.rs", "\n\nuse super::engine::Engine;"), [3]);
    assert_eq!(lines(against_the_order, "src/domain/matrix.rs", "use crate::config::Settings;"), [1]);
    assert_eq!(lines(against_the_order, "src/config/load.rs", "use crate::gallery::Snapshot;"), [1]);
    assert_eq!(lines(against_the_order, "src/telemetry/logs.rs", "use crate::domain::Matrix;"), [1]);
}

#[test]
fn what_runs_with_the_order_is_left_alone() {
    for text in [
        "use crate::domain::Matrix;\nuse crate::{config, telemetry::Label};",
        "use crate::backend::cpu;\nuse super::engine;",
        "// use crate::engine::Engine;\n/* crate::cli */ /* /* nested */ crate::cli */",
        "const TEXT: &str = \"crate::engine\";\nconst RAW: &str = r#\"a \" crate::engine\"#;",
        "let engine = crate::backend::engine();",
    ] {
        assert_eq!(lines(against_the_order, "src/backend/opencl/scan.rs", text), [0; 0], "{text}");
    }
    let everything = "use crate::cli;\nuse crate::domain;";
    assert_eq!(lines(against_the_order, "src/main.rs", everything), [0; 0]);
}

#[test]
fn a_crate_out_of_its_place_is_found() {
    for (path, text) in [
        ("src/engine/mod.rs", "use ocl::Device;"),
        ("src/backend/cpu/mod.rs", "fn f() { ocl::core::finish(); }"),
        ("src/recognize/mod.rs", "use tonic::Status;"),
        ("src/gallery/mod.rs", "use prost::Message as _;"),
        ("src/config/validate.rs", "use serde_yaml;"),
        ("src/gallery/snapshot.rs", "use ::rusqlite::Connection;"),
    ] {
        assert_eq!(lines(crates_out_of_place, path, text), [1], "{path}");
    }
    for (path, text) in [
        ("src/backend/opencl/device.rs", "use ocl::Device;"),
        ("src/grpc/status.rs", "use tonic::Status;"),
        ("src/cli/demo.rs", "use tonic_health::pb;"),
        ("src/config/load.rs", "use serde_yaml::Value;"),
        ("src/gallery/store/mod.rs", "use rusqlite::Connection;"),
        ("src/engine/plan.rs", "// ocl::Device\nlet ocl = 1; let text = \"use tonic::Status\";"),
    ] {
        assert_eq!(lines(crates_out_of_place, path, text), [0; 0], "{path}");
    }
}

#[test]
fn a_metric_named_elsewhere_is_found() {
    let text = "//! lookalike_up\nconst NAME: &str = \"lookalike_requests_total\";";
    assert_eq!(lines(metric_names_out_of_place, "src/grpc/mod.rs", text), [2]);
    assert_eq!(lines(metric_names_out_of_place, "src/telemetry/metrics.rs", text), [0; 0]);
    let descriptor = "include_bytes!(\"/lookalike_descriptor.bin\")";
    assert_eq!(lines(metric_names_out_of_place, "src/grpc/mod.rs", descriptor), [0; 0]);
}

#[test]
fn a_file_without_its_head_is_found() {
    assert_eq!(lines(no_head, "src/x.rs", "use std::fs;\n//! late"), [1]);
    assert_eq!(lines(no_head, "src/x.rs", "//!"), [1]);
    assert_eq!(lines(no_head, "src/x.rs", "//! What it is."), [0; 0]);
    assert_eq!(lines(no_comment_first, "kernels/x.cl", "#define A 1\n// late"), [1]);
    assert_eq!(lines(no_comment_first, "kernels/x.cl", "// x.cl: what it is"), [0; 0]);
}

#[test]
fn unfinished_or_printing_code_is_found() {
    let text = "fn f() {\n    println!(\"x\");\n    todo!();\n    // FIXME: later\n    dbg!(1);\n}";
    assert_eq!(lines(forbidden_words, "src/x/y.rs", text), [4, 2, 3, 5]);
    let text = "let text = \"println!\"; // todo!() is a macro\nwriteln!(out)?;\nfn print() {}";
    assert_eq!(lines(forbidden_words, "src/x/y.rs", text), [0; 0]);
    let text =
        "#[cfg(test)]\nmod tests {\n    fn f() { println!(\"{}\", '}'); }\n}\nfn g() { print!(\"x\"); }";
    assert_eq!(lines(forbidden_words, "src/x/y.rs", text), [5]);
}

#[test]
fn an_unwrap_outside_of_tests_is_found() {
    let text = "fn f() {\n    x.unwrap();\n    y.unwrap_or(1);\n    z\n        .unwrap_err();\n}";
    assert_eq!(lines(unwraps, "src/x/y.rs", text), [2, 5]);
    let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn helper() { x.unwrap(); }\nfn f<'a>(s: &'a str) { \"x.unwrap()\"; }";
    assert_eq!(lines(unwraps, "src/x/y.rs", text), [0; 0]);
    assert_eq!(lines(unwraps, "src/x/tests.rs", "x.unwrap();"), [0; 0]);
    assert_eq!(lines(unwraps, "src/x/y.rs", "#[cfg(test)]\nuse a::b;\nfn f() { x.unwrap(); }"), [3]);
}

#[test]
fn a_long_file_is_found() {
    assert_eq!(lines(too_long, "src/x.rs", &"\n".repeat(501)), [501]);
    assert_eq!(lines(too_long, "src/x.rs", &"\n".repeat(500)), [0; 0]);
}
