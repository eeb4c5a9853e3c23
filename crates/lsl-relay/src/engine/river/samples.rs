//! What a sample of LSL is in River, and the other way round. Spec: relay §12.2.

use std::collections::HashSet;

use lsl_proto::value::{RawStrings, append_raw, append_raw_string, raw_sample_len, read_raw};
use lsl_proto::{ChannelFormat, IRREGULAR_RATE, StreamInfo};

use super::metadata::uid;
use super::schema::{Field, FieldType, MOST_SAMPLE_BYTES};
use super::{Metadata, Schema, Unreadable};

/// How the samples of one stream are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    schema: Schema,
    format: ChannelFormat,
    channels: usize,
    /// Whether the timestamp stands before the values.
    has_stamp: bool,
    values: Values,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// As LSL has them.
    Same,
    /// One text.
    Text,
    /// Numbers of several types, which become 64-bit floating point.
    Mixed,
}

impl Packing {
    /// Chooses the schema of a stream of LSL.
    ///
    /// # Errors
    /// [`Unreadable`] if River has none for it.
    pub fn of_info(info: &StreamInfo) -> Result<Self, Unreadable> {
        let refuse = |text: &str| Err(Unreadable(text.to_owned()));
        let format = info.channel_format();
        let channels = usize::try_from(info.channel_count()).unwrap_or(usize::MAX);
        let labels = labels_of(info, channels.min(MOST_FIELDS));
        let mut fields = Vec::new();
        if format == ChannelFormat::String {
            if channels != 1 {
                return refuse("River has no place for more than one text in a sample");
            }
            let label = labels.into_iter().next();
            let name = label
                .filter(|it| it != CHANNEL)
                .unwrap_or_else(|| TEXT.to_owned());
            let kind = FieldType::VariableWidthBytes;
            fields.push(Field::bytes(name, kind, STAMP_BYTES + MOST_TEXT_BYTES));
        } else {
            let len = raw_sample_len(format, channels).filter(|len| *len > 0);
            let Some(len) = len.filter(|len| *len <= MOST_SAMPLE_BYTES - STAMP_BYTES) else {
                return refuse("River has no place for samples without values, or so long ones");
            };
            let (kind, size) = field_type(format);
            fields.push(Field::number(TIMESTAMP, FieldType::Double));
            if channels > MOST_FIELDS {
                fields.push(Field::bytes(DATA, FieldType::FixedWidthBytes, len));
            } else {
                let named = labels.into_iter();
                fields.extend(named.map(|label| Field::bytes(label, kind, size)));
            }
        }
        let values = match format {
            ChannelFormat::String => Values::Text,
            _ => Values::Same,
        };
        Ok(Self {
            schema: Schema { fields },
            format,
            channels,
            has_stamp: true,
            values,
        })
    }

    /// Chooses what a stream of River is in LSL, and describes it: as before, if it came from there. `srate` is its rate
    /// in samples per second, if nothing says it.
    ///
    /// # Errors
    /// [`Unreadable`] if LSL has no stream for it.
    pub fn of_metadata(
        name: &str,
        metadata: &Metadata,
        srate: f64,
    ) -> Result<(Self, StreamInfo), Unreadable> {
        if let Some(xml) = metadata.user.get(USER_XML)
            && let Ok(info) = StreamInfo::from_xml(xml.as_bytes())
            && let Ok(packing) = Self::of_info(&info)
            && packing.schema == metadata.schema
            && !info.uid_bytes().is_empty()
        {
            return Ok((packing, info));
        }
        let packing = Self::of_schema(&metadata.schema)?;
        let channels = u32::try_from(packing.channels).unwrap_or(u32::MAX);
        let srate = if srate > 0.0 { srate } else { IRREGULAR_RATE };
        let info = StreamInfo::new(name, TYPE, channels, srate, packing.format, name);
        let mut info = info.map_err(|error| Unreadable(error.to_string()))?;
        info.reset_uid(&uid(name));
        if packing.values != Values::Text && packing.label_bytes() <= MOST_LABEL_BYTES {
            packing.label(&mut info);
        }
        Ok((packing, info))
    }

    fn of_schema(schema: &Schema) -> Result<Self, Unreadable> {
        let mut fields = schema.fields.iter();
        let first = schema.fields.first();
        let has_stamp = first
            .is_some_and(|it| it.name == TIMESTAMP && it.kind == FieldType::Double)
            && schema.fields.len() > 1;
        if has_stamp {
            fields.next();
        }
        let kinds: HashSet<_> = fields.clone().map(|field| field.kind).collect();
        let are_numbers = kinds.iter().all(|kind| kind.width().is_some());
        let mut kinds = kinds.into_iter();
        let (format, values) = match (kinds.next(), kinds.next()) {
            (Some(kind), None) => format_of(kind),
            (Some(_), Some(_)) if are_numbers => (ChannelFormat::Double64, Values::Mixed),
            _ => {
                let text = "LSL has no stream for numbers and bytes in one sample";
                return Err(Unreadable(text.to_owned()));
            }
        };
        let channels = match (values, format) {
            (Values::Text, _) => 1,
            // Each byte is a channel.
            (_, ChannelFormat::Int8) => fields.map(|field| field.size).sum(),
            _ => fields.count(),
        };
        Ok(Self {
            schema: schema.clone(),
            format,
            channels,
            has_stamp,
            values,
        })
    }

    /// Returns about how many bytes the names of all channels take in a description.
    fn label_bytes(&self) -> usize {
        let fields = self.schema.fields.iter();
        let bytes = fields.map(|field| match field.kind {
            FieldType::FixedWidthBytes => {
                (field.name.len() + LABEL_BYTES).saturating_mul(field.size)
            }
            _ => field.name.len() + LABEL_BYTES,
        });
        bytes.fold(0, usize::saturating_add)
    }

    /// Names the channels as the fields are called; of bytes, each is one.
    fn label(&self, info: &mut StreamInfo) {
        let mut desc = info.desc_mut();
        let mut channels = desc.append_child("channels");
        for field in self.schema.fields.iter().skip(usize::from(self.has_stamp)) {
            let bytes = match field.kind {
                FieldType::FixedWidthBytes => field.size,
                _ => 1,
            };
            for at in 0..bytes {
                let label = match bytes {
                    1 => field.name.clone(),
                    _ => format!("{}[{at}]", field.name),
                };
                channels.append_child("channel").set("label", label);
            }
        }
    }

    /// Returns the schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the format of the values in LSL.
    pub fn format(&self) -> ChannelFormat {
        self.format
    }

    /// Whether samples have timestamps of their own.
    pub fn has_stamp(&self) -> bool {
        self.has_stamp
    }

    /// Returns the number of channels in LSL.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns a sample as River stores it; `None` for a text that is longer than the schema allows, and for schemas that
    /// no stream of LSL has. `raw` are its values in the raw layout of [`lsl_proto::value`].
    pub fn pack(&self, stamp: f64, raw: &[u8]) -> Option<Vec<u8>> {
        if !self.has_stamp || self.values == Values::Mixed {
            return None;
        }
        let mut val = Vec::with_capacity(STAMP_BYTES + raw.len());
        val.extend_from_slice(&stamp.to_le_bytes());
        if self.values == Values::Text {
            let text = RawStrings::new(raw).next()?;
            val.extend_from_slice(text);
            return (text.len() <= MOST_TEXT_BYTES).then_some(val);
        }
        let at = val.len();
        val.extend_from_slice(raw);
        swap(self.format.value_size(), val.get_mut(at..)?);
        (val.len() == self.schema.sample_len()).then_some(val)
    }

    /// Appends the values of a stored sample in the raw layout. Returns its timestamp, if it has one; the error is that
    /// it is no sample of this stream.
    ///
    /// # Errors
    /// [`Unreadable`]
    pub fn unpack(&self, val: &[u8], values: &mut Vec<u8>) -> Result<Option<f64>, Unreadable> {
        let wrong = || {
            Unreadable(format!(
                "a sample has {} bytes, which none of it has",
                val.len()
            ))
        };
        let is_whole = self.schema.is_variable() || val.len() == self.schema.sample_len();
        let mut rest = Some(val).filter(|_| is_whole).ok_or_else(wrong)?;
        let mut stamp = None;
        if self.has_stamp {
            let (bytes, after) = rest.split_first_chunk().ok_or_else(wrong)?;
            stamp = Some(f64::from_le_bytes(*bytes));
            rest = after;
        }
        match self.values {
            Values::Text => append_raw_string(rest, values),
            Values::Same => {
                let at = values.len();
                values.extend_from_slice(rest);
                swap(
                    self.format.value_size(),
                    values.get_mut(at..).unwrap_or_default(),
                );
            }
            Values::Mixed => {
                for field in self.schema.fields.iter().skip(usize::from(self.has_stamp)) {
                    let (bytes, after) = rest.split_at_checked(field.size).ok_or_else(wrong)?;
                    let number = widened(field.kind, bytes).ok_or_else(wrong)?;
                    append_raw(&[number], ChannelFormat::Double64, values);
                    rest = after;
                }
            }
        }
        Ok(stamp)
    }
}

/// Returns a number as the widest type.
fn widened(kind: FieldType, bytes: &[u8]) -> Option<f64> {
    let (format, _) = format_of(kind);
    let mut bytes = bytes.to_vec();
    swap(bytes.len(), &mut bytes);
    let mut number = [0.0];
    read_raw(&bytes, format, &mut number).ok()?;
    number.first().copied()
}

fn field_type(format: ChannelFormat) -> (FieldType, usize) {
    let kind = match format {
        ChannelFormat::Float32 => FieldType::Float,
        ChannelFormat::Double64 => FieldType::Double,
        ChannelFormat::Int64 => FieldType::Int64,
        ChannelFormat::Int32 => FieldType::Int32,
        ChannelFormat::Int16 => FieldType::Int16,
        _ => FieldType::FixedWidthBytes,
    };
    (kind, kind.width().unwrap_or(1))
}

fn format_of(kind: FieldType) -> (ChannelFormat, Values) {
    let format = match kind {
        FieldType::Double => ChannelFormat::Double64,
        FieldType::Float => ChannelFormat::Float32,
        FieldType::Int16 => ChannelFormat::Int16,
        FieldType::Int32 => ChannelFormat::Int32,
        FieldType::Int64 => ChannelFormat::Int64,
        FieldType::FixedWidthBytes => ChannelFormat::Int8,
        FieldType::VariableWidthBytes => return (ChannelFormat::String, Values::Text),
    };
    (format, Values::Same)
}

/// Changes values between the order of this host and River's.
fn swap(width: usize, values: &mut [u8]) {
    if cfg!(target_endian = "big") && width > 1 {
        values.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
}

/// Returns names for fields: those of the channels, made unique.
fn labels_of(info: &StreamInfo, channels: usize) -> Vec<String> {
    let named = info.desc_ref().and_then(|desc| desc.child("channels"));
    let named: Vec<String> = named.map_or_else(Vec::new, |named| {
        let labels = named.children_named("channel").take(channels);
        let labels = labels.map(|it| it.get("label").unwrap_or_default().trim().to_owned());
        labels.collect()
    });
    let mut used = HashSet::from([TIMESTAMP.to_owned()]);
    // Columns of River's files.
    used.extend(["sample_index", "key", "timestamp_ms"].map(str::to_owned));
    let mut labels = Vec::with_capacity(channels);
    for at in 0..channels {
        let label = named.get(at).filter(|label| !label.is_empty());
        let label = label.cloned().unwrap_or_else(|| {
            if channels == 1 {
                CHANNEL.to_owned()
            } else {
                format!("{CHANNEL}_{}", at + 1)
            }
        });
        let others = (2..).map(|number| format!("{label}_{number}"));
        let free = std::iter::once(label.clone())
            .chain(others)
            .find(|it| !used.contains(it));
        let free = free.unwrap_or(label);
        used.insert(free.clone());
        labels.push(free);
    }
    labels
}

/// Name of the field with the timestamp, in seconds of the source's clock.
pub(super) const TIMESTAMP: &str = "lsl_timestamp";

/// Name of the field of a stream with many channels.
const DATA: &str = "data";

/// Name of the field of a stream of texts.
const TEXT: &str = "text";

const CHANNEL: &str = "channel";

const TYPE: &str = "River";

/// What the writer says of a stream: its description.
pub const USER_XML: &str = "lsl_xml";

/// What the writer says of a stream: the uid of its origin.
pub const USER_UID: &str = "lsl_uid";

/// What the writer says of a stream: the Unix time of the server minus its timestamps, in seconds.
pub const USER_CLOCK: &str = "lsl_clock_offset";

const STAMP_BYTES: usize = 8;

/// Bytes of a text. River's readers have room for as many in each sample.
pub const MOST_TEXT_BYTES: usize = 65_536;

/// Channels that are fields of their own.
const MOST_FIELDS: usize = 512;

/// Bytes of the names of all channels in a description, which has none if they took more: a picture of bytes has as
/// many channels, each with the name of its field.
const MOST_LABEL_BYTES: usize = 1 << 20;

/// What a name takes in a description beside its bytes.
const LABEL_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn info(channels: u32, format: ChannelFormat, labels: &[&str]) -> StreamInfo {
        let mut info = StreamInfo::new("s", "EEG", channels, 250.0, format, "id").unwrap();
        info.reset_uid("u-1");
        let mut desc = info.desc_mut();
        let mut channels = desc.append_child("channels");
        for label in labels {
            channels.append_child("channel").set("label", label);
        }
        info
    }

    fn described(info: &StreamInfo) -> Metadata {
        let xml = String::from_utf8(info.to_xml()).unwrap();
        Metadata {
            first_key: b"s-0".to_vec(),
            schema: Packing::of_info(info).unwrap().schema,
            initialized_at_us: 0,
            local_minus_server_us: None,
            user: [(USER_XML.to_owned(), xml)].into(),
        }
    }

    fn names(packing: &Packing) -> Vec<&str> {
        let fields = packing.schema.fields.iter();
        fields.map(|field| field.name.as_str()).collect()
    }

    #[test]
    fn every_format_comes_back_as_it_was() {
        use ChannelFormat::{Double64, Float32, Int8, Int16, Int32, Int64};
        for format in [Float32, Double64, Int8, Int16, Int32, Int64] {
            for channels in [1, 3, 512, 513] {
                let info = info(channels, format, &[]);
                let packing = Packing::of_info(&info).unwrap();
                let expected = if channels > 512 {
                    2
                } else {
                    1 + channels as usize
                };
                assert_eq!(packing.schema.fields.len(), expected);
                let raw: Vec<u8> = (0..packing.schema.sample_len() - 8)
                    .map(|it| it.to_le_bytes()[0])
                    .collect();
                let val = packing.pack(-1.5e-300, &raw).unwrap();
                assert_eq!(val.len(), packing.schema.sample_len());
                assert_eq!(val[..8], (-1.5e-300f64).to_le_bytes());
                let (again, restored) = Packing::of_metadata("n", &described(&info), 0.0).unwrap();
                assert_eq!((again.clone(), restored.uid()), (packing, "u-1".into()));
                let mut values = vec![7];
                assert_eq!(again.unpack(&val, &mut values), Ok(Some(-1.5e-300)));
                assert_eq!(values[1..], raw[..]);
                assert!(again.unpack(&val[1..], &mut values).is_err());
            }
        }
    }

    #[test]
    fn texts_stand_behind_their_timestamp() {
        let info = info(1, ChannelFormat::String, &["marker"]);
        let packing = Packing::of_info(&info).unwrap();
        assert_eq!(names(&packing), ["marker"]);
        let raw = |text: &[u8]| {
            let mut raw = Vec::new();
            append_raw_string(text, &mut raw);
            raw
        };
        for text in [&b""[..], b"\0\xff\n", &vec![b'x'; 65_536]] {
            let val = packing.pack(3.0, &raw(text)).unwrap();
            assert_eq!(val[8..], *text);
            let mut values = Vec::new();
            assert_eq!(packing.unpack(&val, &mut values), Ok(Some(3.0)));
            assert_eq!(values, raw(text));
        }
        assert_eq!(packing.pack(3.0, &raw(&vec![b'x'; 65_537])), None);
        assert!(packing.unpack(b"1234567", &mut Vec::new()).is_err());
        assert!(Packing::of_info(&self::info(2, ChannelFormat::String, &[])).is_err());
    }

    #[test]
    fn fields_are_called_as_channels_are_and_no_two_alike() {
        let labels = |labels: &[&str]| {
            let info = info(4, ChannelFormat::Int16, labels);
            let packing = Packing::of_info(&info).unwrap();
            names(&packing)[1..]
                .iter()
                .map(|it| (*it).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            labels(&["C3", "C3", " C3 ", "C3_2"]),
            ["C3", "C3_2", "C3_3", "C3_2_2"]
        );
        assert_eq!(
            labels(&["lsl_timestamp", "", "key"]),
            ["lsl_timestamp_2", "channel_2", "key_2", "channel_4"]
        );
    }

    #[test]
    fn streams_of_other_writers_become_what_lsl_has() {
        let of = |fields: &[(&str, FieldType, usize)]| {
            let fields = fields
                .iter()
                .map(|(name, kind, size)| Field::bytes(*name, *kind, *size));
            let metadata = Metadata {
                schema: Schema {
                    fields: fields.collect(),
                },
                user: [("lsl_xml".to_owned(), "nonsense".to_owned())].into(),
                ..described(&info(1, ChannelFormat::Int8, &[]))
            };
            Packing::of_metadata("neuro", &metadata, 30_000.0)
        };
        let (double, float, short) = (FieldType::Double, FieldType::Float, FieldType::Int16);
        let (packing, info) = of(&[("a", float, 4), ("b", float, 4)]).unwrap();
        assert_eq!(
            (info.channel_count(), info.channel_format()),
            (2, ChannelFormat::Float32)
        );
        assert_eq!(
            (info.name(), info.nominal_srate()),
            ("neuro".into(), 30_000.0)
        );
        assert_eq!(info.uid(), uid("neuro"));
        assert_eq!(labels_of(&info, 2), ["a", "b"]);
        let mut values = Vec::new();
        assert_eq!(
            packing.unpack(&[1, 2, 3, 4, 5, 6, 7, 8], &mut values),
            Ok(None)
        );
        assert_eq!(values, [1, 2, 3, 4, 5, 6, 7, 8]);
        let (packing, info) =
            of(&[(TIMESTAMP, double, 8), ("a", short, 2), ("b", float, 4)]).unwrap();
        assert_eq!(
            (info.channel_count(), info.channel_format()),
            (2, ChannelFormat::Double64)
        );
        let val = [
            &9.25f64.to_le_bytes()[..],
            &(-2i16).to_le_bytes(),
            &0.5f32.to_le_bytes(),
        ]
        .concat();
        values.clear();
        assert_eq!(packing.unpack(&val, &mut values), Ok(Some(9.25)));
        assert_eq!(
            values,
            [(-2.0f64).to_ne_bytes(), 0.5f64.to_ne_bytes()].concat()
        );
        let (_, info) = of(&[("data", FieldType::FixedWidthBytes, 3)]).unwrap();
        assert_eq!(
            (info.channel_count(), info.channel_format()),
            (3, ChannelFormat::Int8)
        );
        assert_eq!(labels_of(&info, 3), ["data[0]", "data[1]", "data[2]"]);
        let (packing, info) = of(&[("t", FieldType::VariableWidthBytes, 9)]).unwrap();
        assert_eq!(
            (info.channel_count(), info.channel_format()),
            (1, ChannelFormat::String)
        );
        values.clear();
        assert_eq!(packing.unpack(b"abc", &mut values), Ok(None));
        assert_eq!(RawStrings::new(&values).next(), Some(&b"abc"[..]));
        // Names that would take more memory than the samples are left out.
        let long = "n".repeat(20_000);
        for (name, size) in [("picture", 640 * 480), (long.as_str(), 64)] {
            let (_, info) = of(&[(name, FieldType::FixedWidthBytes, size)]).unwrap();
            assert_eq!(info.channel_count(), u32::try_from(size).unwrap());
            assert!(info.to_xml().len() < 4096);
        }
        // A lone timestamp is a value.
        let (packing, _) = of(&[(TIMESTAMP, double, 8)]).unwrap();
        assert!(!packing.has_stamp);
        assert!(of(&[("a", short, 2), ("b", FieldType::FixedWidthBytes, 2)]).is_err());
    }
}
