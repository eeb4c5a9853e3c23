//! Outlets whose process is killed and started again. Spec: resume §9, test 6.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::{ChannelFormat, Inlet, Outlet};

use super::{RETAINING, info, rounds};
use crate::lab::{self, SOON};

/// Session and first port of the outlet that this process is.
const CHILD: &str = "LSL_TEST_OUTLET";

/// A process that pushes the numbers from 0 on until it is killed.
struct Process(Child);

impl Process {
    fn start(config: &Config) -> Self {
        let place = format!("{} {}", config.lab().session_id, config.ports().base_port);
        let test = "resume::restarting::a_killed_outlet_gives_everything_since_its_restart";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(CHILD, place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn be_an_outlet(place: &str) {
    let (session, port) = place.split_once(' ').unwrap();
    let mut config = Config::loopback();
    config.set_ports(port.parse().unwrap(), 20);
    config.set_session_id(session).unwrap();
    for (key, value) in RETAINING {
        config.set(key, value).unwrap();
    }
    let info = info("killed", 1, 0.0, ChannelFormat::Int32);
    let context = lab::plaintext(config);
    let outlet = Outlet::builder(info).context(&context).open().unwrap();
    // Far longer than anybody reads.
    for number in 0..100_000 {
        outlet.push_at(&[number], 10.0 + f64::from(number)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pull(inlet: &Inlet) -> i32 {
    let mut value = [0];
    let stamp = inlet.blocking().pull(&mut value, SOON).unwrap();
    assert_eq!(stamp, Some(10.0 + f64::from(value[0])));
    value[0]
}

#[test]
fn a_killed_outlet_gives_everything_since_its_restart() {
    if let Ok(place) = std::env::var(CHILD) {
        return be_an_outlet(&place);
    }
    let context = lab::context_with(RETAINING);
    let mut process = Process::start(context.config());
    let inlet = lab::inlet(&context, "killed");
    let mut last = pull(&inlet);
    let rounds = rounds(2);
    for round in 0..=rounds {
        for _ in 0..100 {
            let number = pull(&inlet);
            assert_eq!(number, last + 1, "round {round}");
            last = number;
        }
        if round == rounds {
            break;
        }
        drop(process);
        process = Process::start(context.config());
        // What had arrived before, and then everything.
        let mut number = pull(&inlet);
        while number != 0 {
            assert_eq!(number, last + 1, "round {round}");
            last = number;
            number = pull(&inlet);
        }
        last = number;
    }
    let stats = inlet.stats();
    assert_eq!(
        (stats.generations, stats.lost_unknown),
        (rounds + 1, rounds)
    );
    assert_eq!((stats.lost_exact, stats.dropped), (0, 0));
}
