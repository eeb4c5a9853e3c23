//! The machine whose streams are measured.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::globals::Globals;
use lsl_cli::interrupt::{LONGEST_NAP, Stop};
use lsl_cli::signal::pace::Pace;
use lsl_cli::streams::link;
use lsl_cli::ui::notice::note;
use lsl_cli::ui::text::printable;
use lsl_core::{Context, Inlet, Outlet, Selector, Timeout, local_clock, random_uid};
use lsl_platform::usage::Usage;

use super::control::{ControlRequest, MAX_ECHOES, Offer, PORT, Reply, VERSION};
use super::line::ControlLine;
use super::{Ways, info, is_ours};
use crate::number::Numbering;
use crate::stats::mean;
use crate::usage::{EverySecond, peak_rss_mib};

#[derive(Debug, Args)]
pub(super) struct Server {
    /// Where to wait for clients, such as 10.0.0.7, fd00::7 or [fd00::7]:16690; with --loopback on this
    /// machine alone [default: all addresses, IPv4 and IPv6]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    listen: Option<String>,

    /// End after this many clients
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
}

impl Server {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        let ways = Ways::new(globals)?;
        let listeners = self.listen(&ways)?;
        let shown = listeners.iter().map(TcpListener::local_addr);
        let shown: Vec<String> = shown
            .map(|at| Ok(at?.to_string()))
            .collect::<Outcome<_>>()?;
        note(format_args!(
            "lsl: waiting for `lsl bench net client` on {}; whoever reaches it can make this machine offer \
             streams of made-up numbers. Ctrl-C ends it",
            shown.join(" and ")
        ));
        let stop = Stop::install()?;
        let mut served = 0;
        while !stop.requested() && self.clients.is_none_or(|most| served < most) {
            let arrived = listeners.iter().find_map(|listener| listener.accept().ok());
            let Some((stream, peer)) = arrived else {
                thread::sleep(LONGEST_NAP);
                continue;
            };
            // IPv4 clients of a socket for both kinds have mapped addresses.
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            served += 1;
            note(format_args!("lsl: client {peer}"));
            if let Err(failure) = serve(stream, &ways, &stop) {
                note(format_args!(
                    "lsl: client {peer}: {}",
                    printable(&failure.to_string())
                ));
            }
        }
        Ok(())
    }

    fn listen(&self, ways: &Ways) -> Outcome<Vec<TcpListener>> {
        match &self.listen {
            Some(asked) => listen_on(&addresses(asked)?, asked),
            None if ways.is_loopback() => {
                listen_on(&[(Ipv4Addr::LOCALHOST, PORT).into()], "127.0.0.1")
            }
            None => {
                let every: [SocketAddr; 2] = [
                    (Ipv6Addr::UNSPECIFIED, PORT).into(),
                    (Ipv4Addr::UNSPECIFIED, PORT).into(),
                ];
                listen_on(&every, &format!("port {PORT}"))
            }
        }
    }
}

/// Listens on those of the addresses that this machine has, at least on one. Where an IPv6 socket takes
/// IPv4 too, the second of `[::]` and `0.0.0.0` is in use by the first.
fn listen_on(addresses: &[SocketAddr], asked: &str) -> Outcome<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    let mut failed = None;
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                listeners.push(listener);
            }
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if listeners.is_empty() => Err(Failure::Runtime(format!(
            "cannot listen on {asked}: {error}"
        ))),
        _ => Ok(listeners),
    }
}

/// The addresses of a host, with the usual port unless it names one: `HOST`, `HOST:PORT`, `fd00::7`,
/// `[fd00::7]:PORT`.
pub(super) fn addresses(host: &str) -> Outcome<Vec<SocketAddr>> {
    let (name, port) = split(host)
        .ok_or_else(|| Failure::Usage(format!("{host}: give HOST, HOST:PORT or [IPV6]:PORT")))?;
    let found = (name, port).to_socket_addrs();
    found.map(Iterator::collect).map_err(|error| {
        Failure::NotFound(format!("{host} is no host that is known here: {error}"))
    })
}

/// Name and port. Without brackets more than one colon makes an IPv6 address, all of it.
fn split(host: &str) -> Option<(&str, u16)> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None if host.matches(':').count() == 1 => host.split_at(host.find(':')?),
        None => (host, ""),
    };
    let port = match port {
        "" => PORT,
        _ => port.strip_prefix(':')?.parse().ok()?,
    };
    Some((name, port))
}

/// All requests of a client.
fn serve(stream: TcpStream, ways: &Ways, stop: &Stop) -> Outcome {
    let mut line = ControlLine::new(stream, stop)?;
    let peer = line.peer()?.ip().to_canonical().to_string();
    let mut streams = None;
    while let Some(request) = line.hear(PATIENCE_SECS)? {
        let reply = answer(request, ways, &peer, &mut streams, stop).unwrap_or_else(|failure| {
            Reply::Failed {
                reason: failure.to_string(),
            }
        });
        if let Reply::Failed { reason } = &reply {
            note(format_args!("lsl: {}", printable(reason)));
        }
        line.say(&reply)?;
    }
    Ok(())
}

fn answer(
    request: ControlRequest,
    ways: &Ways,
    peer: &str,
    streams: &mut Option<Streams>,
    stop: &Stop,
) -> Outcome<Reply> {
    match (request, streams) {
        (ControlRequest::Hello { version }, _) if version != VERSION => {
            Err(Failure::Runtime(format!(
                "the client speaks version {version} of this benchmark, this server {VERSION}: use one version of \
             lsl on both machines"
            )))
        }
        (ControlRequest::Hello { .. }, _) => Ok(Reply::Hello {
            version: VERSION,
            lsl: env!("CARGO_PKG_VERSION").into(),
        }),
        (ControlRequest::Offer(offer), streams) => {
            offer.check().map_err(Failure::Usage)?;
            // The ones before go first.
            *streams = None;
            let new = streams.insert(Streams::offer(offer, ways, peer)?);
            Ok(Reply::Offered {
                stream: new.stream.info().source_id().into_owned(),
                echo: new.echo.info().source_id().into_owned(),
            })
        }
        (ControlRequest::Push, Some(streams)) => streams.push(stop),
        (ControlRequest::Echo { source_id, count }, Some(streams)) => {
            streams.send_back(&source_id, count.min(MAX_ECHOES), stop)
        }
        (ControlRequest::Push | ControlRequest::Echo { .. }, None) => {
            Err(Failure::Usage("nothing is offered yet".into()))
        }
        (ControlRequest::End, streams) => {
            *streams = None;
            Ok(Reply::Ended)
        }
    }
}

/// Outlets and context of one iteration.
struct Streams {
    offer: Offer,
    context: Context,
    stream: Outlet,
    echo: Outlet,
}

impl Streams {
    fn offer(offer: Offer, ways: &Ways, peer: &str) -> Outcome<Self> {
        let context = ways.context(offer.secure, peer)?;
        let id = random_uid()?;
        let open = |name: &str, rate| -> Outcome<Outlet> {
            let info = info(name, &format!("{name}-{id}"), offer.channels, rate)?;
            Ok(Outlet::builder(info).context(&context).open()?)
        };
        let (stream, echo) = (
            open("lsl-bench-net", offer.rate)?,
            open("lsl-bench-echo", 0.0)?,
        );
        Ok(Self {
            offer,
            context,
            stream,
            echo,
        })
    }

    /// Waits for an inlet, then pushes all samples on time.
    fn push(&self, stop: &Stop) -> Outcome<Reply> {
        if !self.stream.blocking().wait_for_consumers(WAIT) {
            return Err(Failure::NotFound("nobody reads the stream".into()));
        }
        let channels = self.offer.channels as usize;
        let numbering = Numbering::of::<f32>(channels);
        let mut sample = vec![0.0_f32; channels];
        let (before, start) = (Usage::now(), local_clock());
        let seconds = EverySecond::start();
        let mut took = Vec::new();
        let mut pace = Pace::new(local_clock() + 0.01, self.offer.rate.recip());
        while pace.done() < self.offer.samples && stop.sleep_until(pace.next_time(1)) {
            // The client may be gone without a word.
            if !self.stream.have_consumers() {
                return Err(Failure::NotFound("nobody reads the stream any more".into()));
            }
            for _ in 0..pace
                .due(local_clock())
                .min(self.offer.samples - pace.done())
            {
                numbering.write(pace.done(), &mut sample);
                let now = local_clock();
                self.stream.push(&sample)?;
                took.push(local_clock() - now);
                pace.advance(1);
            }
        }
        self.stream.blocking().flush(WAIT);
        let used = Usage::now().since(before);
        let cpu_secs = used.user_secs + used.system_secs;
        let values = [
            ("push_mean_us", mean(&took).map(|secs| secs * 1e6)),
            (
                "outlet_cpu_percent",
                Some(100.0 * cpu_secs / (local_clock() - start)),
            ),
            ("outlet_cpu_peak_percent", seconds.peak_percent()),
            ("outlet_rss_mib", peak_rss_mib()),
        ];
        let values = values.into_iter();
        let values = values.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Ok(Reply::Pushed {
            samples: pace.done(),
            cpu_secs,
            values: values.collect(),
        })
    }

    /// Sends the samples of a client's stream back to it.
    fn send_back(&self, source_id: &str, count: u32, stop: &Stop) -> Outcome<Reply> {
        let inlet = find(&self.context, source_id, self.offer.channels)?;
        link::open(&inlet, WAIT)?;
        let channels = self.offer.channels as usize;
        let (mut sample, mut own) = (vec![0.0_f32; channels], vec![0.0_f32; channels]);
        let mut echoed = 0;
        while echoed < count && !stop.requested() {
            if inlet.blocking().pull(&mut sample, ECHO_WAIT)?.is_none() {
                break;
            }
            answer_to(&sample, u64::from(echoed), &mut own)?;
            if !self.echo.have_consumers() {
                return Err(Failure::NotFound(
                    "nobody reads the answers any more".into(),
                ));
            }
            self.echo.push(&own)?;
            echoed += 1;
        }
        self.echo.blocking().flush(WAIT);
        Ok(Reply::Echoed { count: echoed })
    }
}

/// Writes the answer to the ping of this number. The ping itself is not returned: a client could
/// name a foreign stream, which this machine can read and the client cannot.
fn answer_to(ping: &[f32], number: u64, own: &mut [f32]) -> Outcome {
    let numbering = Numbering::of::<f32>(own.len());
    if numbering.read(ping) != number {
        return Err(Failure::Runtime(
            "the stream to send back is not one of pings".into(),
        ));
    }
    numbering.write(number, own);
    Ok(())
}

/// An inlet for the stream of this benchmark with this source id, if it has as many channels.
pub(super) fn find(context: &Context, source_id: &str, channels: u32) -> Outcome<Inlet> {
    let selector = Selector::property("source_id", source_id)?;
    let found = context.resolve_blocking(&selector, 1, WAIT)?;
    let info = found.first().ok_or_else(|| {
        Failure::NotFound(
            "the other machine's stream was not found: UDP ports 16572 to 16604 must be open between the \
             machines"
                .into(),
        )
    })?;
    is_ours(info, channels)?;
    Ok(Inlet::builder(info)
        .context(context)
        .recover(false)
        .create()?)
}

/// Wait for the next request: longer than a client needs to pull all samples.
const PATIENCE_SECS: f64 = 60.0;
/// Wait for streams and connections to appear.
pub(super) const WAIT: Timeout = Timeout::After(std::time::Duration::from_secs(10));
const ECHO_WAIT: Timeout = Timeout::After(std::time::Duration::from_secs(3));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        let check = |host: &str, expected: &str| {
            let found = addresses(host).unwrap();
            assert_eq!(found, [expected.parse().unwrap()], "{host}");
        };
        check("10.0.0.7", "10.0.0.7:16690");
        check("10.0.0.7:99", "10.0.0.7:99");
        check("::", "[::]:16690");
        check("::1", "[::1]:16690");
        // Not port 9 of fd77::5.
        check("fd77::5:9", "[fd77::5:9]:16690");
        check("[fd77::5]", "[fd77::5]:16690");
        check("[fd77::5]:9", "[fd77::5]:9");
        for wrong in ["[::1", "[::1]9", "[::1]:", "10.0.0.7:port", "10.0.0.7:"] {
            let refused = matches!(addresses(wrong), Err(Failure::Usage(_)));
            assert!(refused, "{wrong}");
        }
    }

    #[test]
    fn one_address_of_several_is_enough_to_listen() {
        // 192.0.2.1 is for documentation: no machine has it.
        let nowhere: SocketAddr = "192.0.2.1:0".parse().unwrap();
        let here: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listeners = listen_on(&[nowhere, here], "both").unwrap();
        assert_eq!(listeners.len(), 1);
        assert!(listen_on(&[nowhere], "192.0.2.1").is_err());
        // Both kinds on a port that is free, as far as the machine has them.
        let free = listeners[0].local_addr().unwrap().port();
        drop(listeners);
        let every: [SocketAddr; 2] = [
            (Ipv6Addr::LOCALHOST, free).into(),
            (Ipv4Addr::LOCALHOST, free).into(),
        ];
        let listeners = listen_on(&every, "both").unwrap();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, free)).is_ok());
        let is_six = |listener: &TcpListener| listener.local_addr().unwrap().is_ipv6();
        if listeners.iter().any(is_six) {
            assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, free)).is_ok());
        }
    }

    #[test]
    fn what_others_measure_is_not_sent_back() {
        let mut own = [0.0; 4];
        assert!(answer_to(&[3.0, 0.0, 17.5, -2.0], 3, &mut own).is_ok());
        assert_eq!(
            own.map(f32::to_bits),
            [3.0_f32, 0.0, 0.0, 0.0].map(f32::to_bits)
        );
        assert!(answer_to(&[12.5, 0.0, 17.5, -2.0], 3, &mut own).is_err());
    }
}
