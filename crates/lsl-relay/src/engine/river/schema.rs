//! Schemas of River's streams, in the JSON that River writes: no spaces, members in alphabetical order. Spec: relay
//! §12.2.

use serde::{Deserialize, Serialize};

use super::Unreadable;

/// Type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FieldType {
    /// 64-bit floating point.
    Double,
    /// 32-bit floating point.
    Float,
    /// 16-bit integer.
    Int16,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// Bytes, in each sample as many.
    FixedWidthBytes,
    /// Bytes, at the most as many as the field says. It is the only field of its schema.
    VariableWidthBytes,
}

impl FieldType {
    /// Returns the bytes of a number of this type; `None` for bytes.
    pub const fn width(self) -> Option<usize> {
        match self {
            Self::Double | Self::Int64 => Some(8),
            Self::Float | Self::Int32 => Some(4),
            Self::Int16 => Some(2),
            Self::FixedWidthBytes | Self::VariableWidthBytes => None,
        }
    }
}

/// Part of each sample of a stream. Its members are in the order in which River writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Name, unique in its schema.
    pub name: String,
    /// Bytes of its value.
    #[serde(deserialize_with = "size")]
    pub size: usize,
    /// Type of its value.
    #[serde(rename = "type")]
    pub kind: FieldType,
}

impl Field {
    /// Creates a field for a number.
    pub(super) fn number(name: impl Into<String>, kind: FieldType) -> Self {
        Self::bytes(name, kind, kind.width().unwrap_or(1))
    }

    /// Creates a field of this size.
    pub(super) fn bytes(name: impl Into<String>, kind: FieldType, size: usize) -> Self {
        let name = name.into();
        Self { name, size, kind }
    }
}

/// What each sample of a stream consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Fields in the order of their bytes.
    #[serde(rename = "field_definitions")]
    pub fields: Vec<Field>,
}

impl Schema {
    /// Parses what stands in a stream's metadata.
    ///
    /// # Errors
    /// [`Unreadable`] for what is no schema, or one of samples that are too large.
    pub fn parse(json: &[u8]) -> Result<Self, Unreadable> {
        let schema: Self = serde_json::from_slice(json)
            .map_err(|error| Unreadable(format!("its schema cannot be read: {error}")))?;
        let is_sized = |field: &Field| match field.kind.width() {
            Some(width) => field.size == width,
            None => (1..=MOST_SAMPLE_BYTES).contains(&field.size),
        };
        if let Some(wrong) = schema.fields.iter().find(|field| !is_sized(field)) {
            let Field { name, size, kind } = wrong;
            let text = format!("its field {name} has {size} bytes, which {kind:?} cannot have");
            return Err(Unreadable(text));
        }
        let is_alone = !schema.is_variable() || schema.fields.len() == 1;
        if schema.fields.is_empty() || !is_alone || schema.sample_len() > MOST_SAMPLE_BYTES {
            let text =
                "its schema is none of River: no field, a variable one among others, or too large";
            return Err(Unreadable(text.to_owned()));
        }
        Ok(schema)
    }

    /// Returns the schema as River writes it.
    pub fn to_json(&self) -> String {
        // Neither a map nor a number that JSON does not have.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the bytes of a sample, at the most for variable ones.
    pub fn sample_len(&self) -> usize {
        let sizes = self.fields.iter().map(|field| field.size);
        sizes.fold(0, usize::saturating_add)
    }

    /// Whether samples differ in length.
    pub fn is_variable(&self) -> bool {
        let variable = |field: &Field| field.kind == FieldType::VariableWidthBytes;
        self.fields.iter().any(variable)
    }
}

/// Reads a size, which older versions of River wrote as text.
fn size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(usize),
        Text(String),
    }
    match Size::deserialize(from)? {
        Size::Number(size) => Ok(size),
        Size::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

/// Bytes of a sample.
pub(super) const MOST_SAMPLE_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_written_as_river_writes_them_and_read_back() {
        let schema = Schema {
            fields: vec![
                Field::number("lsl_timestamp", FieldType::Double),
                Field::number("C\"3 µ", FieldType::Int16),
                Field::bytes("raw", FieldType::FixedWidthBytes, 3),
            ],
        };
        let json = concat!(
            r#"{"field_definitions":[{"name":"lsl_timestamp","size":8,"type":"DOUBLE"},"#,
            r#"{"name":"C\"3 µ","size":2,"type":"INT16"},"#,
            r#"{"name":"raw","size":3,"type":"FIXED_WIDTH_BYTES"}]}"#,
        );
        assert_eq!(schema.to_json(), json);
        assert_eq!(Schema::parse(json.as_bytes()), Ok(schema));
        let older = br#"{"field_definitions": [{"type":"FLOAT", "name":"x", "size":"4"}]}"#;
        let older = Schema::parse(older).map(|it| it.to_json());
        let expected = r#"{"field_definitions":[{"name":"x","size":4,"type":"FLOAT"}]}"#;
        assert_eq!(older.as_deref(), Ok(expected));
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        let of = |fields: &str| format!(r#"{{"field_definitions":[{fields}]}}"#);
        for wrong in [
            String::new(),
            "null".into(),
            of(""),
            of(r#"{"name":"x","size":4,"type":"DOUBLE"}"#),
            of(r#"{"name":"x","size":-4,"type":"FLOAT"}"#),
            of(r#"{"name":"x","size":0,"type":"FIXED_WIDTH_BYTES"}"#),
            of(r#"{"name":"x","size":99999999,"type":"VARIABLE_WIDTH_BYTES"}"#),
            of(r#"{"name":"x","size":4,"type":"UINT8"}"#),
            of(
                r#"{"name":"x","size":4,"type":"FLOAT"},{"name":"y","size":9,"type":"VARIABLE_WIDTH_BYTES"}"#,
            ),
        ] {
            assert!(Schema::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
