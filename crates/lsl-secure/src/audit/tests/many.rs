//! Many processes write one log, through rotations, kills and a full disk: what is written whole stays so, and what is
//! lost is told. Spec: audit §7, test 6.

use std::collections::HashMap;
use std::env::var;

use super::*;

/// Lines of each process; a campaign asks for more.
fn lines_each() -> u64 {
    var("LSL_AUDIT_LINES").map_or(200, |it| it.parse().unwrap())
}

/// Set for a process that goes on until it is killed.
const IS_DOOMED: &str = "LSL_AUDIT_TEST_DOOMED";

/// Lines as `lsl audit` reads them: what a killed process left of one stands by itself.
fn untangled(lines: &[String]) -> Vec<String> {
    let split = |line: &String| {
        let (torn, whole) = line.split_at(torn_len(line.as_bytes()));
        [torn.to_owned(), whole.to_owned()]
    };
    let mut lines: Vec<_> = lines.iter().flat_map(split).collect();
    lines.retain(|line| !line.is_empty());
    lines
}

#[test]
fn processes_share_a_file_and_rotate_it_though_some_are_killed() {
    if let Ok(directory) = var(ROLE) {
        let audit = Audit::with_place(LogFile {
            path: PathBuf::from(directory).join("audit.jsonl"),
            keep_days: 0,
            max_len_bytes: lines_each() * 100,
        })
        .unwrap();
        let is_doomed = var(IS_DOOMED).is_ok();
        for number in 0.. {
            let own = std::process::id();
            audit.record(Event::new(EventKind::KeyUpdate).detail(format!("{own} {number}")));
            // So that all are in it together.
            if number % 50 == 49 {
                assert!(audit.flush(SOON));
            }
            if number + 1 == lines_each() && !is_doomed {
                break;
            }
        }
        assert!(audit.flush(SOON));
        assert_eq!(audit.dropped(), 0);
        return;
    }
    let scratch = Scratch::new();
    let test = "many::processes_share_a_file_and_rotate_it_though_some_are_killed";
    let doomed = (0..3).map(|_| {
        let mut command = another_process(test, &scratch.0, "");
        command.env(IS_DOOMED, "").spawn().unwrap()
    });
    let mut doomed: Vec<_> = doomed.collect();
    let spawn = |_| another_process(test, &scratch.0, "").spawn().unwrap();
    let mut others: Vec<_> = (0..5).map(spawn).collect();
    let deadline = local_clock() + 10.0 * SOON.as_secs_f64();
    let mut random = [0; 3];
    getrandom::fill(&mut random).unwrap();
    for (child, random) in doomed.iter_mut().zip(random) {
        // After any number of bytes from here on.
        let file = fs::metadata(scratch.file()).map_or(0, |it| it.len());
        let until = (file + u64::from(random) * lines_each() / 3) % (lines_each() * 100);
        while rotated(&scratch.file()).unwrap().len() < 2
            || fs::metadata(scratch.file()).map_or(0, |it| it.len()) < until
        {
            assert!(local_clock() < deadline, "the doomed write on until then");
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for child in &mut others {
        assert!(child.wait().unwrap().success());
    }

    let lines = untangled(&scratch.lines());
    let (verifier, breaks) = verify(&lines);
    assert!(breaks.len() <= doomed.len(), "{breaks:?}");
    assert!(
        breaks.iter().all(|it| *it == Break::Unreadable),
        "{breaks:?}"
    );
    assert!((5..=8).contains(&verifier.chains()));
    let mut counts: HashMap<String, u64> = HashMap::new();
    let values = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok());
    for value in values.filter(|it: &Value| it["event"] != "log_opened") {
        let (process, number) = value["detail"].as_str().unwrap().split_once(' ').unwrap();
        let count = counts.entry(process.to_owned()).or_default();
        assert_eq!(*count, number.parse::<u64>().unwrap());
        *count += 1;
    }
    for child in &others {
        assert_eq!(counts[&child.id().to_string()], lines_each());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn once_a_full_disk_has_room_it_is_told_what_was_lost() {
    if let Ok(directory) = var(ROLE) {
        let scratch = Scratch(PathBuf::from(directory));
        let audit = Audit::open(&scratch.file(), 0).unwrap();
        let record = |count: u64| {
            for _ in 0..count {
                audit.record(Event::new(EventKind::KeyUpdate).detail("x".repeat(200)));
            }
            assert!(audit.flush(SOON));
        };
        record(100);
        assert_eq!(audit.dropped(), 0);
        let filling = scratch.0.join("filling");
        let mut file = fs::File::create(&filling).unwrap();
        while io::Write::write(&mut file, &[0; 1000]).is_ok() {}
        record(100);
        record(100);
        assert!(audit.dropped() > 100, "{}", audit.dropped());
        fs::remove_file(&filling).unwrap();
        drop(file);
        let lost = audit.dropped();
        record(100);
        assert_eq!(audit.dropped(), lost);
        let lines = untangled(&scratch.lines());
        let (verifier, breaks) = verify(&lines);
        assert_eq!((verifier.dropped(), verifier.chains()), (lost, 1));
        let torn = breaks.len() as u64;
        assert!(torn <= 1, "{breaks:?}");
        // After each error the file is named again.
        let is_name = |line: &&String| {
            let line = serde_json::from_str::<Value>(line);
            line.is_ok_and(|it| it["event"] == "log_opened")
        };
        let names = lines.iter().filter(is_name).count() as u64;
        assert_eq!(verifier.lines() - torn - names + lost, 400);
        // Its disk goes with the namespace.
        std::mem::forget(scratch);
        return;
    }
    let scratch = Scratch::new();
    let test = "many::once_a_full_disk_has_room_it_is_told_what_was_lost";
    let role = another_process(test, &scratch.0, "");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.arg(format!(
        "mount -t tmpfs -o size=256k none \"${ROLE}\" && exec \"$0\" \"$@\""
    ));
    command.arg(role.get_program()).args(role.get_args());
    let ended = command.env(ROLE, &scratch.0).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}
