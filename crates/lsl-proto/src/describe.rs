//! Converts stream infos to the DESCRIPTOR record and back. The outlet sends the record, the inlet
//! compares it with the discovered stream. Spec: LSS/1 §7.4.

use crate::query::Query;
use crate::{ChannelFormat, StreamInfo};
use lsl_secure::Descriptor;
use lsl_secure::trust::StreamQueries;

/// Builds the DESCRIPTOR of a stream from the fields of its shortinfo.
///
/// `info` must come from received XML, as [`as_received`] returns it. Text changes the last bit of
/// a double and XML drops blank texts, so that an outlet's own fields differ.
pub fn descriptor(info: &StreamInfo) -> Descriptor {
    // An outlet of the undefined format has no readers, so its 0 is never compared.
    let format = u8::try_from(info.channel_format() as i32).unwrap_or(0);
    Descriptor {
        uid: info.uid_bytes().to_vec(),
        name: info.name_bytes().to_vec(),
        stream_type: info.stream_type_bytes().to_vec(),
        source_id: info.source_id_bytes().to_vec(),
        hostname: info.hostname_bytes().to_vec(),
        session_id: info.session_id_bytes().to_vec(),
        channel_count: info.channel_count(),
        nominal_srate: info.nominal_srate(),
        channel_format: format,
        created_at: info.created_at(),
    }
    .canonical()
}

/// Returns the evaluator of the `streams` predicates in trust files: queries over the fields of the
/// DESCRIPTOR alone. Spec: LSS/1 §3.2.
pub fn stream_queries() -> StreamQueries {
    StreamQueries {
        check: |text| match Query::parse(text) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        matches: |text, stream| {
            let info = described_by(stream);
            let query = Query::parse(text).ok();
            // A query that is too costly to evaluate matches nothing.
            let matches = info.zip(query).map(|(info, query)| info.matches(&query));
            matches.is_some_and(|matches| matches.unwrap_or(false))
        },
    }
}

/// Builds the short info of a DESCRIPTOR, without addresses. `None` if it fits no stream.
pub fn described_by(stream: &Descriptor) -> Option<StreamInfo> {
    let number = i32::from(stream.channel_format);
    let format = ChannelFormat::STREAMABLE
        .into_iter()
        .find(|it| *it as i32 == number)?;
    let mut info = StreamInfo::new(
        stream.name.clone(),
        stream.stream_type.clone(),
        stream.channel_count,
        stream.nominal_srate,
        format,
        stream.source_id.clone(),
    )
    .ok()?;
    info.reset_uid(&String::from_utf8_lossy(&stream.uid));
    info.set_hostname(stream.hostname.clone());
    info.set_session_id(stream.session_id.clone());
    info.set_created_at(stream.created_at);
    Some(info)
}

/// Returns the info as a receiver of this outlet's shortinfo reads it. An info that cannot be read
/// (its name is blank, say) is returned unchanged.
pub fn as_received(info: &StreamInfo) -> StreamInfo {
    StreamInfo::from_xml(&info.to_shortinfo_xml()).unwrap_or_else(|_| info.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_key_are_judged_by_the_descriptor_alone() {
        let mut info =
            StreamInfo::new("EEG 1", "EEG", 8, 250.0, ChannelFormat::Float32, "s").unwrap();
        info.set_hostname("amp-pc");
        let streams = stream_queries();
        let check = |text: &str, expected: bool| {
            assert!((streams.check)(text).is_ok(), "{text}");
            assert_eq!(
                (streams.matches)(text, &descriptor(&info)),
                expected,
                "{text}"
            );
        };
        check("name='EEG 1'", true);
        check("name='EEG 2'", false);
        check("type='EEG' and channel_count=8 and hostname='amp-pc'", true);
        check("starts-with(name,'EEG') and nominal_srate=250", true);
        check("channel_format='float32'", true);
        check("desc/subject='A'", false);
        for malformed in ["name=", "name=='x'", "foo(", "name='x"] {
            assert!((streams.check)(malformed).is_err(), "{malformed}");
            assert!(
                !(streams.matches)(malformed, &descriptor(&info)),
                "{malformed}"
            );
        }
    }
}
