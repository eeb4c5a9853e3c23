//! `lsl audit export`: events as others read them, once or as they come. Spec: audit §1.4.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, ValueEnum};
use lsl_core::local_clock;
use lsl_platform::clock::utc_now;
use lsl_platform::disk::{self, is_still, try_lock};
use lsl_platform::files::{Who, create_new};

use super::cbor::{put_context, put_head};
use super::context::{Id, Place, line, session};
use super::filter::Fields;
use super::follower::Follower;
use super::program::{Program, Programs};
use super::pseudonyms::Pseudonyms;
use super::query::{Picked, fold, write_folded, write_json};
use super::resume::{Resumed, resume};
use super::tail::LOOK_EVERY;
use super::tree::Stacks;
use super::{configured, flame};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::ui::notice::note;

#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(flatten)]
    picked: Picked,

    /// What to write
    #[arg(long, value_enum, default_value = "cbor")]
    format: Format,

    /// File to write; a new one is readable by you alone, one that is there by whom it was; by default standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Go on with events as they are recorded, until Ctrl-C; started again, with those that came meanwhile.
    /// Picks events one by one. CBOR only
    #[arg(long, requires = "out")]
    follow: bool,

    /// Replace whatever names a person, machine, stream or file by hashes whose key is thrown away
    #[arg(long)]
    pseudonyms: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// Groups of events in the format of crypto-auditing, for its query and its broker
    Cbor,
    /// One array, as `lsl audit query --json`
    Json,
    /// Stacks with microseconds
    Folded,
    /// A flame graph
    Svg,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl audit export -o audit.cbor
  lsl audit export --follow -o /var/log/crypto-auditing/audit.cborseq
  lsl audit export --since 2h --format svg -o handshakes.svg
  lsl audit export --pseudonyms --format json > to-give-away.json

With --follow one program writes a file at a time (exit status 1 for a second). However it ended, started
again it goes on where the file ends: no event comes twice or is left out.";

impl Export {
    pub(super) fn run(&self) -> Outcome {
        let pseudonyms = self.pseudonyms.then(Pseudonyms::new).transpose()?;
        if self.follow {
            return self.follow(pseudonyms);
        }
        let files = self.picked.find()?;
        let mut out: Box<dyn Write> = match &self.out {
            Some(path) => {
                let file = open(path, &files)?;
                file.set_len(0)?;
                Box::new(file)
            }
            None if self.format == Format::Cbor && io::stdout().is_terminal() => {
                return Err(Failure::Usage(
                    "CBOR is nothing to look at: name a file (-o), or another --format".into(),
                ));
            }
            None => Box::new(io::stdout().lock()),
        };
        if self.format == Format::Cbor {
            let mut groups = Groups::new(pseudonyms);
            groups.begin(boot_secs(&files)?);
            self.picked.each(|place, fields, program| {
                groups.add(&place, fields, program);
                groups.write_if(GROUPS_LEN, &mut out)
            })?;
            groups.write_if(0, &mut out)?;
            return Ok(out.flush()?);
        }
        let trees = self.picked.trees()?;
        let trees = trees.iter().map(|mut tree| {
            if let Some(pseudonyms) = &pseudonyms {
                tree.hide(pseudonyms);
            }
            tree
        });
        let stacks = Stacks::default();
        match self.format {
            Format::Cbor => {}
            Format::Json => write_json(trees, &mut out)?,
            Format::Folded => write_folded(trees, &stacks, &mut out)?,
            Format::Svg => out.write_all(flame::draw(&fold(trees, &stacks), true).as_bytes())?,
        }
        Ok(out.flush()?)
    }

    fn follow(&self, pseudonyms: Option<Pseudonyms>) -> Outcome {
        let (Some(out), Format::Cbor) = (&self.out, self.format) else {
            let text = "--follow writes CBOR into a file; `lsl audit follow --json` prints lines";
            return Err(Failure::Usage(text.into()));
        };
        let path = match &self.picked.files[..] {
            [] => configured()?.0,
            [path] => path.clone(),
            _ => return Err(Failure::Usage("--follow follows one log".into())),
        };
        let files = match super::Log::find(&path, false) {
            Err(Failure::NotFound(_)) => Vec::new(),
            found => found?.files,
        };
        let mut file = open(out, &files)?;
        let mut groups = Groups::new(pseudonyms);
        let resumed = resume(&mut file).map_err(|it| it.context(&out.display().to_string()))?;
        match resumed {
            Some(resumed) => groups.resumed = resumed,
            None => groups.begin(boot_secs(&files)?),
        }
        let stop = Stop::install()?;
        note("Writing events as they come; Ctrl-C ends.");
        let mut follower = Follower::new(&path);
        let mut unreadable = false;
        loop {
            follower.read(|line| {
                unreadable |= !line.is_empty() && !groups.take(line, &self.picked);
                groups.write_if(GROUPS_LEN, &mut file)
            })?;
            groups.write_if(0, &mut file)?;
            if std::mem::take(&mut unreadable) {
                note("lsl: a line that is no audit event; `lsl audit verify` says where");
            }
            if !stop.sleep_until(local_clock() + LOOK_EVERY.as_secs_f64()) {
                return Ok(());
            }
        }
    }
}

/// Opens a file to write to, which nobody else may do meanwhile, and which is none of the log.
fn open(path: &Path, log: &[PathBuf]) -> Outcome<File> {
    let named = |error: io::Error| Failure::from(error).context(&path.display().to_string());
    let file = match create_new(path, Who::Owner) {
        // That one cannot be read.
        Ok(_) => disk::open(path, OpenOptions::new().read(true).append(true)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            disk::open(path, OpenOptions::new().read(true).append(true))
        }
        Err(error) => Err(error),
    };
    let file = file.map_err(named)?;
    if log.iter().any(|it| is_still(it, &file).unwrap_or(false)) {
        let text = format!("{} is the log itself: name another file", path.display());
        return Err(Failure::Usage(text));
    }
    try_lock(&file, true)
        .map_err(|_| Failure::Runtime(format!("another program is writing {}", path.display())))?;
    Ok(file)
}

/// Returns the time from which times are counted: when this machine was started, or a second before the first
/// event if that is earlier.
fn boot_secs(files: &[PathBuf]) -> Outcome<i64> {
    let boot = utc_now().as_secs_f64() - local_clock();
    #[expect(clippy::cast_possible_truncation, reason = "a time of this age")]
    let mut boot = boot as i64;
    super::query::each_line(files, |bytes| {
        if let Ok(fields) = serde_json::from_slice::<super::context::Moment<'_>>(bytes)
            && let Some(at) = fields.start()
        {
            boot = boot.min(at.div_euclid(1_000_000_000) - 1);
        }
        Ok(true)
    })?;
    Ok(boot.max(0))
}

/// Turns lines into groups of CBOR, and remembers what was written.
struct Groups {
    pseudonyms: Option<Pseudonyms>,
    resumed: Resumed,
    programs: Programs,
    /// Groups of whole lines that are one write.
    bytes: Vec<u8>,
}

impl Groups {
    fn new(pseudonyms: Option<Pseudonyms>) -> Self {
        Self {
            pseudonyms,
            resumed: Resumed::default(),
            programs: Programs::default(),
            bytes: Vec::new(),
        }
    }

    fn begin(&mut self, boot_secs: i64) {
        self.resumed.boot_secs = boot_secs;
        put_head(boot_secs, &mut self.bytes);
    }

    /// Adds a line that is meant, unless it was exported. Returns whether it is one of a log.
    fn take(&mut self, line: &[u8], picked: &Picked) -> bool {
        let Some(place) = Place::of(line) else {
            return false;
        };
        let last = place
            .chain
            .as_deref()
            .and_then(|it| self.resumed.chains.get(it));
        // The first line of a chain says who writes it, also to an exporter that was started again.
        if last.is_some_and(|last| place.seq <= *last && place.seq > 0) {
            return true;
        }
        let Ok(fields) = serde_json::from_slice::<Fields>(line) else {
            return false;
        };
        self.programs.learn(&place, &fields);
        if picked.means(&fields) {
            let program = self.programs.of(&place);
            self.add(&place, fields, program);
        }
        true
    }

    /// Adds the groups of a line, unless it has been there.
    fn add(&mut self, place: &Place<'_>, mut fields: Fields, mut program: Rc<Program>) {
        let chain = place.chain.as_deref().unwrap_or_default();
        if let Some(last) = self.resumed.chains.get_mut(chain) {
            if place.seq <= *last {
                return;
            }
            *last = place.seq;
        } else {
            self.resumed.chains.insert(chain.to_owned(), place.seq);
        }
        if let Some(pseudonyms) = &self.pseudonyms {
            pseudonyms.apply(&mut fields);
            program = pseudonyms.program(&program);
        }
        let (none, program) = (Id::default(), &*program);
        let (boot_secs, bytes) = (self.resumed.boot_secs, &mut self.bytes);
        let mut parent = none;
        if place.is_session() {
            parent = place.tree();
            if self.resumed.sessions.insert(parent)
                && let Some(session) = session(std::iter::once(&fields))
            {
                put_context(&session, none, program, boot_secs, bytes);
            }
        }
        line(&fields).each(None, &mut |context, within| {
            let parent = within.map_or(parent, |it| it.id);
            put_context(context, parent, program, boot_secs, bytes);
        });
    }

    /// Writes the groups if they are of so many bytes, at once: readers must not see a part of a line.
    fn write_if(&mut self, len: usize, out: &mut impl Write) -> Outcome {
        if self.bytes.len() >= len.max(1) {
            out.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// So many bytes are written together.
const GROUPS_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::tree::Tree;
    use super::*;

    /// Lines of two programs: connections with steps, and lines of none.
    fn log() -> Vec<String> {
        let mut lines = Vec::new();
        for seq in 0..4 {
            for chain in ["aa", "bb"] {
                let span = format!("{:032x}", seq / 3 + 16 * i32::from(chain == "aa"));
                lines.push(match seq {
                    0 => format!(
                        r#"{{"event":"log_opened","ts":"2026-11-22T10:00:00Z","chain":"{chain}","seq":0,
                            "exe":"{chain}","build_id":"0a0b"}}"#
                    ),
                    3 => format!(r#"{{"event":"trust_reloaded","chain":"{chain}","seq":3}}"#),
                    _ => format!(
                        r#"{{"event":"handshake_ok","ts":"2026-11-22T10:00:0{seq}Z","span":"{span}",
                            "peer_addr":"[::1]:5","took_us":300,"chain":"{chain}","seq":{seq},
                            "steps":[["generate",0,41],["sign",50,80],["schedule",280,9]]}}"#
                    ),
                }
                .replace('\n', ""));
            }
        }
        lines
    }

    /// Exports what `out` lacks, as a program does that is started anew.
    fn export(out: &Path, lines: &[String]) {
        let mut file = open(out, &[]).unwrap();
        let mut groups = Groups::new(None);
        match resume(&mut file).unwrap() {
            Some(resumed) => groups.resumed = resumed,
            None => groups.begin(1_700_000_000),
        }
        for line in lines {
            assert!(groups.take(line.as_bytes(), &Picked::default()));
        }
        groups.write_if(0, &mut file).unwrap();
        // A child that another test just forked has the file until it is another program.
        disk::unlock(&file);
    }

    #[test]
    fn wherever_it_was_stopped_nothing_is_lost_or_twice_there() {
        let directory = std::env::temp_dir().join(format!("lsl-export-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (out, lines) = (directory.join("out"), log());
        export(&out, &lines);
        let whole = fs::read(&out).unwrap();
        let mut rest = &whole[..];
        let groups = std::iter::from_fn(|| super::super::cbor::take_group(&mut rest)).count();
        assert!(rest.is_empty());
        // The head; 8 lines; 4 of them with 5 contexts of steps, 2 of them begin a connection.
        assert_eq!(groups, 1 + 8 + 4 * 5 + 2);
        for cut in (0..whole.len()).step_by(13) {
            fs::write(&out, &whole[..cut]).unwrap();
            export(&out, &lines);
            assert!(fs::read(&out).unwrap() == whole, "cut at {cut}");
        }
        // Stopped again and again, while the log grows.
        fs::remove_file(&out).unwrap();
        for end in 0..=lines.len() {
            export(&out, &lines[..end]);
            let len = fs::metadata(&out).unwrap().len();
            OpenOptions::new()
                .write(true)
                .open(&out)
                .unwrap()
                .set_len(len - 3)
                .unwrap();
        }
        export(&out, &lines);
        assert!(fs::read(&out).unwrap() == whole);
        // Files of others stay as they are.
        for foreign in [&lines[0], "a", "\u{a4}gcontext"] {
            fs::write(&out, foreign).unwrap();
            let mut file = open(&out, &[]).unwrap();
            assert!(resume(&mut file).is_err());
            disk::unlock(&file);
            assert_eq!(fs::read(&out).unwrap(), foreign.as_bytes());
        }
        fs::remove_dir_all(directory).unwrap();
    }
    /// Names of fields that mean something here, with values of any kind.
    fn hostile() -> impl Strategy<Value = String> {
        let key = prop::sample::select(vec![
            "ts",
            "event",
            "span",
            "sid",
            "peer_addr",
            "role",
            "took_us",
            "steps",
            "chain",
            "seq",
            "suite",
            "duration_secs",
            "exe",
            "build_id",
            "detail",
            "name",
            "\u{1b}]0;",
        ]);
        let text = prop_oneof![
            Just("2026-11-22T99:99:99.Z".to_owned()),
            Just("log_opened".to_owned()),
            Just("handshake_ok".to_owned()),
            Just("0f".repeat(16)),
            ".{0,20}",
        ];
        let value = prop_oneof![
            text.prop_map(|it| serde_json::json!(it)),
            any::<i64>().prop_map(|it| serde_json::json!(it)),
            any::<f64>().prop_map(|it| serde_json::json!(it)),
            prop::collection::vec((".{0,8}", any::<i64>(), any::<i64>()), 0..4)
                .prop_map(|it| serde_json::json!(it)),
            Just(serde_json::json!([[], [[]], {"a": null}, ["sign"], [1, "x"], true])),
            Just(serde_json::Value::Null),
        ];
        let line = prop::collection::btree_map(key, value, 0..12);
        prop_oneof![
            5 => line.prop_map(|it| serde_json::to_string(&it).unwrap()),
            1 => ".{0,60}",
        ]
    }

    proptest! {
        #[test]
        fn whatever_a_log_holds_is_read(lines in prop::collection::vec(hostile(), 0..12)) {
            let mut groups = Groups::new(Some(Pseudonyms::new().unwrap()));
            groups.begin(0);
            let conditions = ["took_us>5", "name~pk", "x!=y"];
            let mut read = Vec::new();
            for line in &lines {
                groups.take(line.as_bytes(), &Picked::default());
                if let Ok(fields) = serde_json::from_str::<Fields>(line) {
                    for condition in conditions {
                        super::super::filter::Conditions::one(condition).hold(&fields);
                    }
                    read.push(fields);
                }
            }
            let mut rest = &groups.bytes[..];
            while super::super::cbor::take_group(&mut rest).is_some() {}
            prop_assert!(rest.is_empty(), "what was written is whole");
            let tree = Tree::new(read, Rc::default());
            let mut text = Vec::new();
            tree.write(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            prop_assert!(!text.chars().any(|it| it.is_control() && it != '\n'), "{text:?}");
            let json = tree.to_json().to_string();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
            let stacks = Stacks { counts: true, by: Some("detail".into()) };
            let picture = flame::draw(&fold([tree].into_iter(), &stacks), true);
            prop_assert!(picture.ends_with("</svg>\n"));
        }
    }
}
