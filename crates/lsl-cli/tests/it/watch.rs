//! `lsl watch`: states as they come and go, statuses, and what hooks may not do.

use std::path::Path;
use std::thread;
use std::time::Duration;

use lsl_core::{ChannelFormat, StreamInfo, local_clock};

use crate::lab::Lab;

fn info(name: &str) -> StreamInfo {
    StreamInfo::new(name, "EEG", 1, 50.0, ChannelFormat::Float32, name).unwrap()
}

/// Waits until a hook wrote down an event of this kind and state.
fn until(file: &str, event: &str, state: &str) {
    until_times(1, file, event, state);
}

fn until_times(times: usize, file: &str, event: &str, state: &str) {
    let deadline = local_clock() + 60.0;
    let parts = [
        format!("\"event\":\"{event}\""),
        format!("\"state\":\"{state}\""),
    ];
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let is_meant = |line: &&str| parts.iter().all(|part| line.contains(part));
        if text.lines().filter(is_meant).count() >= times {
            return;
        }
        assert!(local_clock() < deadline, "no {event} of {state} in {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn states_come_and_go() {
    let lab = Lab::new();
    let file = lab.path("events");
    let hook = format!("cat >> '{file}'");
    let outlet = lab.outlet(info("Amp"));
    let watch = lab.start(&["watch", "--require", "Amp", "--json", "--hook", &hook]);
    until(&file, "alarm", "silent");
    thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            while !std::fs::read_to_string(&file)
                .unwrap_or_default()
                .contains("clear")
            {
                outlet.push(&[1.0_f32]).unwrap();
                thread::sleep(Duration::from_millis(19));
            }
        });
        until(&file, "state", "ok");
        until(&file, "clear", "ok");
        pushing.join().unwrap();
    });
    drop(outlet);
    until(&file, "alarm", "missing");
    watch.interrupt();
    let ended = watch.wait();
    assert_eq!(ended.status, Some(4), "{ended:?}");
    let lines = ended.json_lines();
    let last = lines.last().unwrap();
    assert_eq!(
        (last["event"].as_str(), last["stream"].as_str()),
        (Some("end"), Some("Amp"))
    );
}

/// Its stream has another uid then, and the one before is not forgotten yet.
#[test]
fn a_program_that_was_started_again_is_no_duplicate() {
    let lab = Lab::new();
    let file = lab.path("events");
    let hook = format!("cat >> '{file}'");
    let start = || lab.start(&["gen", "--name", "Amp", "--rate", "50"]);
    let generator = start();
    let watch = lab.start(&["watch", "--require", "Amp", "--json", "--hook", &hook]);
    until(&file, "state", "ok");
    generator.kill();
    let _again = start();
    until_times(2, &file, "state", "ok");
    watch.interrupt();
    let ended = watch.wait();
    assert!(!ended.stdout.contains("duplicate"), "{ended:?}");
}

/// It is found, and no connection comes about.
#[test]
fn a_stream_that_does_not_open_is_closed() {
    let lab = Lab::new();
    let file = lab.path("events");
    let generator = lab.start(&["gen", "--name", "Amp"]);
    lab.run(&["info", "Amp"]).ok();
    let hook = format!("cat >> '{file}'");
    let watch = lab.start(&["watch", "--require", "Amp", "--json", "--hook", &hook]);
    until(&file, "state", "ok");
    // Its socket for questions goes with it, so that it is missing later.
    generator.kill();
    until(&file, "state", "closed");
    until(&file, "alarm", "missing");
    watch.interrupt();
    assert_eq!(watch.wait().status, Some(4));
}

#[test]
fn looking_once_says_how_it_stands() {
    let lab = Lab::new();
    let _generator = lab.start(&["gen", "--name", "Amp", "--rate", "100"]);
    lab.run(&["info", "Amp"]).ok();
    let check = |words: &[&str], status: i32| {
        let ended = lab.run(&[&["watch", "--once"], words].concat());
        assert_eq!(ended.status, Some(status), "{words:?}: {ended:?}");
    };
    check(&["--require", "Amp"], 0);
    check(&["--require", "Amp; host=elsewhere", "--timeout", "1"], 3);
    check(&["--require", "Amp; silent<0", "--timeout", "4"], 4);
    check(&["--require", "Amp; key=amp1", "--timeout", "4"], 5);
    check(&["--require", "Amp", "--light"], 0);
    check(&["--require", "Amp", "Gaze", "--timeout", "1"], 3);
    check(
        &["--from", &lab.write("list", "# all\nAmp; late<1000\n")],
        0,
    );
    check(&[], 2);
    check(&["--require", "Amp; fast"], 2);
}

/// `--for` may end before `--timeout`.
#[test]
fn a_stream_that_never_came_is_told_at_the_end() {
    let ended = Lab::new().run(&["watch", "--require", "Nobody", "--for", "0.3"]);
    assert_eq!(ended.status, Some(3), "{ended:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn whoever_cannot_search_fails() {
    let lab = Lab::new();
    let command = lab.command(&["watch", "--require", "Amp", "--for", "600"]);
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -n 6; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    limited
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let ended = crate::lab::Running::start(&mut limited).wait();
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("open files"), "{ended:?}");
}

#[test]
fn a_hook_that_hangs_is_ended_and_names_are_no_commands() {
    let lab = Lab::new();
    let (touched, called) = (lab.path("touched"), lab.path("called"));
    let stream = format!("name=$(touch '{touched}')");
    let hook = format!("echo \"$LSL_EVENT $LSL_STATE $LSL_STREAM\" >> '{called}'; sleep 600");
    let start = local_clock();
    let ended = lab.run(&[
        "watch",
        "--require",
        &stream,
        "--timeout",
        "0.2",
        "--for",
        "2.5",
        "--hook",
        &hook,
    ]);
    assert_eq!(ended.status, Some(3), "{ended:?}");
    assert!(local_clock() - start < 120.0);
    assert!(ended.stderr.contains("was ended"), "{ended:?}");
    let text = std::fs::read_to_string(called).unwrap();
    assert!(text.starts_with("alarm missing name=$(touch"), "{text}");
    assert!(!Path::new(&touched).exists());
}
