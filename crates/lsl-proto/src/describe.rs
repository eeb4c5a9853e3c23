//! What the DESCRIPTOR record says of a stream. Both ends use it: the outlet to fill the record, the
//! inlet to know what to expect. Spec: LSS/1 §7.4.

use crate::query::Query;
use crate::{ChannelFormat, StreamInfo};
use lsl_secure::Descriptor;
use lsl_secure::trust::StreamQueries;

/// What a receiver of this info knows of the stream: its fields, as read from the shortinfo.
///
/// `info` must have gone over the wire, as a resolver's results have: the text of a double changes its
/// last bit, and XML drops blank texts, so an outlet's own fields are not what anybody receives.
pub fn descriptor(info: &StreamInfo) -> Descriptor {
    // No outlet of the undefined format can be read, so its 0 never meets a comparison.
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

/// What the predicates of `streams` in a trust file mean: a query over what the DESCRIPTOR says, and
/// nothing else. Spec: LSS/1 §3.2.
pub fn stream_queries() -> StreamQueries {
    StreamQueries {
        check: |text| match Query::parse(text) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        matches: |text, stream| {
            let info = described_by(stream);
            let query = Query::parse(text).ok();
            // What is too costly to evaluate is no match.
            let matches = info.zip(query).map(|(info, query)| info.matches(&query));
            matches.is_some_and(|matches| matches.unwrap_or(false))
        },
    }
}

/// The short info that a DESCRIPTOR stands for, without addresses. `None` if no stream is like that.
fn described_by(stream: &Descriptor) -> Option<StreamInfo> {
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

/// The info as somebody reads it who receives this outlet's shortinfo. One that nobody can read (its
/// name is blank, say) stays as it is.
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
