//! What both ends conclude together: the same findings on both screens, `here` and `there` exchanged.

use super::Account;
use crate::remedy::{Place, Remedy};
use crate::table::{Diagnosis, Finding, Level, is_rule};

/// Joins what this end concludes with what the other says, which is called `host`.
///
/// Commands of the other end are shown for the other end alone: nobody is told by the network what to type here. What
/// it says that no rule of ours does is left out.
pub fn joint(mut own: Diagnosis, theirs: &Account, host: &str) -> Diagnosis {
    let is_closed = |all: &[Finding]| all.iter().any(|it| is_rule(&it.id) && closes(&it.id));
    // The machine at fault knows best what is wrong with it: how it looks from the other end adds nothing.
    let is_known = is_closed(&own.findings) || is_closed(&theirs.findings);
    let is_echo = |it: &Finding| it.id.starts_with("peer.") || it.id.starts_with("net.m");
    own.findings.retain(|it| !is_known || !is_echo(it));
    for finding in theirs.findings.iter().filter(|it| is_rule(&it.id)) {
        let is_own = closes(&finding.id) || is_of_machine(&finding.id);
        let is_said = own.findings.iter().any(|it| it.id == finding.id);
        if is_known && is_echo(finding) || is_said && !is_own {
            continue;
        }
        own.findings.push(exchanged(finding, host));
    }
    own.findings
        .sort_by_key(|it| (it.level, std::cmp::Reverse(it.streams)));
    if own.findings.iter().any(|it| it.level == Level::Fault) {
        own.unexplained.clear();
    }
    own
}

/// Whether a machine with it cannot be asked, or cannot ask.
fn closes(id: &str) -> bool {
    id.starts_with("fw.")
        || matches!(
            id,
            "port.taken" | "net.none" | "mac.local" | "cfg.secure" | "cfg.limits" | "cfg.ports"
        )
}

/// Whether it says something about one machine, so that both may have it.
fn is_of_machine(id: &str) -> bool {
    ["cfg.", "host.", "udp.", "trust.", "route."]
        .iter()
        .any(|it| id.starts_with(it))
}

/// A finding of the other end, as it is told here.
fn exchanged(finding: &Finding, host: &str) -> Finding {
    let mut told = finding.clone();
    for (from, to) in [("This machine", host), ("this machine", host)] {
        told.text = told.text.replace(from, to);
    }
    told.subject = format!("{host}: {}", finding.subject);
    told.remedies.retain(|it| it.place == Place::Here);
    for remedy in &mut told.remedies {
        remedy.place = Place::There;
    }
    if told.remedies.is_empty() {
        told.remedies.push(Remedy {
            place: Place::There,
            os: crate::observe::Os::default(),
            root: false,
            run: Vec::new(),
            lasting: Vec::new(),
            advice: "the screen of the other machine says what to type".to_owned(),
        });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: &str, place: Place) -> Finding {
        Finding {
            id: id.into(),
            level: Level::Fault,
            certain: true,
            subject: "eth0".into(),
            text: "This machine drops what arrives at this machine.".into(),
            streams: 0,
            seen: Vec::new(),
            remedies: vec![Remedy {
                place,
                os: crate::observe::Os::Linux,
                root: true,
                run: vec!["reboot".into()],
                lasting: Vec::new(),
                advice: String::new(),
            }],
        }
    }

    fn both(own: &[(&str, Place)], theirs: &[(&str, Place)]) -> Vec<Finding> {
        let all = |of: &[(&str, Place)]| of.iter().map(|(id, at)| finding(id, *at)).collect();
        let own = Diagnosis {
            findings: all(own),
            ..Diagnosis::default()
        };
        let theirs = Account {
            findings: all(theirs),
            ..Account::default()
        };
        joint(own, &theirs, "amp").findings
    }

    #[test]
    fn both_screens_have_the_same_findings() {
        let (here, there) = (Place::Here, Place::There);
        for (a, b, expected) in [
            (&[][..], &[("fw.in", here)][..], &["fw.in"][..]),
            (&[("peer.fw", there)], &[("fw.in", here)], &["fw.in"]),
            (&[("fw.in", here)], &[("fw.in", here)], &["fw.in", "fw.in"]),
            (&[("peer.fw", there)], &[], &["peer.fw"]),
            (
                &[("net.multicast", here)],
                &[("net.multicast", here)],
                &["net.multicast"],
            ),
            (&[("net.multicast", here)], &[("fw.out", here)], &["fw.out"]),
            (
                &[("path.mtu", here)],
                &[("fw.out", here)],
                &["path.mtu", "fw.out"],
            ),
        ] {
            for (own, theirs) in [(a, b), (b, a)] {
                let mut found: Vec<String> =
                    both(own, theirs).into_iter().map(|it| it.id).collect();
                let mut expected = expected.to_vec();
                found.sort();
                expected.sort_unstable();
                assert_eq!(found, expected, "{own:?} {theirs:?}");
            }
        }
    }

    #[test]
    fn nobody_is_told_by_the_network_what_to_type_here() {
        let told = both(&[], &[("fw.in", Place::Here)]).remove(0);
        assert_eq!(told.text, "amp drops what arrives at amp.");
        assert_eq!(told.remedies[0].place, Place::There);
        assert_eq!(told.remedies[0].run, ["reboot"]);
        let told = both(&[], &[("peer.fw", Place::There)]).remove(0);
        assert_eq!(told.remedies[0].run, [""; 0]);
        for id in ["fw.in\u{1b}[2J", "fw.in\n   here, as root:  reboot", "fw."] {
            assert_eq!(both(&[], &[(id, Place::Here)]), [], "{id:?}");
        }
    }
}
