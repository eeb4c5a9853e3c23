//! `lsl xdf`: what recordings contain, whether they are whole, repaired, salvaged, converted.

use std::fs;

use lsl_xdf::load;

use crate::lab::Lab;
use crate::recordings::{
    BEGIN, OFFSET, RATE, SAMPLES, SECRET, cut, folder_contains, holed, value, whole,
};

fn put(lab: &Lab, name: &str, bytes: &[u8]) -> String {
    let path = lab.path(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// A key pair: the file of the secret one, and the public one.
fn key(lab: &Lab, name: &str) -> (String, String) {
    let path = lab.path(name);
    let made = lab.run(&["key", "age", &path]).ok();
    (path, made.stdout.trim().to_owned())
}

#[test]
fn info_shows_streams() {
    let lab = Lab::new();
    let path = put(&lab, "a.xdf", &whole());
    let shown = lab.run(&["xdf", "info", &path]).ok();
    for part in ["2 streams", "Amp", "EEG", "500 Hz", "Markers", "2026-11-22"] {
        assert!(shown.stdout.contains(part), "{shown:?}");
    }
    assert_eq!(shown.stderr, "");
    let json = lab.run(&["xdf", "info", "--json", &path]).ok().json();
    let eeg = &json["streams"][0];
    assert_eq!(eeg["samples"], SAMPLES);
    assert_eq!(eeg["clock_offsets"], 3);
    assert_eq!(eeg["first_timestamp"], BEGIN);
    assert_eq!(eeg["has_footer"], true);
    assert_eq!(eeg["desc"]["channels"]["channel"][1]["label"], "C4");
    assert_eq!(json["encrypted"], false);
    let none = lab.run(&["xdf", "info", &lab.write("no.xdf", "no XDF")]);
    none.refused(1, &["not an XDF file"]);
    let two = lab.run(&["xdf", "info", &path, &lab.path("absent.xdf"), &path]);
    two.refused(1, &["absent.xdf"]);
    assert_eq!(two.stdout.matches("2 streams").count(), 2, "{two:?}");
}

#[test]
fn check_says_what_is_not_whole() {
    let lab = Lab::new();
    let good = put(&lab, "good.xdf", &whole());
    let checked = lab.run(&["xdf", "check", &good]).ok();
    assert!(checked.stdout.contains(": whole, 2 streams"), "{checked:?}");
    for (name, bytes) in [("cut.xdf", cut()), ("holed.xdf", holed())] {
        let bad = put(&lab, name, &bytes);
        let checked = lab.run(&["xdf", "check", "--json", &bad]);
        assert_eq!(checked.status, Some(1), "{checked:?}");
        let json = checked.json();
        assert_eq!(
            (&json["whole"], &json["repairable"]),
            (&false.into(), &true.into())
        );
        assert!(!json["errors"].as_array().unwrap().is_empty());
        let both = lab.run(&["xdf", "check", &good, &bad]);
        both.refused(1, &["1 of 2 files"]);
    }
}

#[test]
fn repair_in_place_and_into_another_file() {
    let lab = Lab::new();
    let path = put(&lab, "cut.xdf", &cut());
    let other = lab.path("repaired.xdf");
    let json = lab
        .run(&["xdf", "repair", "--json", &path, "-o", &other])
        .ok()
        .json();
    assert_eq!(json["changed"], true);
    assert_eq!(json["streams"][0]["footer_made"], true);
    assert_eq!(fs::read(&path).unwrap(), cut());
    lab.run(&["xdf", "check", &other]).ok();

    let called_so = lab.path("repaired.xdf.age");
    lab.run(&["xdf", "repair", &path, "-o", &called_so])
        .refused(2, &["would not be encrypted"]);
    assert!(!fs::exists(&called_so).unwrap());
    let repaired = lab.run(&["xdf", "repair", &path]).ok();
    assert!(
        repaired.stdout.contains("could not be kept"),
        "{repaired:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), fs::read(&other).unwrap());
    let kept = load(&fs::read(&path).unwrap()[..]).unwrap();
    let all = load(&whole()[..]).unwrap();
    let (kept, all) = (&kept.streams[0], &all.streams[0]);
    assert!(kept.stamps.len() > 100 && all.stamps.starts_with(&kept.stamps));
    let again = lab.run(&["xdf", "repair", &path]).ok();
    assert!(again.stdout.contains("was whole already"), "{again:?}");

    let holed = put(&lab, "holed.xdf", &holed());
    lab.run(&["xdf", "repair", &holed])
        .refused(2, &["--output FILE"]);
    lab.run(&["xdf", "repair", &holed, "-o", &other]).ok();
    // Readable by everybody, but what is gone is gone, and the footer knows.
    let checked = lab.run(&["xdf", "check", "--json", &other]);
    assert_eq!(checked.status, Some(1), "{checked:?}");
    let json = checked.json();
    assert_eq!(json["repairable"], false);
    assert_eq!(json["errors"].as_array().unwrap().len(), 1, "{json}");
    assert!(
        json["errors"][0]
            .as_str()
            .unwrap()
            .contains("its footer says 300")
    );
    // What was there has another name now.
    lab.run(&["xdf", "check", &lab.path("repaired_old1.xdf")])
        .ok();
}

#[test]
fn an_encrypted_recording_is_read_and_repaired_without_plaintext_on_the_disk() {
    let lab = Lab::new();
    let (identity, public) = key(&lab, "key.txt");
    let folder = lab.path("work");
    fs::create_dir(&folder).unwrap();
    let plain = put(&lab, "work/a.xdf", &cut());
    lab.run(&["lock", "--remove", "-r", &public, &plain]).ok();
    let locked = format!("{plain}.age");
    let clean = || !folder_contains(folder.as_ref(), SECRET.as_bytes());
    assert!(clean());

    let shown = lab.run(&["xdf", "info", "-i", &identity, &locked]).ok();
    assert!(shown.stdout.contains("encrypted"), "{shown:?}");
    lab.run(&["xdf", "info", &locked])
        .refused(1, &["--identity"]);
    let checked = lab.run(&["xdf", "check", "-i", &identity, &locked]);
    checked.refused(1, &["not whole"]);

    let output = lab.path("work/b.xdf.age");
    let repair = ["xdf", "repair", "-i", &identity, &locked];
    lab.run(&repair).refused(2, &["--output"]);
    lab.run(&[&repair[..], &["-o", &output]].concat())
        .refused(2, &["--recipient"]);
    lab.run(&[&repair[..], &["-o", &output, "-r", &public]].concat())
        .ok();
    assert!(clean());
    lab.run(&["xdf", "check", "-i", &identity, &output]).ok();
    // The age file itself cut, as by a crash of an encrypted recording.
    let mut long = whole();
    long.extend(whole()[4..].repeat(12));
    let long = put(&lab, "work/long.xdf", &long);
    lab.run(&["lock", "--remove", "-r", &public, &long]).ok();
    let long = format!("{long}.age");
    let bytes = fs::read(&long).unwrap();
    assert!(bytes.len() > 70_000, "{}", bytes.len());
    fs::write(&long, &bytes[..bytes.len() - 1000]).unwrap();
    lab.run(&["xdf", "check", "-i", &identity, &long])
        .refused(1, &["not whole"]);
    let output = lab.path("work/c.xdf.age");
    lab.run(&[
        "xdf", "repair", "-i", &identity, &long, "-o", &output, "-r", &public,
    ])
    .ok();
    lab.run(&["xdf", "info", "-i", &identity, &output]).ok();
    lab.run(&["verify", "-i", &identity, &output]).ok();
    assert!(clean());
}

#[test]
fn salvage_takes_what_can_be_read() {
    let lab = Lab::new();
    let mut bytes = holed();
    bytes[..200].fill(0);
    let path = put(&lab, "bad.xdf", &bytes);
    let output = lab.path("saved.xdf");
    let json = lab
        .run(&["xdf", "salvage", "--json", &path, "-o", &output])
        .ok()
        .json();
    assert!(json["lost_bytes"].as_u64().unwrap() > 0);
    lab.run(&["xdf", "check", &output]).ok();
    let one = lab.path("one.xdf");
    lab.run(&["xdf", "salvage", &path, "--streams", "2", "-o", &one])
        .ok();
    assert_eq!(load(&fs::read(&one).unwrap()[..]).unwrap().streams.len(), 1);
}

#[test]
fn tables_hold_exactly_what_was_recorded() {
    let lab = Lab::new();
    let path = put(&lab, "day.xdf", &whole());
    let folder = lab.path("tables");
    let made = lab.run(&["xdf", "convert", &path, "-o", &folder]).ok();
    assert_eq!(made.stdout.lines().count(), 2, "{made:?}");
    let table = fs::read_to_string(format!("{folder}/day_1_Amp.csv")).unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("timestamp,timestamp_corrected,C3,C4"));
    for (n, line) in lines.clone().enumerate() {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let stamp = BEGIN + n as f64 / RATE;
        assert_eq!(cells[0].to_bits(), stamp.to_bits(), "{line}");
        assert!((cells[1] - stamp - OFFSET).abs() < 1e-9, "{line}");
        assert_eq!(
            cells[2..],
            [value(n, 0), value(n, 1)].map(f64::from),
            "{line}"
        );
    }
    assert_eq!(lines.count(), SAMPLES);
    let markers = fs::read_to_string(format!("{folder}/day_2_Markers.csv")).unwrap();
    assert!(
        markers.contains(&format!("\"{SECRET}")) || markers.contains(SECRET),
        "{markers}"
    );
    assert_eq!(markers.lines().count(), 4);

    let again = lab.run(&["xdf", "convert", &path, "-o", &folder]);
    again.refused(2, &["--force"]);
    lab.run(&[
        "xdf",
        "convert",
        &path,
        "-o",
        &folder,
        "--force",
        "--streams",
        "2",
    ])
    .ok();
    let none = lab.run(&["xdf", "convert", &path, "-o", &folder, "--streams", "9"]);
    none.refused(3, &["no stream 9"]);
}

/// That they hold what they should takes a reader of another make.
#[test]
fn parquet_files_are_made() {
    let lab = Lab::new();
    let path = put(&lab, "day.xdf", &whole());
    lab.run(&["xdf", "convert", "--to", "parquet", &path]).ok();
    for name in ["day_1_Amp.parquet", "day_2_Markers.parquet"] {
        let bytes = fs::read(lab.path(name)).unwrap();
        assert!(
            bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"),
            "{name}"
        );
    }
}

#[cfg(unix)]
#[test]
fn channel_counts_are_capped_before_anything_is_allocated() {
    let lab = Lab::new();
    let header = |id: u32, channels: u64| {
        let xml = format!(
            "<info><name>x</name><channel_count>{channels}</channel_count>\
             <nominal_srate>0</nominal_srate><channel_format>int8</channel_format></info>"
        );
        let len = u32::try_from(2 + 4 + xml.len()).unwrap();
        let mut chunk = vec![4];
        chunk.extend(len.to_le_bytes());
        chunk.extend(2_u16.to_le_bytes());
        chunk.extend(id.to_le_bytes());
        chunk.extend(xml.as_bytes());
        chunk
    };
    // The whole of an honest one, then what nobody can record, and what nobody has recorded.
    let mut file = whole();
    file.extend(header(1001, u64::from(u32::MAX)));
    file.extend(header(1002, 60_000_000));
    let path = put(&lab, "many.xdf", &file);
    let within_2_gb = |words: &[&str]| {
        let command = lab.command(words);
        let mut shell = std::process::Command::new("sh");
        shell
            .arg("-c")
            .arg("ulimit -v 2000000; exec \"$0\" \"$@\"")
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(lab.path(""))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        crate::lab::Running::start(&mut shell).wait()
    };
    let converted = within_2_gb(&["xdf", "convert", &path]).ok();
    assert_eq!(converted.stdout.lines().count(), 2, "{converted:?}");
    assert!(
        converted.stderr.contains("60000000 channels"),
        "{converted:?}"
    );
    let checked = within_2_gb(&["xdf", "check", &path]);
    assert!(checked.stdout.contains("channels"), "{checked:?}");
    within_2_gb(&["xdf", "info", &path]).ok();
    within_2_gb(&["xdf", "salvage", &path, "-o", &lab.path("out.xdf")]).ok();
    let played = ["play", &path, "--speed", "100"];
    within_2_gb(&played).ok();
}
