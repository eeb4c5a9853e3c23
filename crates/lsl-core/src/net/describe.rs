//! What the DESCRIPTOR record says of a stream. Both ends use it: the outlet to fill the record, the
//! inlet to know what to expect. Spec: LSS/1 §7.4.

use lsl_secure::Descriptor;

use crate::StreamInfo;

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

/// The info as somebody reads it who receives this outlet's shortinfo. One that nobody can read (its
/// name is blank, say) stays as it is.
pub(crate) fn as_received(info: &StreamInfo) -> StreamInfo {
    StreamInfo::from_xml(&info.to_shortinfo_xml()).unwrap_or_else(|_| info.clone())
}
