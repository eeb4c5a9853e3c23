//! `lsl doctor serve`: the other end of `lsl doctor HOST`. Spec: doctor §3.4

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use lsl_core::{Context, local_clock};
use lsl_doctor::code::encode;
use lsl_doctor::collect::pair::{dial, find};
use lsl_doctor::collect::{PORT, Post};
use lsl_doctor::observe::{Asked, HostAsked, Observations};
use lsl_doctor::pair::{PairError, Side};

use super::pair::{End, note_end, report};
use super::{FOUND, addresses};
use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::progress;
use crate::ui::text::printable;

/// Help the doctor of another machine: say what arrives here, and look back
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// The other machine: dialled every two seconds until it answers, where it cannot dial this one
    #[arg(value_name = "PEER")]
    peer: Option<String>,

    /// Port to listen at, over TCP and UDP
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,

    /// Go on after the first run, and after ten minutes
    #[arg(long)]
    keep: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl doctor serve               on the machine that sends; then `lsl doctor ITS-ADDRESS` on the one that misses
  lsl doctor serve 192.168.1.30  the same, dialling that machine, which runs `lsl doctor` with this one's address
  lsl doctor serve --keep        for several runs; Ctrl-C ends it

Where nothing connects, press Enter here: it prints a code of 16 characters to type on the other machine, which
then knows what arrived here. It talks with one machine at a time. To learn how the two hear each other it sends at
most 500 datagrams and 64 connections, to that machine and to the groups of LSL; then it looks, and sends, as `lsl
doctor` with the address of that machine does. Nothing is changed.

Exit status: 0 nothing is wrong; 1 a fault, no pair with who came, or the port is taken; 2 wrong usage; 3 nobody
came in ten minutes.";

impl Serve {
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        let loaded = globals.load()?;
        let context = Context::new(loaded.config.clone());
        // Nobody would be talked with, and least of all in plain text.
        context.security()?;
        let stop = Stop::install()?;
        let line = progress::line(true);
        let show = |layer: &str| line.set_message(layer.to_owned());
        let end = End {
            loaded: &loaded,
            context: &context,
            stop: &stop,
            show: &show,
            selector: None,
            is_local: false,
            patience: 1.0,
        };
        let peer = self.peer()?;
        let base = end.machine(&Asked::default());
        let post = Post::open(&loaded.config, &base, self.port).map_err(|error| {
            Failure::Runtime(format!(
                "cannot listen at TCP {}: {error}; another `lsl doctor serve`? (--port, here and there)",
                self.port
            ))
        })?;
        note(self.greeting(&base));
        let keys = lines();
        let start = local_clock();
        let mut dials = Dials {
            at: start,
            are_first: true,
        };
        let (mut status, mut refused) = (None, Refused::default());
        while !stop.requested() && (self.keep || local_clock() < start + MOST_SECS) {
            if keys.try_recv().is_ok() {
                let seen = end.look(&Asked::default(), Some(&post));
                line.set_message("");
                println(&format!(
                    "Code: {}",
                    encode(&end.told(&seen.observations, &post))
                ))?;
            }
            let come = post
                .accept()
                .map(|(stream, from)| (stream, from, Side::Accepts));
            // Others wait for their turn; a peer that was named is the only one.
            let come = come
                .filter(|(_, from, _)| peer.is_empty() || peer.contains(&from.ip().to_canonical()));
            let come = come.or_else(|| {
                let is_first = dials.due(local_clock()).filter(|_| !peer.is_empty())?;
                let found = if is_first {
                    find(&peer, self.port, base.asked.ports)
                } else {
                    dial(&peer, self.port..=self.port)
                };
                found.map(|(stream, to)| (stream, to, Side::Dials))
            });
            let Some((stream, from, side)) = come else {
                thread::sleep(NAP);
                continue;
            };
            let asked = of(from.ip().to_canonical());
            let began = local_clock();
            let (seen, ended) = end.talk(stream, side, &post, &base, &asked);
            line.set_message("");
            let host = from.ip().to_canonical().to_string();
            let Some(seen) = seen else {
                // Who looks whether the port is open says nothing.
                if let Err(PairError::Refused(why)) = &ended
                    && refused.add(from.ip().to_canonical(), why)
                {
                    note_end(&host, &ended);
                }
                continue;
            };
            note_end(&host, &ended);
            let report = report(seen, 0, began);
            println(&report.text(false))?;
            status = Some(report.faults());
            if !self.keep {
                break;
            }
            // With --keep there, too, they would never rest.
            dials.at = local_clock() + AGAIN_SECS;
        }
        line.finish_and_clear();
        if refused.untold > 0 {
            note(format!("{} more came, and got no pair", refused.untold));
        }
        match status {
            Some(0) => Ok(()),
            Some(_) => Err(Failure::Told(FOUND)),
            None if self.keep || stop.requested() => Ok(()),
            None => Err(match refused.told.pop() {
                Some((from, why)) => Failure::Runtime(format!("no pair with {from}: {why}")),
                None => Failure::NotFound("nobody came".into()),
            }),
        }
    }

    /// The addresses of the machine to dial, if one was named.
    fn peer(&self) -> Outcome<Vec<IpAddr>> {
        let Some(typed) = &self.peer else {
            return Ok(Vec::new());
        };
        if typed.contains('/') {
            return Err(Failure::Usage(format!(
                "{} is a network: name the one machine that runs `lsl doctor`",
                printable(typed)
            )));
        }
        let all = addresses(typed, true);
        if all.is_empty() {
            return Err(Failure::NotFound(format!(
                "{} has no address",
                printable(typed)
            )));
        }
        Ok(all)
    }

    fn greeting(&self, base: &Observations) -> String {
        let all = base.interfaces.iter().flatten();
        let is_other = |it: &&IpAddr| !it.is_loopback() && it.is_ipv4();
        let own: Vec<String> = all
            .flat_map(|it| it.addresses.iter().map(|(address, _)| address))
            .filter(is_other)
            .map(ToString::to_string)
            .collect();
        let own = if own.is_empty() {
            "ADDRESS-OF-THIS-MACHINE".to_owned()
        } else {
            own.join(" or ")
        };
        format!(
            "Waiting at TCP and UDP {}. On the other machine: lsl doctor {own}\n\
             If that does not find this one, press Enter for a code to type there. Ctrl-C ends it.",
            self.port
        )
    }
}

/// When the peer is dialled.
struct Dials {
    at: f64,
    are_first: bool,
}

impl Dials {
    /// Returns, if it is time, whether it is for the first time: LSL's range is tried once, as outlets are there.
    fn due(&mut self, now: f64) -> Option<bool> {
        (now >= self.at).then(|| {
            self.at = now + DIAL_SECS;
            std::mem::take(&mut self.are_first)
        })
    }
}

/// Who came and got no session. Anybody may come, with as many keys as he likes: the screen is the operator's.
#[derive(Debug, Default)]
struct Refused {
    told: Vec<(IpAddr, String)>,
    untold: usize,
}

impl Refused {
    /// Returns whether it is told: not what was, and few of each.
    fn add(&mut self, from: IpAddr, why: &str) -> bool {
        let of_it = || self.told.iter().filter(|it| it.0 == from);
        if of_it().any(|it| it.1 == why) {
            return false;
        }
        let is_told = of_it().count() < MOST_OF_ONE && self.told.len() < MOST_TOLD;
        if is_told {
            self.told.push((from, why.to_owned()));
        } else {
            self.untold += 1;
        }
        is_told
    }
}

/// The machine that came.
fn of(address: IpAddr) -> Asked {
    Asked {
        hosts: vec![HostAsked {
            text: address.to_string(),
            addresses: vec![address],
        }],
        ..Asked::default()
    }
}

/// Hears each line that is typed, as long as there is somebody to type.
pub(super) fn lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn println(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

const MOST_SECS: f64 = 600.0;
const DIAL_SECS: f64 = 2.0;
/// From a run to the next that this end begins.
const AGAIN_SECS: f64 = 60.0;
const NAP: Duration = Duration::from_millis(50);
/// As one thing after the other is put right there, with an error between.
const MOST_OF_ONE: usize = 4;
const MOST_TOLD: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_few_words_on_the_screen() {
        let mut refused = Refused::default();
        let from = |last| IpAddr::from([10, 50, 0, last]);
        assert!(refused.add(from(1), "no key"));
        assert!(!refused.add(from(1), "no key"), "it is said already");
        assert!(refused.add(from(1), "key 1 is not trusted"));
        let mut told = 2;
        for last in 1..100 {
            for key in 2..10 {
                let why = format!("key {key} is not trusted");
                told += usize::from(refused.add(from(last), &why));
            }
            assert!(told <= MOST_OF_ONE * usize::from(last));
        }
        assert_eq!((told, refused.untold), (MOST_TOLD, 99 * 8 + 2 - MOST_TOLD));
    }

    #[test]
    fn a_peer_is_dialled_seldom_and_its_outlets_once() {
        let mut dials = Dials {
            at: 0.0,
            are_first: true,
        };
        let due: Vec<_> = [0.0, 0.1, 1.9, 2.0, 3.9, 4.5]
            .map(|now| dials.due(now))
            .into();
        assert_eq!(
            due,
            [Some(true), None, None, Some(false), None, Some(false)]
        );
    }
}
