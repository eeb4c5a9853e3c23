//! `stream.open` and `stream.feed`: streams that are found are opened, and some are read for three seconds.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
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

use super::trust::{self, Judged};
use super::{Wishes, probe};
use crate::meter::Meter;
use crate::observe::{Barred, ClockAnswer, Fed, Opened, Place, StreamProbed, Verdict};

/// Opens streams as inlets do, without becoming their reader. `None` if encryption is set up so that nothing streams.
pub(super) fn open(infos: &[StreamInfo], wishes: &Wishes<'_>) -> Option<Vec<StreamProbed>> {
    let security = wishes.context.security().ok()?;
    let limit = Duration::from_secs_f64(OPEN_SECS * wishes.patience);
    let probe = |info: &StreamInfo| open_one(security, info, limit);
    Some(at_once(infos, OPENED_AT_ONCE, probe))
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

fn open_one(security: &Security, info: &StreamInfo, limit: Duration) -> StreamProbed {
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
        (Way::Secure, Some(local)) => {
            let judged = trust::judge(security, local, info);
            probed.opened = Some(match judged.verdict {
                Verdict::Ok => Opened::Yes,
                Verdict::Failed if judged.is_unreachable => Opened::Unreachable,
                _ => Opened::Barred,
            });
            probed.barred = (probed.opened == Some(Opened::Barred)).then(|| barred(judged));
        }
        _ => {
            let mut ends = addresses
                .iter()
                .map(|address| open_at(*address, info, limit));
            let first = ends.next();
            let better = || ends.find(|end| *end == Opened::Yes);
            probed.opened = first
                .filter(|end| *end == Opened::Yes)
                .or_else(better)
                .or(first);
        }
    }
    probed
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

fn open_at(address: SocketAddr, info: &StreamInfo, limit: Duration) -> Opened {
    let asking = || -> io::Result<Opened> {
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_write_timeout(Some(limit))?;
        let request = test_patterns(info);
        stream.write_all(&request.to_bytes())?;
        let response = ResponseParser::new(
            request.version,
            request.uid,
            request.format,
            request.byte_order,
        );
        let response = request.expects_response().then_some(response);
        Ok(read_whole(stream, response, limit))
    };
    match asking() {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Opened::Closed,
        Err(_) => Opened::Unreachable,
    }
}

/// Reads to the end, and judges what came.
fn read_whole(
    mut stream: TcpStream,
    mut response: Option<ResponseParser>,
    limit: Duration,
) -> Opened {
    let deadline = local_clock() + limit.as_secs_f64();
    let mut buffer = vec![0; 65_536];
    let mut received = 0;
    while received < MOST_BYTES {
        let left = Duration::try_from_secs_f64(deadline - local_clock()).unwrap_or_default();
        let set = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
        let read = set.and_then(|()| stream.read(&mut buffer));
        let bytes = match read {
            Ok(0) => break,
            Ok(length) => buffer.get(..length).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // What liblsl had not read makes its end a reset.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && received > 0 => break,
            Err(_) => return Opened::Stalled,
        };
        received += bytes.len();
        match response.as_mut().map(|response| response.feed(bytes)) {
            Some(Ok(Some(_))) => response = None,
            Some(Err(error)) => return refusal(error),
            Some(Ok(None)) | None => {}
        }
    }
    match response {
        Some(response) => refusal(response.finish()),
        None if received > 0 => Opened::Yes,
        None => Opened::Stalled,
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
const MOST_FED: usize = 8;
const MOST_BYTES_PER_SEC: f64 = 5e6;
/// Of test patterns; no stream has as many channels.
const MOST_BYTES: usize = 64 << 20;
const MOST_VALUES: usize = 1 << 16;
const MOST_SAMPLES: usize = 1024;
const NAP: Duration = Duration::from_millis(50);
/// For clock probes that began with the inlet.
const LAST_PROBES: Duration = Duration::from_millis(200);
