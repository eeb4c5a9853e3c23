//! Two doctors that have found each other: the same for `lsl doctor HOST` and `lsl doctor serve`.

use std::net::TcpStream;

use lsl_core::config::Loaded;
use lsl_core::secure::Policy;
use lsl_core::{Context, Selector, local_clock};
use lsl_doctor::collect::control::Control;
use lsl_doctor::collect::pair::{self, Talked, told};
use lsl_doctor::collect::{Post, Wishes, run};
use lsl_doctor::observe::{Asked, Class, Observations, OtherSide};
use lsl_doctor::pair::{Account, Pair, PairError, Side, joint};
use lsl_doctor::report::{Check, Report};
use lsl_doctor::table::diagnose;

use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::text::printable;

/// This end, and how to look.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) context: &'a Context,
    pub(super) stop: &'a Stop,
    pub(super) show: &'a (dyn Fn(&str) + Sync),
    /// The stream that was named.
    pub(super) selector: Option<&'a Selector>,
    pub(super) is_local: bool,
    pub(super) patience: f64,
}

/// What was seen, alone or by both.
pub(super) struct Seen {
    pub(super) observations: Observations,
    pub(super) checks: Vec<Check>,
    pub(super) talked: Option<Talked>,
}

impl<'a> End<'a> {
    /// The same, looking for a stream.
    pub(super) fn of(self, selector: Option<&'a Selector>) -> Self {
        Self { selector, ..self }
    }

    /// Looks at this machine alone, or at everything.
    pub(super) fn look(&self, asked: &Asked, post: Option<&Post>) -> Seen {
        let (observations, checks) = self.with(asked, post, run);
        Seen {
            observations,
            checks,
            talked: None,
        }
    }

    /// Looks at what has to be known before others are asked.
    pub(super) fn machine(&self, asked: &Asked) -> Observations {
        self.with(asked, None, lsl_doctor::collect::machine)
    }

    fn with<T>(&self, asked: &Asked, post: Option<&Post>, look: fn(&Wishes<'_>) -> T) -> T {
        let addresses: Vec<_> = asked.hosts.iter().flat_map(super::places).collect();
        look(&Wishes {
            loaded: self.loaded,
            context: self.context,
            selector: self.selector,
            asked,
            hosts: &addresses,
            post,
            is_local: self.is_local,
            patience: self.patience,
            stop: &|| self.stop.requested(),
            progress: self.show,
        })
    }

    /// What this machine's policy says, as a code does.
    pub(super) fn policy(&self) -> u8 {
        match self.context.security().map(|it| it.policy()) {
            Ok(Policy::Off) => 0,
            Ok(Policy::Migrate) => 1,
            // What cannot be used lets nothing through.
            _ => 2,
        }
    }

    /// What this machine tells the other.
    pub(super) fn told(&self, seen: &Observations, post: &Post) -> OtherSide {
        post.side(told(seen, self.policy()))
    }

    /// Talks with the other end. What is seen here stands, whatever becomes of the talk; nothing is looked at for who
    /// does not say what it will send.
    pub(super) fn talk(
        &self,
        stream: TcpStream,
        side: Side,
        post: &Post,
        base: &Observations,
        asked: &Asked,
    ) -> (Option<Seen>, Result<(), PairError>) {
        let peer = stream.peer_addr().ok();
        let hello = peer.map(|it| pair::hello(post, it.ip()));
        let mut kept = None;
        let mut conclude = || {
            let seen = self.look(asked, Some(post));
            let diagnosis = diagnose(&seen.observations);
            let account = Account {
                side: self.told(&seen.observations, post),
                findings: diagnosis.findings,
            };
            kept = Some(seen);
            account
        };
        (self.show)("the other machine");
        let stop = || self.stop.requested();
        // Meant to be encrypted, and it cannot be: nothing is said in plain text.
        let security = self.context.security();
        let security = security.map_err(|error| PairError::Refused(error.to_string()));
        let control = security.and_then(|security| match side {
            Side::Dials => Control::dialled(stream, Some(security), &stop),
            Side::Accepts => Control::accepted(stream, Some(security), &stop),
        });
        let talked = control.and_then(|control| {
            let hello = hello.ok_or(PairError::Gone)?;
            if let Some(because) = &control.bare_because {
                note(format!("what the two say is not encrypted: {because}"));
            }
            let pair = Pair::new(side, hello, local_clock());
            pair::talk(control, pair, post, base, &stop, &mut conclude)
        });
        let ended = talked.map(|talked| {
            if let Some(seen) = &mut kept {
                seen.observations.other = Some(talked.theirs.side.clone());
                seen.talked = Some(talked);
            }
        });
        (kept, ended)
    }
}

/// Says why a talk ended early.
pub(super) fn note_end(host: &str, ended: &Result<(), PairError>) {
    match ended {
        Ok(()) => {}
        Err(PairError::Interrupted) => note("interrupted"),
        Err(PairError::Refused(why)) => note(format!("no pair with {}: {why}", printable(host))),
        Err(error) => note(format!("{} does not go on: {error}", printable(host))),
    }
}

/// Makes the report of what was seen since `start`; codes name this machine by `tag`.
pub(super) fn report(seen: Seen, tag: u8, start: f64) -> Report {
    let mut diagnosis = diagnose(&seen.observations);
    let mut lines: Vec<String> = of_code(&seen.observations, tag).into_iter().collect();
    if let Some(talked) = &seen.talked {
        let host = name(&seen.observations, talked);
        diagnosis = joint(diagnosis, &talked.theirs, &host);
        lines = ways(talked, &host, &seen.observations);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds"
    )]
    let took_ms = ((local_clock() - start) * 1000.0).max(0.0) as u64;
    let mut report = Report::new(seen.observations, diagnosis, seen.checks, took_ms);
    report.pair = lines;
    report
}

/// Makes the report again, with what the other machine tells by its code.
pub(super) fn again(report: Report, other: OtherSide, tag: u8) -> Report {
    let took_ms = report.took_ms;
    let mut seen = Seen {
        observations: report.observations,
        checks: report.checks,
        talked: None,
    };
    seen.observations.other = Some(other);
    Report {
        took_ms,
        ..self::report(seen, tag, local_clock())
    }
}

/// What the other machine heard of this one, as its code says.
fn of_code(seen: &Observations, tag: u8) -> Option<String> {
    let (other, host) = (seen.other.as_ref()?, &seen.asked.hosts.first()?.text);
    let all: Vec<&str> = other.heard.keys().map(|it| said(*it)).collect();
    Some(match other.tag {
        0 => format!("{host} has heard no doctor."),
        it if it == tag => format!("{host} hears this machine by: {}.", all.join(", ")),
        _ => format!("{host} has heard another machine's doctor, not this one's."),
    })
}

/// What the other machine is called: as it was typed here, else as it says.
fn name(seen: &Observations, talked: &Talked) -> String {
    let typed = seen.asked.hosts.first().map(|it| it.text.clone());
    typed.unwrap_or_else(|| printable(&talked.hello.host))
}

/// How the two hear each other.
fn ways(talked: &Talked, host: &str, seen: &Observations) -> Vec<String> {
    let deaf = |is_deaf: &dyn Fn(&(Class, bool, bool)) -> bool| {
        let all = talked.ways.iter().filter(|it| is_deaf(it));
        let all: Vec<&str> = all.map(|(class, ..)| said(*class)).collect();
        (!all.is_empty()).then(|| all.join(", "))
    };
    let there = deaf(&|(_, there, _)| !there);
    let here = deaf(&|(_, _, here)| !here);
    let mut lines = Vec::new();
    if there.is_none() && here.is_none() {
        lines.push(format!(
            "{host} and this machine hear each other by every way."
        ));
    }
    if let Some(ways) = there {
        lines.push(format!("{host} does not hear this machine by: {ways}."));
    }
    if let Some(ways) = here {
        lines.push(format!("This machine does not hear {host} by: {ways}."));
    }
    let mut own = seen
        .interfaces
        .iter()
        .flatten()
        .flat_map(|it| &it.addresses);
    if let Some(sees) = talked.hello.sees
        && !own.any(|(address, _)| *address == sees)
    {
        lines.push(format!(
            "{host} sees this machine as {sees}: addresses are translated between (NAT)."
        ));
    }
    if talked.is_sealed {
        lines.push(
            "Both have proved their keys, and what they say to each other is encrypted.".into(),
        );
    }
    lines
}

fn said(class: Class) -> &'static str {
    match class {
        Class::SiteV4 => "group 239.255.172.215",
        Class::LinkV4 => "groups 224.0.0.1, 224.0.0.183",
        Class::Broadcast => "255.255.255.255",
        Class::Directed => "broadcast of the network",
        Class::GroupsV6 => "groups of IPv6",
        Class::Multicast => "UDP 16571",
        Class::Range => "a port of LSL's range",
        Class::Serve => "the doctor's port",
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use lsl_core::config::{Config, Source};
    use lsl_core::{ChannelFormat, Outlet, StreamInfo};
    use lsl_doctor::observe::StreamAsked;
    use lsl_doctor::pair::PREAMBLE;

    use super::*;

    fn with(play: impl Fn(&End<'_>, &Context)) {
        let config = Config::loopback();
        let context = Context::new(config.clone());
        let loaded = Loaded {
            config,
            source: Source::Defaults,
            diagnostics: Vec::new(),
        };
        let end = End {
            loaded: &loaded,
            context: &context,
            stop: &Stop::default(),
            show: &|_| {},
            selector: None,
            is_local: false,
            patience: 0.2,
        };
        play(&end, &context);
    }

    #[test]
    fn a_bare_connection_starts_no_run() {
        with(|end, _| {
            let looks = |layer: &str| assert_eq!(layer, "the other machine");
            let end = End {
                show: &looks,
                ..*end
            };
            let (config, base) = (Config::loopback(), Observations::default());
            let post = Post::open(&config, &base, 0).unwrap();
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let (stream, _) = listener.accept().unwrap();
            let (seen, ended) = end.talk(stream, Side::Accepts, &post, &base, &Asked::default());
            assert!(seen.is_none());
            assert_eq!(ended, Err(PairError::Gone));
        });
    }

    #[test]
    fn nothing_is_said_where_encryption_cannot_be_used() {
        let foreign = Config::from_text("[security]\nenabled = true\n").unwrap();
        let context = Context::new(foreign);
        let broken = context.security().unwrap_err().to_string();
        with(|end, _| {
            let end = End {
                context: &context,
                ..*end
            };
            let (config, base) = (Config::loopback(), Observations::default());
            let post = Post::open(&config, &base, 0).unwrap();
            for side in [Side::Dials, Side::Accepts] {
                let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
                let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                other.write_all(PREAMBLE).unwrap();
                let (stream, _) = listener.accept().unwrap();
                let (seen, ended) = end.talk(stream, side, &post, &base, &Asked::default());
                assert!(seen.is_none());
                assert_eq!(ended, Err(PairError::Refused(broken.clone())));
                let mut said = Vec::new();
                // With what was not read the connection is reset.
                let _ = other.read_to_end(&mut said);
                assert_eq!(said, b"", "{side:?}");
            }
        });
    }

    #[test]
    fn a_stream_that_was_named_is_looked_for_in_a_pair_too() {
        with(|end, context| {
            let info = StreamInfo::new("Amp", "EEG", 1, 0.0, ChannelFormat::Float32, "amp");
            let _outlet = Outlet::builder(info.unwrap()).context(context).open();
            let asked = Asked {
                stream: Some(StreamAsked {
                    text: "Amp".into(),
                    ..StreamAsked::default()
                }),
                ..Asked::default()
            };
            let post = Post::open(&Config::loopback(), &Observations::default(), 0).unwrap();
            let selector = Selector::property("name", "Amp").unwrap();
            let seen = end.of(Some(&selector)).look(&asked, Some(&post));
            assert!(seen.observations.asked.stream.unwrap().found);
        });
    }
}
