//! `lookalike gallery`: in, out, and what is refused.

use std::fs;
use std::path::Path;

use lookalike::gallery::formats;
use serde_json::json;
use tempfile::TempDir;

use super::{import, run, text, write};
use crate::support::{Random, lookalike, sample_file};

#[test]
fn a_gallery_goes_in_and_out_and_in_again() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let report = import(&at.join("data")).json();
    assert_eq!(
        (&report["created"], &report["prototypes"], &report["identities"]),
        (&json!(true), &json!(60), &json!(12))
    );
    let list = run(at, "gallery list --data @/data --format json").json();
    assert_eq!(
        (&list["galleries"][0]["name"], &list["galleries"][0]["prototypes"]),
        (&json!("default"), &json!(60))
    );
    let shown = run(at, "gallery show --data @/data --format json").json();
    assert_eq!(shown["identities"].as_array().unwrap().len(), 12);
    let shown = run(at, "gallery show --data @/data --identity person_001 --format json").json();
    let indices: Vec<u64> =
        shown["prototypes"].as_array().unwrap().iter().map(|one| one["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 12, 24, 36, 48]);

    let said = run(at, "gallery export --data @/data @/out.npy").ok();
    assert!(said.starts_with("60 prototypes of default (generation 1) in "), "{said}");
    // The rows were of unit length, so every byte comes back.
    let read = |path: &Path| formats::read_vectors(path, &mut |_| ()).unwrap();
    assert_eq!(read(&at.join("out.npy")), read(&sample_file("gallery.npy")));
    assert_eq!(fs::read(at.join("out.csv")).unwrap(), fs::read(sample_file("gallery.csv")).unwrap());
    run(at, "gallery import --data @/again --labels @/out.csv @/out.npy").ok();
    let probes = sample_file("probes.jsonl");
    let ask = |data: &str| {
        let args =
            format!("recognize --data @/{data} --threshold 0.942 --min-margin 0.04 --format jsonl --probes ");
        run(at, &format!("{args}{}", text(&probes))).ok()
    };
    assert_eq!(ask("data"), ask("again"));

    let said = run(at, "gallery remove --data @/data --identity person_001").ok();
    assert_eq!(said, "default: removed 5 prototypes, 1 identities; generation 2; erased from the disk\n");
    let said = run(at, "gallery verify --data @/data").ok();
    assert_eq!(said, "1 galleries, 55 prototypes checked: sound\n");
    assert!(!ask("data").contains("\"person_001\""));
    let said = run(at, "gallery remove --data @/data --everything").ok();
    assert!(said.contains("the gallery is gone"), "{said}");
    let list = run(at, "gallery list --data @/data --format json").json();
    assert_eq!(list["galleries"], json!([]));
}

#[test]
fn a_bad_row_names_its_line_and_nothing_is_imported() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let line = |id: &str, embedding: &str| {
        format!("{{\"id\":\"{id}\",\"identity\":\"ann\",\"source\":\"\",\"embedding\":{embedding}}}\n")
    };
    for (bad, problem) in [
        (line("3", "[0.0, 0.0]"), "expected a direction, got the zero vector"),
        (line("1", "[0.5, 0.5]"), "expected each once, got it already at"),
        (line("3", "[0.5]"), "expected 2 components"),
        ("not json\n".to_owned(), "line 3"),
    ] {
        write(at, "faces.jsonl", &format!("{}{}{bad}", line("1", "[1.0, 0.0]"), line("2", "[0.0, 1.0]")));
        let ran = run(at, "gallery import --data @/data @/faces.jsonl");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{bad}");
        assert!(ran.stderr.contains("faces.jsonl line 3") && ran.stderr.contains(problem), "{}", ran.stderr);
        let data = at.join("data");
        if data.exists() {
            let list = run(at, "gallery list --data @/data --format json").json();
            assert_eq!(list["galleries"], json!([]));
        }
    }
    write(at, "labels.csv", "ann/1\nann/2\n");
    let mut random = Random::new(1);
    let mut rows: Vec<Vec<f32>> = (0..2).map(|_| random.vector(4)).collect();
    rows[1][2] = f32::NAN;
    formats::npy::write_f32(&at.join("faces.npy"), 4, rows.iter().map(Vec::as_slice)).unwrap();
    let ran = run(at, "gallery import --data @/data --labels @/labels.csv @/faces.npy");
    assert_eq!(ran.code, Some(1));
    let problem = "faces.npy row 1 (from 0): embedding: expected finite components, got NaN at component 2";
    assert!(ran.stderr.contains(problem), "{}", ran.stderr);
}

/// One line of JSON a prototype.
fn lines(prototypes: &[(&str, &str)]) -> String {
    let line = |(name, id): &(&str, &str)| {
        format!("{{\"identity\":\"{name}\",\"id\":\"{id}\",\"embedding\":[1.0,0.0]}}\n")
    };
    prototypes.iter().map(line).collect()
}

/// All look like each other, so that each is a conflict; but of what stands twice nothing else is said.
#[test]
fn what_stands_twice_is_told_before_who_looks_like_whom() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    write(at, "twice.jsonl", &lines(&[("ann", "1"), ("bob", "1"), ("ann", "1")]));
    write(at, "ann.jsonl", &lines(&[("ann", "1")]));
    write(at, "both.jsonl", &lines(&[("bob", "1"), ("ann", "1")]));
    let ran = run(at, "gallery import --data @/data --on-conflict reject @/twice.jsonl");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("twice.jsonl line 3") && ran.stderr.contains("got it already at"),
        "{}",
        ran.stderr
    );
    run(at, "gallery import --data @/data --on-conflict reject @/ann.jsonl").ok();
    let ran = run(at, "gallery import --data @/data --on-conflict reject @/both.jsonl");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("got what the gallery holds at index 0"), "{}", ran.stderr);
}

#[test]
fn many_conflicts_are_told_by_the_first_few() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let names: Vec<String> = (0..60).map(|person| format!("person_{person:02}")).collect();
    write(at, "alike.jsonl", &lines(&names.iter().map(|name| (name.as_str(), "1")).collect::<Vec<_>>()));
    let ran = run(at, "gallery import --data @/data --on-conflict reject @/alike.jsonl --format json");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let told = ran.stderr.trim_end();
    assert!(told.ends_with("; and 55 more (--format json lists them all)") && told.len() < 1000, "{told}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["conflicts"].as_array().unwrap().len(), 60);
}

/// What was found is told all the same, and the code says that not all is well.
#[test]
fn what_cannot_be_written_is_named_and_costs_no_result() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    import(&at.join("data")).ok();
    let nowhere = "cannot be written: its folder is not there: make it first";
    let ran = run(at, "gallery export --data @/data @/nowhere/out.npy");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(
        ran.stderr.contains(&format!("{}: {nowhere}", text(&at.join("nowhere/out.csv")))),
        "{}",
        ran.stderr
    );

    let ran = run(at, "validate --data @/data --html @/nowhere/page.html");
    assert!(ran.code == Some(1) && ran.stdout.contains("known probes"), "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains(&format!("{}: {nowhere}", text(&at.join("nowhere/page.html")))),
        "{}",
        ran.stderr
    );

    fs::create_dir_all(at.join("plots/det.svg")).unwrap();
    let ran = run(at, "calibrate --data @/data --draws 100 --plots @/plots");
    assert!(ran.code == Some(1) && ran.stdout.contains("strangers named"), "{}{}", ran.stdout, ran.stderr);
    let picture = format!("{}: expected a regular file, got a folder", text(&at.join("plots/det.svg")));
    assert!(ran.stderr.contains(&picture), "{}", ran.stderr);
}

#[test]
fn a_gallery_has_a_name_that_can_be_seen() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    write(at, "ann.jsonl", &lines(&[("ann", "1")]));
    let (data, file) = (at.join("data"), at.join("ann.jsonl"));
    let ran =
        lookalike().args(["gallery", "import", "--data", text(&data), "--gallery", "  ", text(&file)]).run();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("gallery name \"  \": expected a name, got blanks"), "{}", ran.stderr);
}

#[test]
fn nobody_validates_an_empty_gallery_unawares() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    write(at, "ann.jsonl", &lines(&[("ann", "1")]));
    run(at, "gallery import --data @/data @/ann.jsonl").ok();
    run(at, "gallery remove --data @/data --identity ann").ok();
    for probes in ["", " --probes @/ann.jsonl"] {
        let ran = run(at, &format!("validate --data @/data{probes}"));
        assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
        assert!(
            ran.stderr.contains("gallery \"default\" is empty: nobody can be recognised"),
            "{}",
            ran.stderr
        );
    }
}

/// Figures of 32 bits, in as many digits as tell them apart.
#[test]
fn json_shows_no_digits_that_a_figure_has_not() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    import(&at.join("data")).ok();
    let list = run(at, "gallery list --data @/data --format json").ok();
    assert!(list.contains("\"threshold\": 0.942,") && list.contains("\"min_margin\": 0.04,"), "{list}");
    // As near to one as to the other, at a score that is no short number.
    write(at, "new.jsonl", "{\"identity\":\"eve\",\"id\":\"1\",\"embedding\":[0.909,0.4168]}\n");
    write(at, "ann.jsonl", &lines(&[("ann", "1")]));
    run(at, "gallery import --data @/few @/ann.jsonl --threshold 0.5").ok();
    let told = run(at, "gallery import --data @/few @/new.jsonl --on-conflict warn --format json").ok();
    let score = told.split("\"score\": ").nth(1).unwrap().split([',', '\n']).next().unwrap();
    assert!(score.len() < 12 && score.parse::<f32>().unwrap() > 0.9, "{told}");
}
