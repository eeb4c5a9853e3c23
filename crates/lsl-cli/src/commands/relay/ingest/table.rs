//! Rows of one stream of River as Apache Parquet, with the columns of River's own ingester. Spec: relay §12.2.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;

use lsl_relay::engine::river::{EntryId, Field, FieldType, Schema};
use lsl_relay::shell::RiverSample;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType,
    FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::failure::{Failure, Outcome};

type Out = BufWriter<File>;

/// Writes rows as a new file with one row group. It is there when it is complete, and not before.
pub(super) fn write(path: &Path, schema: &Schema, rows: &[RiverSample]) -> Outcome {
    let Some(last) = rows.last() else {
        return Ok(());
    };
    new_file(path, |out| {
        let mut writer = SerializedFileWriter::new(out, columns(schema)?, properties())?;
        let mut group = writer.next_row_group()?;
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        put::<Int64Type>(&mut group, rows.iter().map(|row| whole(row.index)))?;
        let key = |row: &RiverSample| ByteArray::from(row.id.to_string().into_bytes());
        put::<ByteArrayType>(&mut group, rows.iter().map(key))?;
        put::<Int64Type>(&mut group, rows.iter().map(|row| whole(row.id.ms)))?;
        let mut at = 0;
        for field in &schema.fields {
            put_field(&mut group, field, at, rows)?;
            at += field.size;
        }
        group.close()?;
        writer.append_key_value_metadata(fact(LAST_KEY, last.id.to_string()));
        writer.append_key_value_metadata(fact(LAST_INDEX, last.index.to_string()));
        writer.into_inner()
    })
}

/// Writes one file with the row groups of several, in their order, as they are.
pub(super) fn merge(path: &Path, schema: &Schema, parts: &[impl AsRef<Path>]) -> Outcome {
    new_file(path, |out| {
        let mut writer = SerializedFileWriter::new(out, columns(schema)?, properties())?;
        for part in parts {
            let input = File::open(part)?;
            let reader = SerializedFileReader::new(input.try_clone()?)?;
            for group in reader.metadata().row_groups() {
                let mut copy = writer.next_row_group()?;
                for column in group.columns() {
                    let close = ColumnCloseResult {
                        bytes_written: u64::try_from(column.compressed_size()).unwrap_or_default(),
                        rows_written: u64::try_from(group.num_rows()).unwrap_or_default(),
                        metadata: column.clone(),
                        bloom_filter: None,
                        column_index: None,
                        offset_index: None,
                    };
                    copy.append_column(&input, close)?;
                }
                copy.close()?;
            }
            let facts = reader.metadata().file_metadata().key_value_metadata();
            for fact in facts.into_iter().flatten() {
                writer.append_key_value_metadata(fact.clone());
            }
        }
        writer.into_inner()
    })
}

/// Returns place and sequence number of the last row of a file that was written here.
pub(super) fn last_of(path: &Path) -> Outcome<(EntryId, u64)> {
    let read = || -> Result<_, ParquetError> {
        let reader = SerializedFileReader::new(File::open(path)?)?;
        let facts = reader.metadata().file_metadata().key_value_metadata();
        let facts = facts.cloned().unwrap_or_default();
        let value = |name: &str| {
            // Of what was merged, the last says it.
            let fact = facts.iter().rev().find(|fact| fact.key == name);
            fact.and_then(|fact| fact.value.clone())
        };
        Ok((value(LAST_KEY), value(LAST_INDEX)))
    };
    let (key, index) = read().map_err(|error| wrong(error).context(&path.display().to_string()))?;
    let key = key.and_then(|key| EntryId::parse(&key));
    let index = index.and_then(|index| index.parse().ok());
    key.zip(index).ok_or_else(|| {
        let text = "was not written by lsl relay ingest; give another --output";
        Failure::Runtime(format!("{} {text}", path.display()))
    })
}

/// Writes a file under another name, and moves it to its own once it is on the disk.
pub(super) fn new_file(
    path: &Path,
    write: impl FnOnce(Out) -> Result<Out, ParquetError>,
) -> Outcome {
    let named = |failure: Failure| failure.context(&path.display().to_string());
    let part = path.with_extension("part");
    let written = || -> Result<(), ParquetError> {
        let file = File::create(&part)?;
        let out = write(BufWriter::with_capacity(1 << 18, file))?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        // Windows opens no folder as a file; its journal keeps the order.
        if cfg!(unix)
            && let Some(folder) = path.parent()
        {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    written().map_err(|error| named(wrong(error)))
}

fn properties() -> WriterPropertiesPtr {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    Arc::new(properties.build())
}

fn fact(name: &str, value: String) -> KeyValue {
    KeyValue::new(name.to_owned(), Some(value))
}

/// Returns the columns: number, key and time of each row, and its fields.
fn columns(schema: &Schema) -> Result<TypePtr, ParquetError> {
    let mut columns = vec![
        column("sample_index", Physical::INT64, None, 0)?,
        column("key", Physical::BYTE_ARRAY, Some(LogicalType::String), 0)?,
        column("timestamp_ms", Physical::INT64, None, 0)?,
    ];
    for Field { name, size, kind } in &schema.fields {
        let bytes = i32::try_from(*size).unwrap_or(i32::MAX);
        columns.push(match kind {
            FieldType::Double => column(name, Physical::DOUBLE, None, 0)?,
            FieldType::Float => column(name, Physical::FLOAT, None, 0)?,
            FieldType::Int16 => {
                let short = LogicalType::integer(16, true);
                column(name, Physical::INT32, Some(short), 0)?
            }
            FieldType::Int32 => column(name, Physical::INT32, None, 0)?,
            FieldType::Int64 => column(name, Physical::INT64, None, 0)?,
            FieldType::FixedWidthBytes => {
                column(name, Physical::FIXED_LEN_BYTE_ARRAY, None, bytes)?
            }
            FieldType::VariableWidthBytes => column(name, Physical::BYTE_ARRAY, None, 0)?,
        });
    }
    let schema = Type::group_type_builder("schema").with_fields(columns);
    Ok(Arc::new(schema.build()?))
}

fn column(
    name: &str,
    physical: Physical,
    logical: Option<LogicalType>,
    bytes: i32,
) -> Result<TypePtr, ParquetError> {
    let column = Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(logical)
        .with_length(bytes);
    Ok(Arc::new(column.build()?))
}

/// Writes the column of a field that stands at this place in each value.
fn put_field(
    group: &mut SerializedRowGroupWriter<'_, Out>,
    field: &Field,
    at: usize,
    rows: &[RiverSample],
) -> Result<(), ParquetError> {
    let vals = rows.iter().map(|row| row.val.get(at..).unwrap_or_default());
    let size = field.size;
    match field.kind {
        FieldType::Double => put::<DoubleType>(group, vals.map(|it| f64::from_le_bytes(head(it)))),
        FieldType::Float => put::<FloatType>(group, vals.map(|it| f32::from_le_bytes(head(it)))),
        FieldType::Int16 => {
            let wide = |it| i16::from_le_bytes(head(it)).into();
            put::<Int32Type>(group, vals.map(wide))
        }
        FieldType::Int32 => put::<Int32Type>(group, vals.map(|it| i32::from_le_bytes(head(it)))),
        FieldType::Int64 => put::<Int64Type>(group, vals.map(|it| i64::from_le_bytes(head(it)))),
        FieldType::FixedWidthBytes => {
            let bytes = |it: &[u8]| ByteArray::from(it.get(..size).unwrap_or_default().to_vec());
            let bytes = vals.map(|it| FixedLenByteArray::from(bytes(it)));
            put::<FixedLenByteArrayType>(group, bytes)
        }
        FieldType::VariableWidthBytes => {
            put::<ByteArrayType>(group, vals.map(|it| ByteArray::from(it.to_vec())))
        }
    }
}

/// Returns the first bytes; zeros where a value is too short, which the reader refuses before.
fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// Writes the next column of a row group.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Out>,
    values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        let values: Vec<_> = values.collect();
        column.typed::<T>().write_batch(&values, None, None)?;
        column.close()?;
    }
    Ok(())
}

fn wrong(error: ParquetError) -> Failure {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => (*error).into(),
            Err(other) => Failure::Runtime(other.to_string()),
        },
        error => Failure::Runtime(error.to_string()),
    }
}

/// Facts of a file: its last row.
const LAST_KEY: &str = "lsl.last_key";
const LAST_INDEX: &str = "lsl.last_index";

#[cfg(test)]
mod tests {
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn parts_become_one_table_and_say_where_they_end() {
        let folder = std::env::temp_dir().join(format!("lsl-ingest-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let json = br#"{"field_definitions":[{"name":"a","size":2,"type":"INT16"},
            {"name":"b","size":3,"type":"FIXED_WIDTH_BYTES"},{"name":"c","size":8,"type":"DOUBLE"}]}"#;
        let schema = Schema::parse(json).unwrap();
        let row = |index: u64| {
            let number = i16::try_from(index).unwrap();
            let val = [
                &(-number).to_le_bytes()[..],
                b"abc",
                &f64::from(number).to_le_bytes(),
            ];
            let id = EntryId {
                ms: 1000 + index,
                number: 7,
            };
            let val = val.concat();
            RiverSample { id, index, val }
        };
        let parts = [folder.join("data_0.parquet"), folder.join("data_1.parquet")];
        write(&parts[0], &schema, &[row(3), row(4)]).unwrap();
        write(&parts[1], &schema, &[row(9)]).unwrap();
        assert_eq!(last_of(&parts[0]).unwrap(), (row(4).id, 4));
        let whole = folder.join("data.parquet");
        merge(&whole, &schema, &parts).unwrap();
        assert_eq!(last_of(&whole).unwrap(), (row(9).id, 9));
        let reader = SerializedFileReader::new(File::open(&whole).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| {
            let row = row.unwrap();
            let bytes = row.get_bytes(4).unwrap().data().to_vec();
            let key = row.get_string(1).unwrap().clone();
            let (index, ms) = (row.get_long(0).unwrap(), row.get_long(2).unwrap());
            (
                index,
                key,
                ms,
                row.get_short(3).unwrap(),
                bytes,
                row.get_double(5).unwrap(),
            )
        });
        let expected = [3_i16, 4, 9].map(|number| {
            let ms = 1000 + i64::from(number);
            let value = f64::from(number);
            (
                number.into(),
                format!("{ms}-7"),
                ms,
                -number,
                b"abc".to_vec(),
                value,
            )
        });
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        assert_eq!(reader.num_row_groups(), 2);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::write(&whole, b"something else").unwrap();
        assert!(last_of(&whole).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
