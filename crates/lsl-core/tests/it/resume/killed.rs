//! A recorder that is killed, and its successor, which goes on at the position that the first one stored with its
//! samples. Spec: resume §9 (test 15).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lsl_core::config::{Bind, Config};
use lsl_core::{ChannelFormat, Context, Generation, History, Inlet, Position};

use super::{OnDrop, info};
use crate::lab::{self, SOON};

const FOLDER: &str = "LSL_TEST_RECORDER_FOLDER";
const CONFIG: &str = "recorder.cfg";
const NAME: &str = "killed";

/// Samples and the position after them, in one record: what a kill cuts off counts for neither.
fn record(values: &[i32], position: &Position) -> Vec<u8> {
    let mut record = Vec::new();
    for value in values {
        record.extend_from_slice(format!("{value} ").as_bytes());
    }
    record.extend_from_slice(format!("@ {} {}\n", position.generation, position.next).as_bytes());
    record
}

/// Samples of a file, and the position after them.
fn read(file: &Path) -> (Vec<i32>, Option<Position>) {
    let text = fs::read_to_string(file).unwrap_or_default();
    let (mut values, mut position) = (Vec::new(), None);
    for line in text.split_inclusive('\n').filter(|it| it.ends_with('\n')) {
        let (numbers, after) = line.trim_end().split_once("@ ").unwrap();
        let numbers = numbers.split_whitespace();
        values.extend(numbers.map(|it| it.parse::<i32>().unwrap()));
        let (generation, next) = after.split_once(' ').unwrap();
        position = Some(Position {
            generation: Generation::parse(generation.as_bytes()).unwrap(),
            next: next.parse().unwrap(),
        });
    }
    (values, position)
}

fn file(folder: &Path, number: u32) -> PathBuf {
    folder.join(number.to_string())
}

/// The recorder, in a process of its own: until it is killed.
#[test]
fn a_recorder_in_a_process_of_its_own() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let config = fs::read_to_string(folder.join(CONFIG)).unwrap();
    let mut config = Config::from_text(&config).unwrap();
    config.set_bind(Bind::Loopback);
    let context = lab::plaintext(config);
    let number = (0..100).find(|it| !file(&folder, *it).exists()).unwrap();
    let before = number
        .checked_sub(1)
        .and_then(|it| read(&file(&folder, it)).1);
    let mut out = File::create_new(file(&folder, number)).unwrap();
    let builder = Inlet::builder(&lab::find(&context, NAME)).context(&context);
    let builder = match before {
        Some(position) => builder.resume_at(position),
        None => builder.history(History::Oldest),
    };
    let inlet = builder.recover(false).create().unwrap();
    inlet.blocking().open(SOON).unwrap();
    let (mut values, mut room) = (Vec::new(), [0; 64]);
    loop {
        let pulled = inlet
            .blocking()
            .pull_chunk(&mut room[..1], None, Duration::from_millis(20));
        values.extend_from_slice(&room[..pulled.unwrap()]);
        let more = inlet.try_pull_chunk(&mut room, None).unwrap();
        values.extend_from_slice(&room[..more]);
        // The position is that of what was received: behind what was pulled only if nothing waits.
        if let Some(position) = inlet.position()
            && inlet.samples_available() == 0
            && !values.is_empty()
        {
            out.write_all(&record(&values, &position)).unwrap();
            values.clear();
        }
    }
}

/// Kills the recorder also if the test fails.
struct Recorder(Child);

impl Recorder {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = concat!(module_path!(), "::a_recorder_in_a_process_of_its_own");
        let (_, test) = test.split_once("::").unwrap();
        let command = command.args(["--exact", test]).env(FOLDER, folder);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_recorder_that_was_killed_is_followed_by_one_that_misses_and_repeats_nothing() {
    let folder = format!("killed-{}", std::process::id());
    let folder = std::path::absolute(env!("CARGO_TARGET_TMPDIR"))
        .unwrap()
        .join(folder);
    fs::create_dir_all(&folder).unwrap();
    let base = 30_000 + u16::try_from(std::process::id() % 1000).unwrap() * 20;
    let config = format!(
        "[ports]\nIPv6 = disable\nBasePort = {base}\nPortRange = 20\n\n[lab]\nSessionID = killed-{base}\n\n\
         [tuning]\nRetainSeconds = 30\n"
    );
    fs::write(folder.join(CONFIG), &config).unwrap();
    let mut config = Config::from_text(&config).unwrap();
    config.set_bind(Bind::Loopback);
    let context: Context = lab::plaintext(config);
    let outlet = lab::outlet(&context, info(NAME, 1, 1000.0, ChannelFormat::Int32));
    let is_over = AtomicBool::new(false);
    let pushed = std::thread::scope(|scope| {
        let _over = OnDrop(&is_over);
        let pushing = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                outlet.push(&[number]).unwrap();
                number += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            number
        });
        for number in 0..4 {
            let recorder = Recorder::start(&folder);
            lab::until("recording", || read(&file(&folder, number)).0.len() > 300);
            // In the middle of its work.
            drop(recorder);
            std::thread::sleep(Duration::from_millis(u64::from(100 * number)));
        }
        is_over.store(true, Ordering::Relaxed);
        pushing.join().unwrap()
    });
    let last = Recorder::start(&folder);
    let recorded = || (0..5).flat_map(|number| read(&file(&folder, number)).0);
    lab::until("end", || recorded().last() == Some(pushed - 1));
    let recorded: Vec<i32> = recorded().collect();
    assert!(
        recorded.iter().copied().eq(0..pushed),
        "{} of {pushed}",
        recorded.len()
    );
    drop(last);
    let _ = fs::remove_dir_all(&folder);
}
