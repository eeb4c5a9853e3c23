//! `lsl bench aead`: the ciphers alone, without sockets, handshakes or records. Says at the end whether
//! the one that two machines like this agree on is the right one.

mod openssl;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;

use clap::{Args, ValueEnum};
use lsl_benches::cipher::{Broken, Cipher, IS_SOFT_BUILD, Implementation};
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use lsl_cli::ui::table::{Align, Table};
use lsl_core::local_clock;
use lsl_core::secure::{Suite, Suites};

use super::output::{Measured, Output};
use super::result::{Cell, Machine, Measurement, Round, Subject};
use super::rotation::order;
use super::stats::median;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Aead {
    /// Sizes of messages in bytes; those of samples with 8, 32, 64, 128 and 256 channels of float32
    /// (41, 137, 265, 521, 1033) are always measured too
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    #[arg(default_value = "2,31,136,1024,8192,16384", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    sizes: Vec<u32>,

    /// Seconds per size and cipher, half of them for sealing, half for opening
    #[arg(long, value_name = "SECS", default_value = "3", value_parser = seconds)]
    seconds: f64,

    /// In how many rounds these seconds are spent; the ciphers take turns in each
    #[arg(long, value_name = "ROUNDS", default_value = "6", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Whose ciphers
    #[arg(long = "impl", value_name = "WHOSE", value_enum, value_delimiter = ',')]
    #[arg(default_value = "ring,rustcrypto")]
    implementations: Vec<Whose>,

    /// AES with the processor's instructions or without; the latter needs a build of its own, below
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        value_delimiter = ',',
        default_value = "hw,soft"
    )]
    aes: Vec<Instructions>,

    /// Bytes that are authenticated and not encrypted
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=4096))]
    aad: Vec<u32>,

    #[command(flatten)]
    output: Output,
}

/// Library that implements a cipher.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Whose {
    /// What sessions use
    Ring,
    /// Pure Rust
    #[value(name = "rustcrypto")]
    RustCrypto,
    /// `openssl speed` of this machine, sealing alone; turns are whole seconds
    #[value(name = "openssl")]
    OpenSsl,
}

/// Way in which a build computes AES.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Instructions {
    /// With the processor's instructions
    Hw,
    /// Without
    Soft,
}

const HELP: &str = "\
Sealing is in place; opening includes one copy of the message, since it destroys what it opens.
Times are medians over short batches, so that being interrupted does not count. MB is 10^6 bytes.

ring always uses the processor's instructions where there are any. AES without them, as on a
Raspberry Pi 4, can be measured with RustCrypto in a build of its own, which labels itself:
  RUSTFLAGS='--cfg aes_backend=\"soft\" --cfg polyval_backend=\"soft\"' \\
    cargo build --release -p lsl-bench --target-dir target/soft

Examples:
  lsl bench aead                        the published sizes and ours, about two minutes
  lsl bench aead --seconds 0.5 --impl ring --sizes 265
  lsl bench aead --seconds 6 --repeat 3 --impl ring,openssl
  lsl bench aead --aad 0,13 --output results";

impl Aead {
    pub(super) fn run(&self) -> Outcome {
        let cpu = Suites::of_this_cpu() == Suites::Both;
        let contenders = self.contenders(cpu);
        if contenders.is_empty() {
            return Err(Failure::Usage(
                "--impl and --aes leave nothing to measure in this build".into(),
            ));
        }
        let sizes = with_ours(&self.sizes);
        let turns = contenders.len() * sizes.len() * self.aad.len();
        note(format_args!(
            "lsl: {} for {} sizes, about {:.0} s",
            lsl_cli::ui::text::count(contenders.len(), "cipher"),
            sizes.len(),
            turns as f64 * self.seconds
        ));
        let stop = Stop::install()?;
        let machine = Machine::here();
        let mut cells = Vec::new();
        for &aad in &self.aad {
            for &size in &sizes {
                cells.extend(self.cell(&contenders, size, aad, &stop)?);
            }
        }
        let subjects: Vec<Subject> = contenders
            .iter()
            .map(|contender| contender.subject())
            .collect();
        show(&subjects, &cells)?;
        judge(&contenders, &cells);
        let negotiated = Suites::of_this_cpu().list().first();
        let is_it = |contender: &Contender| {
            contender.implementation == Some(Implementation::Ring)
                && Some(&contender.suite) == negotiated
        };
        let measured = Measured {
            benchmark: "aead",
            subjects,
            baseline: contenders.iter().position(is_it).unwrap_or(0),
            cells,
        };
        self.output.write(machine, measured)
    }

    /// Returns the ciphers to measure, and reports the rest as missing.
    fn contenders(&self, cpu: bool) -> Vec<Contender> {
        let mut contenders = Vec::new();
        for whose in &self.implementations {
            let of = |implementation| {
                let suites = Suites::Both.list().iter();
                let all = suites.map(|suite| Contender::new(implementation, *suite, cpu));
                all.collect::<Vec<_>>()
            };
            let all = match whose {
                Whose::Ring => of(Implementation::Ring),
                Whose::RustCrypto => of(Implementation::RustCrypto),
                Whose::OpenSsl if openssl::version().is_none() => {
                    note("lsl: there is no openssl on this machine");
                    continue;
                }
                Whose::OpenSsl => Contender::of_openssl(cpu),
            };
            let is_wanted = |it: &Contender| it.aes.is_none_or(|how| self.aes.contains(&how));
            contenders.extend(all.into_iter().filter(is_wanted));
        }
        let has = |how| {
            contenders
                .iter()
                .any(|contender| contender.aes == Some(how))
        };
        if self.aes.contains(&Instructions::Soft) && !has(Instructions::Soft) {
            note(
                "lsl: this build has AES by the processor only; `lsl bench aead --help` has the build without",
            );
        }
        if self.aes.contains(&Instructions::Hw) && !has(Instructions::Hw) {
            note(
                "lsl: no AES by the processor among these: the processor, this build or --impl has none",
            );
        }
        contenders
    }

    /// All of one size; `None` when the user wants to end.
    fn cell(
        &self,
        contenders: &[Contender],
        size: u32,
        aad: u32,
        stop: &Stop,
    ) -> Outcome<Option<Cell>> {
        note(format_args!("lsl: {size} bytes"));
        let secs = self.seconds / f64::from(self.repeat);
        let mut rounds = Vec::new();
        for round in 0..self.repeat as usize {
            let mut measurements = vec![Measurement::default(); contenders.len()];
            for index in order(round, contenders.len()) {
                if stop.requested() {
                    return Ok(None);
                }
                let Contender {
                    implementation,
                    suite,
                    aes,
                } = contenders[index];
                let values = if let Some(implementation) = implementation {
                    let values = measure(implementation, suite, size as usize, aad as usize, secs);
                    values.map_err(|Broken| {
                        Failure::Runtime(format!("{} does not work", contenders[index].name()))
                    })
                } else {
                    openssl::measure(suite, size, secs, aes != Some(Instructions::Soft))
                };
                // Ctrl-C ends openssl too.
                if stop.requested() {
                    return Ok(None);
                }
                measurements[index].values = values?;
            }
            rounds.push(Round { measurements });
        }
        let parameters = [("bytes", size), ("aad", aad)];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.into()));
        Ok(Some(Cell {
            parameters: parameters.into(),
            rounds,
        }))
    }
}

/// A cipher of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contender {
    /// Of a library; none is `openssl speed`.
    implementation: Option<Implementation>,
    suite: Suite,
    /// Set for AES alone; ChaCha20 has no instructions of its own.
    aes: Option<Instructions>,
}

impl Contender {
    fn new(implementation: Implementation, suite: Suite, cpu: bool) -> Self {
        let aes = (suite == Suite::Aes256Gcm).then(|| {
            if implementation.has_aes_instructions(cpu) {
                Instructions::Hw
            } else {
                Instructions::Soft
            }
        });
        Self {
            implementation: Some(implementation),
            suite,
            aes,
        }
    }

    /// Both ciphers, that of AES with the processor's instructions, if it has them, and without.
    fn of_openssl(cpu: bool) -> Vec<Self> {
        let (hw, soft) = (Some(Instructions::Hw), Some(Instructions::Soft));
        let all = [
            (Suite::Aes256Gcm, hw),
            (Suite::Aes256Gcm, soft),
            (Suite::ChaCha20Poly1305, None),
        ];
        // Other processors have no switch for what they can do.
        let is_there = |(_, aes): &(Suite, Option<Instructions>)| {
            (*aes != hw || cpu) && (*aes != soft || !cpu || cfg!(target_arch = "x86_64"))
        };
        let all = all.into_iter().filter(is_there);
        all.map(|(suite, aes)| Self {
            implementation: None,
            suite,
            aes,
        })
        .collect()
    }

    fn name(self) -> String {
        let soft = match self.aes {
            Some(Instructions::Soft) => " soft",
            _ => "",
        };
        let whose = self.implementation.map_or("OpenSSL", Implementation::name);
        format!("{whose} {}{soft}", self.suite.name())
    }

    fn subject(self) -> Subject {
        let how = match self.aes {
            Some(Instructions::Soft) if self.implementation.is_none() => {
                "AES without instructions, by OPENSSL_ia32cap or as the processor has none"
            }
            Some(Instructions::Hw) => "AES by the processor's instructions",
            Some(Instructions::Soft) if IS_SOFT_BUILD => {
                "AES without instructions, by --cfg aes_backend"
            }
            Some(Instructions::Soft) => {
                "AES without instructions, which this processor does not have"
            }
            None => "no AES in it",
        };
        let version = match self.implementation {
            None => openssl::version().map(|version| format!("; {version}")),
            Some(_) => None,
        };
        Subject {
            name: self.name(),
            detail: how.to_owned() + &version.unwrap_or_default(),
            secure: true,
        }
    }
}

/// The sizes asked for and ours, in order, each once.
fn with_ours(sizes: &[u32]) -> Vec<u32> {
    let mut all: Vec<u32> = sizes
        .iter()
        .copied()
        .chain(OURS.map(|(size, _)| size))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// One turn of one cipher.
fn measure(
    implementation: Implementation,
    suite: Suite,
    size: usize,
    aad: usize,
    secs: f64,
) -> Result<BTreeMap<String, f64>, Broken> {
    let cipher = Cipher::new(implementation, suite)?;
    let aad = vec![1; aad];
    let mut text = vec![2; size];
    let mut count = 0;
    let seal_ns = time(size, secs / 2.0, || {
        count += 1;
        cipher.seal(count, &aad, black_box(&mut text)).map(drop)
    })?;
    let seal = cipher.seal(0, &aad, &mut text)?;
    let sealed = text.clone();
    let open_ns = time(size, secs / 2.0, || {
        text.copy_from_slice(black_box(&sealed));
        cipher.open(0, &aad, black_box(&mut text), &seal)
    })?;
    let rate = |ns: f64| size as f64 / ns * 1000.0;
    let values = [
        ("seal_ns", seal_ns),
        ("open_ns", open_ns),
        ("seal_mb_per_s", rate(seal_ns)),
        ("open_mb_per_s", rate(open_ns)),
    ];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}

/// Nanoseconds of one `call`, as the median over batches of them.
fn time(
    size: usize,
    secs: f64,
    mut call: impl FnMut() -> Result<(), Broken>,
) -> Result<f64, Broken> {
    // Long enough that reading the clock does not count, short enough to fall between interruptions.
    let batch = (BATCH_BYTES / (size + FIXED_BYTES)).max(1);
    let mut batches = Vec::new();
    let end = local_clock() + secs;
    loop {
        let start = local_clock();
        for _ in 0..batch {
            call()?;
        }
        let now = local_clock();
        batches.push((now - start) / batch as f64 * 1e9);
        if now >= end {
            return median(&batches).ok_or(Broken);
        }
    }
}

fn parameter(cell: &Cell, name: &str) -> u64 {
    let value = cell.parameters.get(name);
    value.and_then(serde_json::Value::as_u64).unwrap_or(0)
}

fn show(subjects: &[Subject], cells: &[Cell]) -> Outcome {
    let mut table = Table::new(&[
        ("bytes", Align::Right),
        ("aad", Align::Right),
        ("cipher", Align::Left),
        ("seal ns", Align::Right),
        ("MB/s", Align::Right),
        ("open ns", Align::Right),
        ("MB/s", Align::Right),
        ("", Align::Left),
    ]);
    for cell in cells {
        let size = parameter(cell, "bytes");
        let ours = OURS.iter().find(|(ours, _)| u64::from(*ours) == size);
        for (index, subject) in subjects.iter().enumerate() {
            let value = |metric, digits| cell.median_text(index, metric, digits);
            table.push([
                size.to_string(),
                parameter(cell, "aad").to_string(),
                subject.name.clone(),
                value("seal_ns", 0),
                value("seal_mb_per_s", 1),
                value("open_ns", 0),
                value("open_mb_per_s", 1),
                ours.map_or(String::new(), |(_, channels)| {
                    format!("sample of {channels} ch")
                }),
            ]);
        }
    }
    Ok(table.write(&mut io::stdout().lock(), "")?)
}

/// Whether the suite that machines like this agree on is the right one at the sizes of samples.
fn judge(contenders: &[Contender], cells: &[Cell]) {
    let Some(verdict) = Verdict::of(contenders, cells) else {
        note("lsl: no verdict without both ciphers of ring");
        return;
    };
    for (size, ratio) in &verdict.ratios {
        note(format_args!(
            "lsl: {size} bytes: {} takes {ratio:.3} of the other's time",
            verdict.negotiated.name()
        ));
    }
    let is_right = if verdict.is_right() { "is" } else { "IS NOT" };
    note(format_args!(
        "lsl: {}, which two machines like this agree on, {is_right} within 5 % of the other or better at \
         all sizes of samples",
        verdict.negotiated.name()
    ));
}

/// The suite that sessions negotiate, measured against the other one.
struct Verdict {
    negotiated: Suite,
    /// Bytes and time in relation to the other's, sealing and opening together.
    ratios: Vec<(u64, f64)>,
}

impl Verdict {
    fn of(contenders: &[Contender], cells: &[Cell]) -> Option<Self> {
        let negotiated = *Suites::of_this_cpu().list().first()?;
        let place = |wanted: &dyn Fn(Suite) -> bool| {
            let is_it = |contender: &Contender| {
                contender.implementation == Some(Implementation::Ring) && wanted(contender.suite)
            };
            contenders.iter().position(is_it)
        };
        let ours = place(&|suite| suite == negotiated)?;
        let other = place(&|suite| suite != negotiated)?;
        let cost = |round: &Round, subject: usize| {
            let values = &round.measurements.get(subject)?.values;
            Some(values.get("seal_ns")? + values.get("open_ns")?)
        };
        let ratio = |round: &Round| Some(cost(round, ours)? / cost(round, other)?);
        let ratios: Vec<_> = cells
            .iter()
            .map(|cell| (parameter(cell, "bytes"), cell))
            .filter(|(size, _)| OURS.iter().any(|(ours, _)| u64::from(*ours) == *size))
            .filter_map(|(size, cell)| {
                let ratios: Vec<f64> = cell.rounds.iter().filter_map(ratio).collect();
                Some((size, median(&ratios)?))
            })
            .collect();
        (!ratios.is_empty()).then_some(Self { negotiated, ratios })
    }

    fn is_right(&self) -> bool {
        self.ratios.iter().all(|(_, ratio)| *ratio <= TOLERATED)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(secs) if (0.001..=3600.0).contains(&secs) => Ok(secs),
        _ => Err("write seconds from 0.001 to 3600".into()),
    }
}

/// Sizes of samples on the wire and their channels of float32: the values, a timestamp and its tag.
const OURS: [(u32, u32); 5] = [(41, 8), (137, 32), (265, 64), (521, 128), (1033, 256)];
/// Largest accepted ratio of the negotiated suite's time to the other's.
const TOLERATED: f64 = 1.05;
/// A batch takes as long as about this many bytes do, ...
const BATCH_BYTES: usize = 1 << 16;
/// ... where every message costs as much as this many besides its own.
const FIXED_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(implementation: Implementation, suite: Suite) -> Contender {
        Contender::new(implementation, suite, true)
    }

    #[test]
    fn our_sizes_are_there_once_and_in_order() {
        assert_eq!(
            with_ours(&[16384, 265, 2, 2]),
            [2, 41, 137, 265, 521, 1033, 16384]
        );
    }

    #[test]
    fn contenders_say_what_they_are() {
        let name =
            |implementation, cpu| Contender::new(implementation, Suite::Aes256Gcm, cpu).name();
        assert_eq!(name(Implementation::Ring, true), "ring AES-256-GCM");
        assert_eq!(name(Implementation::Ring, false), "ring AES-256-GCM soft");
        let openssl = |cpu| Contender::of_openssl(cpu).into_iter().map(Contender::name);
        assert!(openssl(true).any(|name| name == "OpenSSL AES-256-GCM"));
        assert_eq!(
            openssl(false).collect::<Vec<_>>(),
            ["OpenSSL AES-256-GCM soft", "OpenSSL ChaCha20-Poly1305"]
        );
        let chacha = contender(Implementation::RustCrypto, Suite::ChaCha20Poly1305);
        assert_eq!(chacha.name(), "rustcrypto ChaCha20-Poly1305");
        let soft = if IS_SOFT_BUILD { " soft" } else { "" };
        let expected = format!("rustcrypto AES-256-GCM{soft}");
        assert_eq!(name(Implementation::RustCrypto, true), expected);
    }

    #[test]
    fn all_that_is_measured_is_there() {
        for suite in [Suite::ChaCha20Poly1305, Suite::Aes256Gcm] {
            for implementation in [Implementation::Ring, Implementation::RustCrypto] {
                let values = measure(implementation, suite, 41, 13, 0.0).unwrap();
                assert_eq!(values.len(), 4);
                assert!(values.values().all(|value| value.is_finite()), "{values:?}");
            }
        }
    }

    #[test]
    fn the_verdict_compares_what_is_negotiated() {
        let both = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305];
        let contenders = both.map(|suite| contender(Implementation::Ring, suite));
        let negotiated = Suites::of_this_cpu().list()[0];
        let cells = |cost_of_it: f64| {
            let measurement = |suite: Suite| {
                let cost = if suite == negotiated {
                    cost_of_it
                } else {
                    100.0
                };
                let values = ["seal_ns", "open_ns"].map(|name| (name.to_owned(), cost));
                Measurement {
                    values: values.into(),
                    ..Measurement::default()
                }
            };
            let round = Round {
                measurements: both.map(measurement).into(),
            };
            let cell = |bytes: u32| Cell {
                parameters: [("bytes".to_owned(), bytes.into())].into(),
                rounds: vec![round.clone()],
            };
            vec![cell(2), cell(265)]
        };
        for (cost, is_right) in [(60.0, true), (105.0, true), (106.0, false)] {
            let verdict = Verdict::of(&contenders, &cells(cost)).unwrap();
            assert_eq!(verdict.ratios, [(265, cost / 100.0)]);
            assert_eq!(verdict.is_right(), is_right);
        }
        assert!(Verdict::of(&contenders[..1], &cells(60.0)).is_none());
    }
}
