//! `stream.open` and `stream.feed`: streams that are found are opened, and some are read for three seconds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lsl_core::secure::Security;
use lsl_core::secure::policy::Way;
use lsl_core::{BufferLength, ChannelFormat, Inlet, PullElement, StreamInfo, Timeout, local_clock};
use lsl_platform::clock;
use lsl_proto::ByteOrder;
use lsl_proto::wire::request::{FeedRequest, PROTOCOL_VERSION};
use lsl_proto::wire::response::{FeedError, ResponseParser};

use super::budget::Budget;
use super::dial::{Dial, Dialled, dial};
use super::trust::{self, Judged};
use super::{Wishes, probe};
use crate::meter::Meter;
use crate::observe::peers::PortState;
use crate::observe::{Barred, ClockAnswer, Fed, Opened, Place, StreamProbed, Verdict};
use crate::table::pair::TEST_SESSION;

/// Opens streams as inlets do, without becoming their reader. `None` if encryption is set up so that nothing streams.
pub(super) fn open(
    infos: &[StreamInfo],
    wishes: &Wishes<'_>,
    budget: &Budget,
) -> Option<Vec<StreamProbed>> {
    let security = wishes.context.security().ok()?;
    let with_keys = |info: &StreamInfo| with_keys(security, info, wishes, budget);
    let (mut probed, are_plain): (Vec<_>, Vec<_>) = at_once(infos, OPENED_AT_ONCE, with_keys)
        .into_iter()
        .unzip();
    // Another address is tried where the first does not do.
    for turn in 0..MOST_ADDRESSES {
        let all = probed.iter_mut().zip(infos).zip(&are_plain);
        let plain = all.filter(|((it, _), is_plain)| **is_plain && it.opened != Some(Opened::Yes));
        let due = plain.filter_map(|((stream, info), _)| {
            let dial = Dial {
                to: *probe::addresses(info).get(turn)?,
                bound: None,
                request: test_patterns(info).to_bytes(),
                enough: usize::MAX,
            };
            Some(((stream, info), dial))
        });
        let (due, dials): (Vec<(&mut StreamProbed, &StreamInfo)>, Vec<Dial>) = due.unzip();
        let came = dial(&dials, budget, wishes.patience, wishes.stop);
        for ((stream, info), came) in due.into_iter().zip(came) {
            let opened = came.map(|came| judged(info, &came));
            if stream.opened.is_none() || opened == Some(Opened::Yes) {
                stream.opened = opened;
            }
        }
    }
    Some(probed)
}

/// Reads those streams that open, at most eight, for three seconds. Large ones only if they were named.
pub(super) fn feed(probed: &mut [StreamProbed], infos: &[StreamInfo], wishes: &Wishes<'_>) {
    let is_small = |info: &StreamInfo| {
        let bytes = u32::try_from(info.channel_format().value_size().max(1))
            .map_or(f64::INFINITY, f64::from);
        info.nominal_srate() * f64::from(info.channel_count()) * bytes < MOST_BYTES_PER_SEC
    };
    let is_open = |it: &StreamProbed| {
        it.barred.is_none() && it.opened.is_none_or(|opened| opened == Opened::Yes)
    };
    let chosen: Vec<(&mut StreamProbed, &StreamInfo)> = probed
        .iter_mut()
        .zip(infos)
        .filter(|(it, info)| is_open(it) && (wishes.selector.is_some() || is_small(info)))
        .take(MOST_FED)
        .collect();
    thread::scope(|scope| {
        for (stream, info) in chosen {
            scope.spawn(move || stream.fed = feed_one(info, wishes));
        }
    });
}

/// Does the same with each, some at once, in their order.
fn at_once<T: Sync, R: Send>(all: &[T], most: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..most.min(all.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(each) = all.get(index) else { break };
                    let result = work(each);
                    let mut done = done
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    done.push((index, result));
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Opens a stream if it is encrypted. Returns whether it is to be opened without.
fn with_keys(
    security: &Security,
    info: &StreamInfo,
    wishes: &Wishes<'_>,
    budget: &Budget,
) -> (StreamProbed, bool) {
    let addresses = probe::addresses(info);
    let mut probed = StreamProbed {
        uid: info.uid().into_owned(),
        name: info.name().into_owned(),
        hostname: info.hostname().into_owned(),
        address: addresses
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
        rate: info.nominal_srate(),
        ..StreamProbed::default()
    };
    let advert = info.security_advert().map(|advert| advert.policy);
    let way = security.way_of_inlet(
        info.name_bytes(),
        info.stream_type_bytes(),
        info.source_id_bytes(),
        &probed.address,
        advert.as_deref(),
    );
    match (way, security.local()) {
        (Way::Refuse { text, .. }, _) => {
            probed.opened = Some(Opened::Barred);
            probed.barred = Some(Barred {
                by: if advert.is_some() {
                    Verdict::RefusedHere
                } else {
                    Verdict::Plaintext
                },
                has_key: security.local().is_some(),
                text,
                command: (advert.is_some() && security.local().is_none())
                    .then(|| (Place::Here, "lsl key init".to_owned())),
            });
        }
        // Of a relay, which is dialled by what it says of itself.
        _ if addresses.is_empty() => {}
        (Way::Secure, Some(local))
            if !(wishes.stop)() && budget.connections(addresses.len()) == addresses.len() =>
        {
            let judged = trust::judge(security, local, info, wishes.stop);
            // Whoever was interrupted knows nothing.
            if (wishes.stop)() {
                return (probed, false);
            }
            probed.opened = Some(match judged.verdict {
                Verdict::Ok => Opened::Yes,
                Verdict::Failed if judged.is_unreachable => Opened::Unreachable,
                _ => Opened::Barred,
            });
            probed.barred = (probed.opened == Some(Opened::Barred)).then(|| barred(judged));
        }
        (Way::Secure, Some(_)) => {}
        _ => return (probed, true),
    }
    // Of a pair, who trust each other for one direction alone: the other is no fault.
    if info.session_id() == TEST_SESSION {
        probed.barred = None;
    }
    (probed, false)
}

fn barred(judged: Judged) -> Barred {
    Barred {
        by: judged.verdict,
        has_key: true,
        text: judged.text.unwrap_or_default(),
        command: judged.command,
    }
}

/// The request of a feed that ends behind its test patterns. Spec: lsl-protocol §14 Q3
pub(super) fn test_patterns(info: &StreamInfo) -> FeedRequest<'_> {
    FeedRequest {
        version: info.version().min(PROTOCOL_VERSION),
        uid: info.uid_bytes(),
        byte_order: ByteOrder::NATIVE,
        format: info.channel_format(),
        max_buffer_samples: 0,
        max_chunk_samples: 0,
        hostname: info.hostname_bytes(),
        source_id: info.source_id_bytes(),
        session_id: info.session_id_bytes(),
        replay_from: None,
    }
}

/// What came of asking for test patterns.
fn judged(info: &StreamInfo, came: &Dialled) -> Opened {
    match came.state {
        PortState::Open => {}
        PortState::Refused => return Opened::Closed,
        PortState::Silent | PortState::Unreachable => return Opened::Unreachable,
    }
    let request = test_patterns(info);
    if request.expects_response() {
        let FeedRequest {
            version,
            uid,
            format,
            byte_order,
            ..
        } = request;
        let mut response = ResponseParser::new(version, uid, format, byte_order);
        match response.feed(&came.received) {
            Ok(Some(_)) => {}
            Ok(None) => return refusal(response.finish()),
            Err(error) => return refusal(error),
        }
    }
    if came.is_complete && !came.received.is_empty() {
        Opened::Yes
    } else {
        Opened::Stalled
    }
}

fn refusal(error: FeedError) -> Opened {
    match error {
        FeedError::Closed => Opened::Stalled,
        _ => Opened::Refused,
    }
}

/// Reads a stream as programs do. `None` if no inlet comes about.
fn feed_one(info: &StreamInfo, wishes: &Wishes<'_>) -> Option<Fed> {
    let inlet = Inlet::builder(info)
        .context(wishes.context)
        .recover(false)
        .buffer(BufferLength::Seconds(10.0))
        .create()
        .ok()?;
    // Begins; how it went is asked at the end.
    let _ = inlet.blocking().time_correction(Timeout::NOW);
    let limit = Duration::from_secs_f64(OPEN_SECS * wishes.patience);
    inlet.blocking().open(limit).ok()?;
    let meter = match info.channel_format() {
        ChannelFormat::Undefined => return None,
        ChannelFormat::String => read::<Vec<u8>>(&inlet, info, wishes),
        _ => read::<f64>(&inlet, info, wishes),
    };
    let day = clock::utc_now().as_secs_f64();
    let correction = inlet.blocking().time_correction(LAST_PROBES);
    let offset = correction.as_ref().ok().map(|it| it.offset_secs);
    Some(Fed {
        lost: inlet.stats().lost_exact,
        day: Some(day),
        clock: Some(correction.map_or(ClockAnswer::Silent, |it| {
            ClockAnswer::Seconds(it.uncertainty_secs)
        })),
        ..meter.ends(local_clock(), offset)
    })
}

fn read<T: PullElement + Default + Clone>(
    inlet: &Inlet,
    info: &StreamInfo,
    wishes: &Wishes<'_>,
) -> Meter {
    let channels = info.channel_count() as usize;
    let samples = (MOST_VALUES / channels.max(1)).clamp(1, MOST_SAMPLES);
    let mut values = vec![T::default(); channels * samples];
    let mut stamps = vec![0.0; samples];
    let start = local_clock();
    let mut meter = Meter::new(info.nominal_srate(), start);
    let end = start + FEED_SECS * wishes.patience;
    while local_clock() < end && !(wishes.stop)() {
        let one = values.get_mut(..channels).unwrap_or_default();
        let Ok(Some(stamp)) = inlet.blocking().pull(one, NAP) else {
            continue;
        };
        let now = local_clock();
        meter.take(&[stamp], now);
        while let Ok(pulled @ 1..) = inlet.try_pull_chunk(&mut values, Some(&mut stamps)) {
            meter.take(stamps.get(..pulled).unwrap_or_default(), now);
            if local_clock() >= end {
                break;
            }
        }
    }
    meter
}

const OPENED_AT_ONCE: usize = 8;
const OPEN_SECS: f64 = 1.5;
const FEED_SECS: f64 = 3.0;
/// Of each family one.
pub(super) const MOST_ADDRESSES: usize = 2;
const MOST_FED: usize = 8;
const MOST_BYTES_PER_SEC: f64 = 5e6;
const MOST_VALUES: usize = 1 << 16;
const MOST_SAMPLES: usize = 1024;
const NAP: Duration = Duration::from_millis(50);
/// For clock probes that began with the inlet.
const LAST_PROBES: Duration = Duration::from_millis(200);
