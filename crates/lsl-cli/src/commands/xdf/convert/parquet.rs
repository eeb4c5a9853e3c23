//! Tables as Apache Parquet: one row group for some MiB, compressed with Snappy. The stream's header
//! stands in the metadata of the file.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use lsl_core::ChannelFormat;
use lsl_xdf::{StreamHeader, Values};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Labels, Sheet};
use crate::failure::{Failure, Outcome};

/// Table written as a Parquet file.
pub(super) struct Parquet {
    /// `None` once the file is finished.
    writer: Option<SerializedFileWriter<BufWriter<File>>>,
    channels: usize,
    stamps: Vec<f64>,
    corrected: Vec<f64>,
    values: Values,
    /// Bytes of the waiting samples, about.
    bytes: usize,
}

impl Parquet {
    pub(super) fn new(file: File, header: &StreamHeader, labels: &Labels) -> Outcome<Self> {
        if labels.channels > MAX_COLUMNS {
            return Err(Failure::Usage(format!(
                "{} channels are more than the {MAX_COLUMNS} columns of a Parquet table: convert it to csv",
                labels.channels
            )));
        }
        let format = header.channel_format();
        let values = Values::new(format)
            .ok_or_else(|| Failure::Runtime("a stream without format has no values".into()))?;
        let mut fields = Vec::with_capacity(2 + labels.channels);
        for name in ["timestamp", "timestamp_corrected"] {
            fields.push(column(name, ChannelFormat::Double64)?);
        }
        for label in labels.iter() {
            fields.push(column(&label, format)?);
        }
        let schema = Type::group_type_builder("stream").with_fields(fields);
        let schema = schema.build().map_err(wrong)?;
        let fact = |name: &str, value: String| KeyValue::new(format!("lsl.{name}"), Some(value));
        let facts = vec![
            fact("name", header.name().into_owned()),
            fact("type", header.stream_type().into_owned()),
            fact("nominal_srate", header.nominal_srate().to_string()),
            fact(
                "header",
                String::from_utf8_lossy(&header.document().write()).into_owned(),
            ),
        ];
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(facts))
            .build();
        let out = BufWriter::with_capacity(1 << 18, file);
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties));
        Ok(Self {
            writer: Some(writer.map_err(wrong)?),
            channels: labels.channels,
            stamps: Vec::new(),
            corrected: Vec::new(),
            values,
            bytes: 0,
        })
    }

    /// Writes the waiting samples as a row group.
    fn flush(&mut self) -> Outcome {
        let Some(writer) = self.writer.as_mut().filter(|_| !self.stamps.is_empty()) else {
            return Ok(());
        };
        let mut group = writer.next_row_group().map_err(wrong)?;
        put::<DoubleType>(&mut group, &self.stamps)?;
        put::<DoubleType>(&mut group, &self.corrected)?;
        for channel in 0..self.channels {
            let here = (channel..self.values.len()).step_by(self.channels);
            match &self.values {
                Values::Float32(list) => put::<FloatType>(&mut group, &pick(list, here))?,
                Values::Double64(list) => put::<DoubleType>(&mut group, &pick(list, here))?,
                Values::Int64(list) => put::<Int64Type>(&mut group, &pick(list, here))?,
                Values::Int32(list) => put::<Int32Type>(&mut group, &pick(list, here))?,
                Values::Int16(list) => put::<Int32Type>(&mut group, &pick(list, here))?,
                Values::Int8(list) => put::<Int32Type>(&mut group, &pick(list, here))?,
                Values::String(list) => {
                    let texts = here.filter_map(|index| list.get(index));
                    let texts: Vec<ByteArray> = texts
                        // Readers refuse invalid UTF-8.
                        .map(|text| {
                            String::from_utf8_lossy(text)
                                .into_owned()
                                .into_bytes()
                                .into()
                        })
                        .collect();
                    put::<ByteArrayType>(&mut group, &texts)?;
                }
            }
        }
        group.close().map_err(wrong)?;
        self.stamps.clear();
        self.corrected.clear();
        self.values.clear();
        self.bytes = 0;
        Ok(())
    }
}

impl Sheet for Parquet {
    fn write(&mut self, stamps: &[f64], corrected: &[f64], values: &Values) -> Outcome {
        self.stamps.extend(stamps);
        self.corrected.extend(corrected);
        self.values.extend_from(values);
        self.bytes += 16 * stamps.len()
            + match values {
                Values::String(list) => list.iter().map(|text| 16 + text.len()).sum(),
                _ => 8 * values.len(),
            };
        if self.bytes >= GROUP_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Outcome {
        self.flush()?;
        if let Some(writer) = self.writer.take() {
            let out = writer.into_inner().map_err(wrong)?;
            out.into_inner()
                .map_err(|error| Failure::from(error.into_error()))?;
        }
        Ok(())
    }
}

fn column(name: &str, format: ChannelFormat) -> Outcome<TypePtr> {
    let small = |bits| Some(LogicalType::integer(bits, true));
    let (physical, logical) = match format {
        ChannelFormat::Float32 => (Physical::FLOAT, None),
        ChannelFormat::Int64 => (Physical::INT64, None),
        ChannelFormat::Int32 => (Physical::INT32, None),
        ChannelFormat::Int16 => (Physical::INT32, small(16)),
        ChannelFormat::Int8 => (Physical::INT32, small(8)),
        ChannelFormat::String => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        _ => (Physical::DOUBLE, None),
    };
    let made = Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(logical)
        .build();
    Ok(Arc::new(made.map_err(wrong)?))
}

/// Returns the values of one channel.
fn pick<T: Copy, U: From<T>>(list: &[T], here: impl Iterator<Item = usize>) -> Vec<U> {
    here.filter_map(|index| list.get(index))
        .map(|&value| U::from(value))
        .collect()
}

/// Writes the next column of a row group.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    values: &[T::T],
) -> Outcome {
    if let Some(mut column) = group.next_column().map_err(wrong)? {
        let written = column.typed::<T>().write_batch(values, None, None);
        written.map_err(wrong)?;
        column.close().map_err(wrong)?;
    }
    Ok(())
}

fn wrong(error: ParquetError) -> Failure {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => (*error).into(),
            Err(other) => Failure::Runtime(other.to_string()),
        },
        error => Failure::Runtime(error.to_string()),
    }
}

/// Bytes that wait before they become a row group. Every stream of a recording has its own.
const GROUP_BYTES: usize = 8 << 20;

/// Most columns of a table: each has a writer with pages of its own.
const MAX_COLUMNS: usize = 65_536;
