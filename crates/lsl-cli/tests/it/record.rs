//! Recording: every format, every way to stop, streams that come late and go, and what is in the file
//! afterwards. Counters in the samples prove that nothing is missing.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lsl_core::{ChannelFormat, StreamInfo, local_clock};
use lsl_xdf::{Loaded, LoadedStream, Values, load};

use crate::lab::{Ended, Lab, Running};

/// Waits for something.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = local_clock() + 60.0;
    while !holds() {
        assert!(local_clock() < deadline, "no {what} within 60 s");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn generate<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["gen", "--name", name, "--pattern", "counter"];
    words.extend(["--rate", "500", "--format", "int32", "--channels", "2"]);
    words.extend(more);
    words
}

/// Waits until a recording has samples on the disk.
#[track_caller]
pub(crate) fn until_recording(path: &str, bytes: u64) {
    until("recording", || {
        std::fs::metadata(path).is_ok_and(|file| file.len() > bytes)
    });
}

/// Reads a file in which nothing may be wrong.
#[track_caller]
pub(crate) fn read(path: &str) -> Loaded {
    let loaded = load(std::fs::File::open(path).unwrap()).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    for stream in &loaded.streams {
        let footer = stream.footer.as_ref().unwrap();
        assert_eq!(footer.sample_count(), Some(stream.stamps.len() as u64));
        assert_eq!(footer.clock_offsets(), stream.offsets);
        if let (Some(&first), Some(&last)) = (stream.stamps.first(), stream.stamps.last()) {
            assert_eq!(footer.first_timestamp(), Some(first));
            assert_eq!(footer.last_timestamp(), Some(last));
        }
    }
    assert!(!Path::new(&format!("{path}.lslj")).exists(), "a journal");
    loaded
}

#[track_caller]
pub(crate) fn stream<'a>(loaded: &'a Loaded, name: &str) -> &'a LoadedStream {
    let mut found = loaded.streams.iter().filter(|it| it.header.name() == name);
    let stream = found.next().unwrap_or_else(|| panic!("no stream {name}"));
    assert!(found.next().is_none(), "two streams {name}");
    stream
}

/// The counter of each sample, which all its channels carry.
#[track_caller]
pub(crate) fn counters(stream: &LoadedStream) -> Vec<i64> {
    fn whole<T: Copy + Into<f64>>(list: &[T]) -> Vec<i64> {
        #[expect(clippy::cast_possible_truncation, reason = "counters are small")]
        list.iter().map(|&value| value.into() as i64).collect()
    }
    let all: Vec<i64> = match &stream.values {
        Values::Float32(list) => whole(list),
        Values::Double64(list) => whole(list),
        Values::Int32(list) => whole(list),
        Values::Int16(list) => whole(list),
        Values::Int8(list) => whole(list),
        Values::Int64(list) => list.clone(),
        Values::String(list) => list
            .iter()
            .map(|text| String::from_utf8_lossy(text).parse().unwrap())
            .collect(),
    };
    let channels = stream.header.channel_count();
    let samples = all.chunks_exact(channels);
    assert_eq!(samples.len(), stream.stamps.len());
    samples
        .map(|sample| {
            assert!(sample.iter().all(|value| value == &sample[0]));
            sample[0]
        })
        .collect()
}

/// Counters without a hole.
#[track_caller]
pub(crate) fn nothing_is_missing(stream: &LoadedStream) -> Vec<i64> {
    let numbers = counters(stream);
    assert!(!numbers.is_empty(), "no samples");
    for pair in numbers.windows(2) {
        assert_eq!(pair[1], pair[0] + 1, "samples are missing");
    }
    numbers
}

/// How a recording ended, and what was said of it.
pub(crate) trait Verdict {
    fn with(self, status: i32, parts: &[&str]) -> Self;
}

impl Verdict for Ended {
    #[track_caller]
    fn with(self, status: i32, parts: &[&str]) -> Self {
        assert_eq!(self.status, Some(status), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "'{part}' in {self:?}");
        }
        self
    }
}

pub(crate) fn start(lab: &Lab, words: &[&str]) -> Running {
    let mut all = vec!["record"];
    all.extend(words);
    lab.start(&all)
}

#[test]
fn every_format_is_recorded_with_equal_stamps_and_values() {
    for format in [
        "float32", "double64", "string", "int32", "int16", "int8", "int64",
    ] {
        let lab = Lab::new();
        let path = lab.path("all.xdf");
        let _generator = lab.start(&[
            "gen",
            "--name",
            "Count",
            "--format",
            format,
            "--channels",
            "3",
            "--rate",
            "400",
            "--pattern",
            "counter",
            "--wait",
        ]);
        let recorder = start(&lab, &["Count", "-o", &path]);
        until_recording(&path, 0);
        let received = lab
            .run(&["recv", "Count", "-o", "jsonl", "--count", "100"])
            .ok();
        recorder.interrupt();
        recorder.wait().with(0, &["Recorded "]);
        let loaded = read(&path);
        let recorded = stream(&loaded, "Count");
        let numbers = counters(recorded);
        assert_eq!(numbers[0], 0, "{format}: the first samples are missing");
        for pair in numbers.windows(2) {
            let wraps = format == "int8" && pair == [127, -128];
            assert!(pair[1] == pair[0] + 1 || wraps, "{format}: {pair:?}");
        }
        let by_stamp: HashMap<u64, i64> = recorded
            .stamps
            .iter()
            .map(|stamp| stamp.to_bits())
            .zip(numbers.iter().copied())
            .collect();
        for line in received.json_lines() {
            let stamp = line["t"].as_f64().unwrap();
            let value = &line["v"][0];
            #[expect(clippy::cast_possible_truncation, reason = "counters are small")]
            let value = match value.as_str() {
                Some(text) => text.parse().unwrap(),
                None => value.as_f64().unwrap() as i64,
            };
            assert_eq!(by_stamp.get(&stamp.to_bits()), Some(&value), "{format}");
        }
        let (time, offset) = recorded.offsets[0];
        assert!(offset.abs() < 0.01, "{format}: one clock, {offset}");
        assert!((time - recorded.stamps[0]).abs() < 5.0, "{format}: {time}");
    }
}

#[test]
fn every_way_to_stop_keeps_everything_up_to_it() {
    for signal in ["INT", "TERM"] {
        let lab = Lab::new();
        let path = lab.path("stop.xdf");
        let _generator = lab.start(&generate("Amp", &["--wait", "--markers", "--chunk", "25"]));
        let recorder = start(&lab, &["-o", &path]);
        until_recording(&path, 12_000);
        let stopped_at = local_clock();
        recorder.signal(signal);
        recorder.wait().with(0, &["Recorded "]);
        let loaded = read(&path);
        let amp = stream(&loaded, "Amp");
        assert_eq!(nothing_is_missing(amp)[0], 0);
        // All clocks of this host are one.
        assert!(*amp.stamps.last().unwrap() > stopped_at - 0.002);
        assert!(stream(&loaded, "Amp-Markers").stamps.len() > 1);
    }
}

#[test]
fn a_second_wish_to_stop_keeps_the_file_whole() {
    let lab = Lab::new();
    let path = lab.path("hurry.xdf");
    let _generator = lab.start(&generate("Amp", &["--wait", "--markers"]));
    let recorder = start(&lab, &["-o", &path]);
    until_recording(&path, 10_000);
    recorder.interrupt();
    // Markers may be on their way for two seconds, so it is still there. Signals that come together
    // are one wish.
    thread::sleep(Duration::from_millis(700));
    recorder.signal("TERM");
    recorder.wait().with(0, &["Recorded "]);
    let loaded = read(&path);
    assert_eq!(nothing_is_missing(stream(&loaded, "Amp"))[0], 0);
}

#[test]
fn timestamps_are_synced_when_asked_for() {
    let lab = Lab::new();
    let path = lab.path("synced.xdf");
    let _generator = lab.start(&generate("Amp", &["--wait", "--markers"]));
    let words = ["-o", &path, "--online-sync", "--duration", "2"];
    let ended = start(&lab, &words).wait().ok();
    let loaded = read(&path);
    let amp = stream(&loaded, "Amp");
    assert_eq!(nothing_is_missing(amp)[0], 0);
    let synced = amp.header.get("synced");
    assert_eq!(synced.as_deref(), Some("clocksync dejitter"));
    let markers = stream(&loaded, "Amp-Markers").header.get("synced");
    assert_eq!(markers.as_deref(), Some("clocksync"));
    // Nobody corrects twice.
    assert!(
        loaded
            .streams
            .iter()
            .all(|stream| stream.offsets.is_empty())
    );
    let last = ended.json_lines().pop().unwrap();
    let row = last["streams"].as_array().unwrap();
    let row = row.iter().find(|row| row["name"] == "Amp").unwrap();
    assert!(row["offset_secs"].as_f64().unwrap().abs() < 0.01, "{row}");
    assert_eq!(row["offsets"], 0);
    for pair in amp.stamps.windows(2) {
        assert!((pair[1] - pair[0] - 0.002).abs() < 0.001, "{pair:?}");
    }
    assert!((amp.stamps.last().unwrap() - local_clock()).abs() < 10.0);
    let checked = lab.run(&["xdf", "check", &path]).ok();
    assert!(!checked.stdout.contains("clock offsets"), "{checked:?}");
}

#[test]
fn a_duration_is_kept() {
    let lab = Lab::new();
    let path = lab.path("short.xdf");
    let _generator = lab.start(&generate("Amp", &[]));
    start(&lab, &["-o", &path, "--duration", "1"]).wait().ok();
    let loaded = read(&path);
    let amp = stream(&loaded, "Amp");
    nothing_is_missing(amp);
    let secs = amp.stamps.last().unwrap() - amp.stamps[0];
    assert!((0.9..4.0).contains(&secs), "{secs}");
}

/// Markers went on for two seconds after the signals had ended.
#[test]
fn what_is_stamped_after_the_end_is_not_written() {
    let lab = Lab::new();
    let path = lab.path("end.xdf");
    let _generator = lab.start(&generate("Amp", &[]));
    let marker = |name: &'static str| {
        let words = ["gen", "--name", name, "--rate", "0", "--interval", "0.05"];
        lab.start(&[&words[..], &["--format", "string", "--channels", "1"]].concat())
    };
    let _markers = (marker("Markers"), marker("Others"));
    start(&lab, &["-o", &path, "--duration", "1"]).wait().ok();
    let loaded = read(&path);
    let last = |name: &str| {
        let stream = stream(&loaded, name);
        *stream.stamps.last().unwrap() + stream.offsets[0].1
    };
    // The sample before the end is one of many, and clocks are measured within milliseconds.
    let end = last("Amp");
    for name in ["Markers", "Others"] {
        assert!(last(name) < end + 0.02, "{} s later", last(name) - end);
        assert!(last(name) > end - 0.5, "{} s earlier", end - last(name));
    }
}

/// Devices that send blocks lost the last one: nothing comes for as long as a block takes.
#[test]
fn the_last_block_of_a_device_is_waited_for() {
    let lab = Lab::new();
    let path = lab.path("blocks.xdf");
    let block = ["--rate", "250", "--chunk", "250", "--format", "int32"];
    let _device = lab.start(&[&["gen", "--name", "Device"], &block[..]].concat());
    let _amp = lab.start(&generate("Amp", &[]));
    start(&lab, &["-o", &path, "--duration", "1.5"]).wait().ok();
    let loaded = read(&path);
    let last = |name: &str| {
        let stream = stream(&loaded, name);
        *stream.stamps.last().unwrap() + stream.offsets[0].1
    };
    let end = last("Amp");
    let early = end - last("Device");
    assert!(early < 0.02, "{early} s before the end");
}

/// Programs that stamp with the clock of the day.
#[test]
fn a_duration_keeps_streams_of_another_clock() {
    let lab = Lab::new();
    let outlets = [("Markers", 0.0), ("Signal", 100.0)].map(|(name, rate)| {
        let info = StreamInfo::new(name, "", 1, rate, ChannelFormat::Int32, name).unwrap();
        lab.outlet(info)
    });
    let over = AtomicBool::new(false);
    for (at, more) in [
        &["--duration", "1"][..],
        &["--duration", "1", "--online-sync"],
    ]
    .into_iter()
    .enumerate()
    {
        over.store(false, Ordering::Relaxed);
        let path = lab.path(&format!("epoch{at}.xdf"));
        let ended = thread::scope(|scope| {
            scope.spawn(|| {
                let limit = local_clock() + 60.0;
                while !over.load(Ordering::Relaxed) && local_clock() < limit {
                    #[expect(clippy::disallowed_methods, reason = "the wrong clock is the point")]
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                    for outlet in &outlets {
                        outlet.push_at(&[1], now.as_secs_f64()).unwrap();
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            });
            let ended = start(&lab, &[&["-o", &path][..], more].concat()).wait();
            over.store(true, Ordering::Relaxed);
            ended
        });
        let ended = ended.with(0, &["'Markers' stamps", "'Signal' stamps"]);
        let told = ended
            .stderr
            .matches("in the future: its clock is not that of LSL");
        assert_eq!(told.count(), 2, "{ended:?}");
        let loaded = read(&path);
        for name in ["Markers", "Signal"] {
            assert!(stream(&loaded, name).stamps.len() > 10, "{name}");
        }
    }
}

#[test]
fn what_a_sender_sent_last_is_in_the_file() {
    let lab = Lab::new();
    let path = lab.path("end.xdf");
    let generator = lab.start(&generate("Amp", &["--wait", "--count", "777"]));
    let recorder = start(&lab, &["-o", &path]);
    generator.wait().ok();
    recorder.interrupt();
    recorder
        .wait()
        .with(3, &["'Amp' is lost", "lost and not back: Amp"]);
    let loaded = read(&path);
    let numbers = nothing_is_missing(stream(&loaded, "Amp"));
    assert_eq!((numbers[0], numbers.len()), (0, 777));
}

#[test]
fn what_happened_before_the_start_is_recorded_where_it_is_asked_for() {
    let lab = Lab::new();
    let config = std::fs::read_to_string(lab.path("lsl_api.cfg")).unwrap();
    lab.write(
        "lsl_api.cfg",
        &format!("{config}[tuning]\nRetainSeconds = 60\n"),
    );
    let path = lab.path("past.xdf");
    let _generator = lab.start(&generate("Amp", &[]));
    let info = lab.run(&["info", "Amp", "--json"]).ok().json();
    let retained = &info["retained"];
    assert_eq!(
        (&retained["generation"], retained["first"].as_u64()),
        (&info["uid"], Some(0))
    );
    let (live, secs) = (retained["live"].as_f64(), retained["secs"].as_f64());
    assert!(
        (live.unwrap() - secs.unwrap() * 500.0).abs() < 1e-6,
        "{info}"
    );
    let told = lab.run(&["info", "Amp"]).ok().stdout;
    assert!(told.contains(" s: numbers 0 to "), "{told}");
    let told = lab
        .run(&["security", "status", "--timeout", "0"])
        .ok()
        .stdout;
    assert!(told.contains("stay in memory for 60 s"), "{told}");
    // It looks for streams for more than a second before it begins.
    let words = ["--history", "1min", "--duration", "0.5", "-o", &path];
    start(&lab, &words).wait().with(0, &["Recorded "]);
    let loaded = read(&path);
    let numbers = nothing_is_missing(stream(&loaded, "Amp"));
    assert_eq!(numbers[0], 0);
    assert!(numbers.len() > 500 + 200, "{}", numbers.len());
    lab.write("lsl_api.cfg", &format!("{config}[tuning]\nResume = 0\n"));
    let refused = start(&lab, &words).wait();
    refused.with(2, &["--history: the configuration has Resume = 0"]);
}

#[test]
fn late_streams_are_recorded_and_returning_ones_go_on() {
    let lab = Lab::new();
    let path = lab.path("late.xdf");
    let words = generate("Amp", &["--wait", "--count", "200"]);
    let first = lab.start(&words);
    let recorder = start(&lab, &["-o", &path, "--watch", "Amp", "--watch", "Late"]);
    first.wait().ok();
    let second = lab.start(&words);
    second.wait().ok();
    let _late = lab.start(&generate("Late", &[]));
    let mut third = generate("Amp", &["--wait"]);
    let third = lab.start(&{
        third.push("--markers");
        third
    });
    let before = std::fs::metadata(&path).unwrap().len();
    until_recording(&path, before + 20_000);
    recorder.interrupt();
    recorder.wait().with(
        0,
        &[
            "'Late' has appeared",
            "Late is not there yet",
            "'Amp' is lost",
            "'Amp' is back",
            "2 interruptions, see the gaps in the footers. Lost: of 2 nobody knows how many.",
        ],
    );
    drop(third);
    let loaded = read(&path);
    assert_eq!(loaded.streams.len(), 2, "Amp-Markers was not asked for");
    nothing_is_missing(stream(&loaded, "Late"));
    let amp = stream(&loaded, "Amp");
    let numbers = counters(amp);
    let expected: Vec<i64> = (0..200)
        .chain(0..200)
        .chain(0..)
        .take(numbers.len())
        .collect();
    assert!(numbers == expected, "{} samples", numbers.len());
    assert!(numbers.len() > 400);
    let gaps = amp.footer.as_ref().unwrap().gaps();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert!(gaps.iter().all(|gap| gap.from < gap.to), "{gaps:?}");
    // The clock of each sender is measured anew.
    assert!(amp.offsets.len() >= 3);
}

#[test]
fn streams_without_source_id_are_picked_up_late_and_are_others_when_they_return() {
    let lab = Lab::new();
    let path = lab.path("anonymous.xdf");
    let recorder = start(&lab, &["-o", &path, "--watch", "*"]);
    let words = generate("Amp", &["--wait", "--count", "100", "--source-id", ""]);
    lab.start(&words).wait().ok();
    lab.start(&words).wait().ok();
    recorder.interrupt();
    recorder.wait().with(3, &["lost and not back: Amp, Amp"]);
    let loaded = read(&path);
    assert_eq!(loaded.streams.len(), 2);
    for stream in &loaded.streams {
        assert_eq!(nothing_is_missing(stream).len(), 100);
    }
}

#[test]
fn a_sender_that_is_cut_off_is_noticed_and_its_successor_recorded() {
    let lab = Lab::new();
    let path = lab.path("frozen.xdf");
    let words = generate("Amp", &["--wait"]);
    let frozen = lab.start(&words);
    let recorder = start(&lab, &["-o", &path]);
    until_recording(&path, 10_000);
    // Its connection stays, and nobody says anything any more.
    frozen.signal("STOP");
    let length = || std::fs::metadata(&path).unwrap().len();
    let before = length();
    let _second = lab.start(&words);
    until_recording(&path, before + 15_000);
    recorder.interrupt();
    recorder
        .wait()
        .with(0, &["sends nothing and does not answer", "'Amp' is back"]);
    let loaded = read(&path);
    let numbers = counters(stream(&loaded, "Amp"));
    let again = numbers.iter().rposition(|number| *number == 0).unwrap();
    assert!(again > 0);
    for part in [&numbers[..again], &numbers[again..]] {
        assert!(part.windows(2).all(|pair| pair[1] == pair[0] + 1));
    }
}

#[test]
fn two_streams_of_one_name_are_both_recorded() {
    let lab = Lab::new();
    let path = lab.path("twins.xdf");
    let words = generate("Amp", &["--wait"]);
    let _first = lab.start(&words);
    let _second = lab.start(&words);
    let recorder = start(&lab, &["-o", &path, "--duration", "1"]);
    recorder.wait().ok();
    let loaded = read(&path);
    assert_eq!(loaded.streams.len(), 2);
    for stream in &loaded.streams {
        assert_eq!(nothing_is_missing(stream)[0], 0);
    }
}

#[test]
fn a_required_stream_must_be_there() {
    let lab = Lab::new();
    let path = lab.path("none.xdf");
    let _generator = lab.start(&generate("Amp", &[]));
    let words = ["-o", &path, "--require", "Gaze", "Amp", "--timeout", "0.5"];
    start(&lab, &words)
        .wait()
        .with(2, &["required", "Gaze", "Nothing was recorded"]);
    assert!(!Path::new(&path).exists());
    let words = ["-o", &path, "--require", "Amp", "--duration", "0.5"];
    start(&lab, &words).wait().ok();
    assert_eq!(read(&path).streams.len(), 1);
}

#[test]
fn nothing_to_record_is_no_recording() {
    let lab = Lab::new();
    let path = lab.path("none.xdf");
    start(&lab, &["-o", &path, "--timeout", "0.3"])
        .wait()
        .with(2, &["no stream answered", "What to check"]);
    assert!(!Path::new(&path).exists());
    start(&lab, &["-o", ""]).wait().with(2, &["empty"]);
    start(&lab, &["Type=EEG", "-o", &path])
        .wait()
        .with(2, &["there is no field 'Type'"]);
}

#[test]
fn a_stream_without_any_sample_does_not_hold_up_the_end() {
    let lab = Lab::new();
    let path = lab.path("silent.xdf");
    let _generator = lab.start(&generate("Amp", &[]));
    let _silent = lab.start(&[
        "gen",
        "--name",
        "Silent",
        "--rate",
        "0",
        "--interval",
        "1000",
        "--format",
        "string",
        "--channels",
        "1",
        "--wait",
    ]);
    let recorder = start(&lab, &["-o", &path]);
    until_recording(&path, 5_000);
    let stopped_at = local_clock();
    recorder.interrupt();
    recorder.wait().ok();
    let took = local_clock() - stopped_at;
    assert!(took < 10.0, "{took}");
    let loaded = read(&path);
    assert!(stream(&loaded, "Silent").stamps.len() <= 1);
    assert!(!stream(&loaded, "Silent").offsets.is_empty());
}

#[test]
fn no_file_is_ever_overwritten() {
    let lab = Lab::new();
    let path = lab.path("sub/run.xdf");
    let _generator = lab.start(&generate("Amp", &[]));
    let record = || start(&lab, &["Amp", "-o", &path, "--duration", "0.2"]).wait();
    record().ok();
    let first = std::fs::read(&path).unwrap();
    record().with(0, &["is now", "run_old1.xdf"]);
    let second = std::fs::read(&path).unwrap();
    record().with(0, &["run_old2.xdf"]);
    assert!(std::fs::read(lab.path("sub/run_old1.xdf")).unwrap() == first);
    assert!(std::fs::read(lab.path("sub/run_old2.xdf")).unwrap() == second);
}

#[test]
fn templates_name_files_and_count_runs() {
    let lab = Lab::new();
    let _generator = lab.start(&generate("Amp", &[]));
    let root = lab.path("study");
    for run in ["001", "002"] {
        let words = [
            "--root",
            &root,
            "--participant",
            "P3",
            "--task",
            "rest",
            "--duration",
            "0.1",
        ];
        start(&lab, &words).wait().ok();
        read(&format!(
            "{root}/sub-P3/ses-S001/eeg/sub-P3_ses-S001_task-rest_run-{run}_eeg.xdf"
        ));
    }
    start(&lab, &["-o", "../%p.xdf", "--root", &root])
        .wait()
        .with(2, &["below the folder"]);
}

#[test]
fn lines_of_json_tell_how_it_goes() {
    let lab = Lab::new();
    let path = lab.path("lines.xdf");
    let _generator = lab.start(&generate("Amp", &[]));
    let ended = start(&lab, &["-o", &path, "--duration", "2.5"]).wait().ok();
    let lines = ended.json_lines();
    assert!(lines.len() >= 3, "{lines:?}");
    let (last, status) = lines.split_last().unwrap();
    assert!(status.iter().all(|line| line["event"] == "status"));
    assert_eq!(
        (&last["event"], &last["status"]),
        (&"done".into(), &0.into())
    );
    let amp = &last["streams"][0];
    assert_eq!(amp["name"], "Amp");
    assert_eq!(
        amp["samples"].as_u64().unwrap(),
        read(&path).streams[0].stamps.len() as u64
    );
    assert_eq!(last["bytes"], std::fs::metadata(&path).unwrap().len());
    assert_eq!(last["synced_bytes"], last["bytes"]);
    assert!(amp["rate"].as_f64().unwrap() > 250.0, "{amp}");
}

#[test]
fn a_killed_recorder_loses_no_more_than_promised() {
    for round in 0..4_u32 {
        let lab = Lab::new();
        let path = lab.path("killed.xdf");
        let _generator = lab.start(&generate("Amp", &["--wait"]));
        let recorder = start(&lab, &["-o", &path, "--sync", "0.2"]);
        until_recording(&path, 8_000 + u64::from(round) * 3_777);
        let killed_at = local_clock();
        recorder.kill();
        let survey = lsl_xdf::repair::repair_in_place(Path::new(&path)).unwrap();
        drop(survey);
        let loaded = read(&path);
        let amp = stream(&loaded, "Amp");
        assert_eq!(nothing_is_missing(amp)[0], 0);
        let lost = killed_at - amp.stamps.last().unwrap();
        // Sync interval, chunk, and how often samples are taken; the rest is for a busy machine.
        assert!(lost < 0.2 + 0.5 + 0.1 + 1.0, "{lost} s");
    }
}
