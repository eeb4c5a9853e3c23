//! What River's layout makes of replies: indices rise, and values are whole samples of the stream that was described.
//! The first reply describes a stream, the others have entries.

use lsl_proto::value::RawSamples;
use lsl_relay::engine::resp::{Replies, Reply};
use lsl_relay::engine::river::{EntryId, Metadata, Packing, Reader, Seek};

use super::split;

pub fn check(input: &[u8]) {
    let mut parser = Replies::default();
    parser.feed(split(input).1);
    let described = match parser.next_reply() {
        Ok(Some(reply)) => Metadata::of_reply(&reply),
        _ => return,
    };
    let Ok(Some(metadata)) = described else {
        return;
    };
    let pairs = metadata.pairs();
    let pairs = pairs
        .iter()
        .map(|(name, value)| (name.as_bytes(), &value[..]));
    assert_eq!(
        Metadata::parse(pairs).as_ref(),
        Ok(&metadata),
        "written otherwise"
    );
    let packing = Packing::of_metadata("s", &metadata, 0.0).ok();
    let mut reader = Reader::new("s", &metadata);
    while let Ok(Some(reply)) = parser.next_reply() {
        let before = reader.last();
        let mut last = before;
        for to in [Seek::End, Seek::Behind(EntryId::default(), 7)] {
            let _ = reader.take_seek(to, &[reply.clone(), reply.clone()]);
        }
        if let Reply::List(_) = reply {
            let mut at = reader.last();
            let _ = reader.take(&reply, |_, index, val| {
                assert!(at.is_none_or(|at| at < index), "{index} after {at:?}");
                at = Some(index);
                if let Some((packing, _)) = &packing {
                    unpack(packing, val);
                }
                Ok(())
            });
            last = last.max(at);
        }
        assert!(last >= before || reader.last() >= before);
        let _ = reader.take_check(&[Reply::Integer(0), reply]);
    }
}

fn unpack(packing: &Packing, val: &[u8]) {
    let mut values = Vec::new();
    let Ok(stamp) = packing.unpack(val, &mut values) else {
        return;
    };
    let sample = RawSamples::new(&values, packing.format(), packing.channels(), 1);
    let raw = sample.expect("a whole sample").next().expect("one");
    // What has a timestamp, and fits, is written as it was.
    if let (Some(stamp), Some(packed)) = (stamp, stamp.and_then(|it| packing.pack(it, raw))) {
        assert!(packed == val || stamp.is_nan(), "packed otherwise");
    }
}
