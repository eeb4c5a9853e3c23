//! The outlets of a recording's streams.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use lsl_core::PushElement;
use lsl_core::{Context, Outlet, Pushthrough, Stamps, StreamInfo};
use lsl_xdf::{StreamHeader, Values};

use super::timeline::Timeline;
use crate::failure::{Failure, Outcome};

/// One outlet for each stream.
pub(super) struct Outlets {
    outlets: BTreeMap<u32, Outlet>,
}

impl Outlets {
    pub(super) fn open(timeline: &Timeline, speed: f64, context: &Context) -> Outcome<Self> {
        let mut outlets = BTreeMap::new();
        for (&id, track) in timeline.tracks() {
            let info = info(&track.header, id, speed)
                .map_err(|failure| failure.context(&format!("stream {id}")))?;
            outlets.insert(id, Outlet::builder(info).context(context).open()?);
        }
        Ok(Self { outlets })
    }

    pub(super) fn infos(&self) -> impl Iterator<Item = &StreamInfo> {
        self.outlets.values().map(Outlet::info)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Outlet> {
        self.outlets.values()
    }

    pub(super) fn len(&self) -> usize {
        self.outlets.len()
    }

    /// Returns whether every stream has a receiver; waits a while for the first that has none.
    pub(super) fn wait(&self, time: Duration) -> bool {
        self.outlets
            .values()
            .all(|outlet| outlet.blocking().wait_for_consumers(time))
    }

    /// Sends samples, `range` of the values, with a timestamp each.
    pub(super) fn push(
        &self,
        stream: u32,
        stamps: &[f64],
        values: &Values,
        range: Range<usize>,
    ) -> Outcome {
        let Some(outlet) = self.outlets.get(&stream) else {
            return Ok(());
        };
        match values {
            Values::Float32(list) => send(outlet, stamps, list.get(range)),
            Values::Double64(list) => send(outlet, stamps, list.get(range)),
            Values::Int32(list) => send(outlet, stamps, list.get(range)),
            Values::Int16(list) => send(outlet, stamps, list.get(range)),
            Values::Int8(list) => send(outlet, stamps, list.get(range)),
            Values::Int64(list) => send(outlet, stamps, list.get(range)),
            Values::String(list) => {
                let texts = range.filter_map(|index| list.get(index));
                let texts: Vec<Vec<u8>> = texts.map(<[u8]>::to_vec).collect();
                send(outlet, stamps, Some(&texts))
            }
        }
    }
}

fn send<T: PushElement>(outlet: &Outlet, stamps: &[f64], values: Option<&[T]>) -> Outcome {
    let values = values.unwrap_or_default();
    Ok(outlet.push_chunk_with(values, Stamps::Each(stamps), Pushthrough::Flush)?)
}

/// Returns the info of a recorded stream, for an outlet of ours.
fn info(header: &StreamHeader, id: u32, speed: f64) -> Outcome<StreamInfo> {
    let name = header.name();
    let name = if name.is_empty() {
        format!("Stream {id}")
    } else {
        name.into_owned()
    };
    let channels = u32::try_from(header.channel_count())
        .map_err(|_| Failure::Runtime("it has too many channels".into()))?;
    let mut info = StreamInfo::new(
        name,
        header.stream_type().into_owned(),
        channels,
        header.nominal_srate() * speed,
        header.channel_format(),
        header.get("source_id").unwrap_or_default().into_owned(),
    )?;
    let from = header.document();
    let desc = from
        .child(from.root(), "info")
        .and_then(|info| from.child(info, "desc"));
    if let Some(desc) = desc {
        let to = info.desc_mut().id();
        for child in from.children(desc).collect::<Vec<_>>() {
            info.document_mut().append_copy(to, from, child);
        }
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use lsl_core::ChannelFormat;

    use super::*;

    #[test]
    fn streams_keep_what_they_say() {
        let mut recorded =
            StreamInfo::new("Amp", "EEG", 2, 250.0, ChannelFormat::Int16, "amp-1").unwrap();
        recorded.desc_mut().set("manufacturer", "Acme");
        recorded.desc_mut().into_child("cap").set("size", "54");
        let header = StreamHeader::from_info(&recorded).unwrap();
        let played = info(&header, 1, 2.0).unwrap();
        assert_eq!(
            (played.name(), played.stream_type()),
            ("Amp".into(), "EEG".into())
        );
        assert_eq!(
            (played.channel_count(), played.source_id()),
            (2, "amp-1".into())
        );
        assert_eq!(played.channel_format(), ChannelFormat::Int16);
        assert!((played.nominal_srate() - 500.0).abs() < 1e-9);
        let desc = played.desc_ref().unwrap();
        assert_eq!(desc.get("manufacturer").unwrap(), "Acme");
        assert_eq!(desc.child("cap").unwrap().get("size").unwrap(), "54");
        let nameless = StreamHeader::new("x", "", 1, 0.0, ChannelFormat::String);
        let mut nameless = nameless.unwrap();
        nameless.set("name", "");
        assert_eq!(info(&nameless, 7, 1.0).unwrap().name(), "Stream 7");
    }
}
