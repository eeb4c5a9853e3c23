//! The other side of `python/check_xdf.py`: writes files with what should be in them for pyxdf to
//! judge, and judges files that were written there. Run by `cargo xtask xdf`.
//!
//!     pyxdf_peer write DIR    NAME.xdf and NAME.json, cut and repaired ones included
//!     pyxdf_peer read DIR     each NAME.xdf against what NAME.json says is in it
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a tool for a person, with made-up numbers"
)]

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use lsl_proto::{ChannelFormat, StreamInfo};
use lsl_xdf::chunk::{INTEGRITY_TAG, PADDING_TAG};
use lsl_xdf::salvage::Salvage;
use lsl_xdf::{
    FileHeader, Gap, Loaded, PipeSink, Recording, StreamHeader, Strings, Values, load, repair,
};
use serde_json::{Value, json};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "write", dir] => write(Path::new(dir)),
        [_, "read", dir] => read(Path::new(dir)),
        _ => Err("pyxdf_peer write|read DIR".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("pyxdf_peer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A stream that is recorded, and all that was recorded of it.
struct Made {
    id: u32,
    header: StreamHeader,
    stamps: Vec<f64>,
    values: Values,
    offsets: Vec<(f64, f64)>,
}

fn hexed(numbers: &[f64]) -> Vec<String> {
    numbers
        .iter()
        .map(|number| format!("{:016x}", number.to_bits()))
        .collect()
}

fn texts(values: &Values) -> Vec<String> {
    fn plain<T: ToString>(list: &[T]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }
    match values {
        Values::Float32(list) => list
            .iter()
            .map(|value| format!("{:08x}", value.to_bits()))
            .collect(),
        Values::Double64(list) => hexed(list),
        Values::String(list) => list
            .iter()
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect(),
        Values::Int32(list) => plain(list),
        Values::Int16(list) => plain(list),
        Values::Int8(list) => plain(list),
        Values::Int64(list) => plain(list),
    }
}

fn halves(pairs: &[(f64, f64)]) -> [Vec<String>; 2] {
    let (times, values): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    [hexed(&times), hexed(&values)]
}

impl Made {
    fn describe(&self) -> Value {
        let [times, offsets] = halves(&self.offsets);
        let or_zero = |stamp: Option<&f64>| hexed(&[stamp.copied().unwrap_or(0.0)])[0].clone();
        json!({
            "id": self.id,
            "name": self.header.name(),
            "format": self.header.channel_format().name(),
            "channels": self.header.channel_count(),
            "stamps": hexed(&self.stamps),
            "values": texts(&self.values),
            "times": times,
            "offsets": offsets,
            "footer": {
                "first": or_zero(self.stamps.first()),
                "last": or_zero(self.stamps.last()),
                "count": self.stamps.len(),
                "times": times,
                "values": offsets,
            },
        })
    }

    /// The same when only the first samples and offsets are there.
    fn cut(&self, samples: usize, offsets: usize) -> Result<Self> {
        let mut values = Values::new(self.values.format()).ok_or("no format")?;
        let len = samples * self.header.channel_count();
        match (&mut values, &self.values) {
            (Values::Float32(to), Values::Float32(from)) => to.extend(&from[..len]),
            (Values::Double64(to), Values::Double64(from)) => to.extend(&from[..len]),
            (Values::String(to), Values::String(from)) => {
                from.iter().take(len).for_each(|text| to.push(text));
            }
            (Values::Int32(to), Values::Int32(from)) => to.extend(&from[..len]),
            (Values::Int16(to), Values::Int16(from)) => to.extend(&from[..len]),
            (Values::Int8(to), Values::Int8(from)) => to.extend(&from[..len]),
            (Values::Int64(to), Values::Int64(from)) => to.extend(&from[..len]),
            _ => return Err("formats differ".into()),
        }
        Ok(Self {
            id: self.id,
            header: self.header.clone(),
            stamps: self.stamps[..samples].to_vec(),
            values,
            offsets: self.offsets[..offsets].to_vec(),
        })
    }
}

/// Values with the extremes of their format among them.
fn values(format: ChannelFormat, first: usize, count: usize) -> Option<Values> {
    let numbers = first..first + count;
    Some(match format {
        ChannelFormat::Undefined => return None,
        ChannelFormat::Float32 => numbers
            .map(|n| match n % 11 {
                0 => f32::MIN_POSITIVE / 2.0,
                1 => -f32::MAX,
                2 => f32::INFINITY,
                _ => n as f32 / 3.0,
            })
            .collect::<Vec<_>>()
            .into(),
        ChannelFormat::Double64 => numbers
            .map(|n| match n % 11 {
                0 => -0.0,
                1 => f64::MAX,
                _ => n as f64 / 3.0,
            })
            .collect::<Vec<_>>()
            .into(),
        ChannelFormat::String => Values::String(
            numbers
                .map(|n| match n % 5 {
                    0 => String::new(),
                    1 => format!("<marker & \"{n}\"> é漢\n"),
                    _ => "x".repeat(n * 7 % 700),
                })
                .collect::<Strings>(),
        ),
        ChannelFormat::Int32 => numbers
            .map(|n| i32::MIN.wrapping_add((n as i32).wrapping_mul(0x1234_5677)))
            .collect::<Vec<_>>()
            .into(),
        ChannelFormat::Int16 => numbers
            .map(|n| i16::MIN.wrapping_add((n as i16).wrapping_mul(9973)))
            .collect::<Vec<_>>()
            .into(),
        ChannelFormat::Int8 => numbers
            .map(|n| (n as u8).wrapping_mul(37).cast_signed())
            .collect::<Vec<_>>()
            .into(),
        ChannelFormat::Int64 => numbers
            .map(|n| i64::MIN.wrapping_add((n as i64).wrapping_mul(0x0123_4567_89AB_CDEF)))
            .collect::<Vec<_>>()
            .into(),
    })
}

fn header(name: &str, format: ChannelFormat, channels: u32, srate: f64) -> Result<StreamHeader> {
    let mut info = StreamInfo::new(name, "EEG", channels, srate, format, "peer-1")?;
    // What strict readers of XML would not take.
    info.desc_mut()
        .child("my channels")
        .set("1st:label", "C3\u{1}\u{8} <&>")
        .set("unit", "µV");
    Ok(StreamHeader::from_info(&info)?)
}

/// Records `rounds` of samples for all streams.
fn record(
    headers: Vec<StreamHeader>,
    rounds: usize,
    per_round: usize,
) -> Result<(Vec<u8>, Vec<Made>)> {
    let file = FileHeader::new("2026-11-22T08:31:56+0000");
    let mut recording = Recording::new(PipeSink(Vec::new()), &file, 0.0)?;
    let mut streams = Vec::new();
    for header in headers {
        let id = recording.add_stream(&header, 0.0)?;
        streams.push(Made {
            id,
            values: Values::new(header.channel_format()).ok_or("no format")?,
            header,
            stamps: Vec::new(),
            offsets: Vec::new(),
        });
    }
    for round in 0..rounds {
        let now = 5000.0 + 5.0 * round as f64;
        for stream in &mut streams {
            let (channels, srate) = (stream.header.channel_count(), stream.header.nominal_srate());
            let offset = (now - 0.25, 0.25 + 1e-6 * round as f64);
            recording.clock_offset(stream.id, offset.0, offset.1, now)?;
            stream.offsets.push(offset);
            // Silent streams have a name for it.
            if stream.header.name() == "silent" {
                continue;
            }
            let mut stamps = Vec::with_capacity(per_round);
            for n in 0..per_round {
                let last = stamps.last().copied();
                stamps.push(match last {
                    Some(last) if srate > 0.0 && n % 9 != 0 => last + 1.0 / srate,
                    _ => now + n as f64 * 0.0031,
                });
            }
            let first = round * per_round * channels;
            let new = values(stream.values.format(), first, per_round * channels);
            let new = new.ok_or("no format")?;
            recording.samples(stream.id, &stamps, &new, now)?;
            stream.stamps.extend(stamps);
            stream.values.extend_from(&new);
        }
        recording.private(INTEGRITY_TAG, &[round as u8; 40], now)?;
        recording.private(PADDING_TAG, &vec![0; round * 100], now)?;
    }
    if let Some(stream) = streams.first() {
        let gap = Gap {
            from: 1.0,
            to: 2.5,
            samples: Some(3),
            reason: "the cable <was> out".to_owned(),
        };
        recording.gap(stream.id, gap)?;
        recording.note(stream.id, "writer", "lsl-rs")?;
    }
    recording.finish(5000.0 + 5.0 * rounds as f64)?;
    Ok((recording.into_sink().0, streams))
}

fn save(dir: &Path, name: &str, file: &[u8], streams: &[Made]) -> Result {
    let described: Vec<Value> = streams.iter().map(Made::describe).collect();
    fs::write(dir.join(format!("{name}.xdf")), file)?;
    let text = json!({ "streams": described }).to_string();
    Ok(fs::write(dir.join(format!("{name}.json")), text)?)
}

fn write(dir: &Path) -> Result {
    let mut all = Vec::new();
    for format in ChannelFormat::STREAMABLE {
        for (index, srate) in [0.0, 250.0, 1000.0 / 3.0].into_iter().enumerate() {
            let made = header(
                &format!("{format} {index}"),
                format,
                1 + index as u32,
                srate,
            )?;
            all.push(made.clone());
            let (file, streams) = record(vec![made], 6, 50)?;
            save(dir, &format!("{format}-{index}"), &file, &streams)?;
        }
    }
    all.push(header("silent", ChannelFormat::String, 1, 0.0)?);
    let (file, streams) = record(all, 6, 50)?;
    save(dir, "all", &file, &streams)?;

    // Several chunks and boundaries per call.
    let eeg = header("wide", ChannelFormat::Float32, 64, 1000.0)?;
    let (file, streams) = record(vec![eeg], 4, 5000)?;
    save(dir, "wide", &file, &streams)?;

    let small = vec![
        header("numbers", ChannelFormat::Int16, 2, 100.0)?,
        header("texts", ChannelFormat::String, 1, 0.0)?,
    ];
    let (file, streams) = record(small, 4, 6)?;
    let begin = 4 + 130;
    // Every place of a chunk is met, and the end at every byte.
    let cuts = (begin..file.len()).step_by(11);
    for cut in cuts.chain(file.len() - 40..=file.len()) {
        let survey = repair::survey(&file[..cut])?;
        let mut repaired = Vec::new();
        survey.write_repaired(&file[..cut], &mut repaired)?;
        let mut left = Vec::new();
        for stream in &streams {
            if let Some(summary) = survey.streams.get(&stream.id) {
                let tally = &summary.tally;
                left.push(stream.cut(tally.samples as usize, tally.offsets.len())?);
            }
        }
        save(dir, &format!("cut-{cut:05}"), &repaired, &left)?;
    }
    let mut salvaged = Vec::new();
    Salvage::new().run(&file[..], &mut salvaged)?;
    save(dir, "salvaged", &salvaged, &streams)?;
    Ok(())
}

fn describe(loaded: &Loaded) -> Value {
    let streams = loaded.streams.iter().map(|stream| {
        let [times, offsets] = halves(&stream.offsets);
        json!({
            "id": stream.id,
            "name": stream.header.name(),
            "format": stream.header.channel_format().name(),
            "channels": stream.header.channel_count(),
            "stamps": hexed(&stream.stamps),
            "values": texts(&stream.values),
            "times": times,
            "offsets": offsets,
            "footer": stream.footer.as_ref().map(|footer| {
                let [times, values] = halves(&footer.clock_offsets());
                json!({
                    "first": hexed(footer.first_timestamp().as_slice()).concat(),
                    "last": hexed(footer.last_timestamp().as_slice()).concat(),
                    "count": footer.sample_count(),
                    "times": times,
                    "values": values,
                })
            }),
        })
    });
    json!({ "streams": streams.collect::<Vec<_>>() })
}

fn read(dir: &Path) -> Result {
    let (mut files, mut samples) = (0, 0);
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "xdf") {
            continue;
        }
        let loaded = load(fs::File::open(&path)?)?;
        let name = path.display();
        if let Some(problem) = loaded.problems.first() {
            return Err(format!("{name}: {problem}").into());
        }
        let expected = fs::read_to_string(path.with_extension("json"))?;
        let expected: Value = serde_json::from_str(&expected)?;
        let found = describe(&loaded);
        if found != expected {
            fs::write(path.with_extension("found"), found.to_string())?;
            return Err(format!("{name}: differs, see the .found beside it").into());
        }
        // What is repaired or salvaged reads the same.
        let bytes = fs::read(&path)?;
        let mut repaired = Vec::new();
        repair::survey(&bytes[..])?.write_repaired(&bytes[..], &mut repaired)?;
        let mut salvaged = Vec::new();
        Salvage::new().run(&bytes[..], &mut salvaged)?;
        for again in [repaired, salvaged] {
            let again = load(&again[..])?;
            for (one, other) in loaded.streams.iter().zip(&again.streams) {
                let same = hexed(&one.stamps) == hexed(&other.stamps)
                    && texts(&one.values) == texts(&other.values)
                    && one.offsets == other.offsets
                    && other.footer.is_some();
                if !same {
                    return Err(format!("{name}: repaired or salvaged it differs").into());
                }
            }
        }
        files += 1;
        samples += loaded.streams.iter().map(|s| s.stamps.len()).sum::<usize>();
    }
    println!("pyxdf_peer: {files} files of LabRecorder's kind, {samples} samples, all equal");
    if files == 0 {
        Err("no file to read".into())
    } else {
        Ok(())
    }
}
