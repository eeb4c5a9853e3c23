//! Who may be one more reader of an outlet.

use lsl_proto::limits::Host;

/// Whether a reader from `host` may have one of `most` places beside those of `present`. The last tenth
/// is for hosts that have none, so that one alone cannot take them all.
pub(super) fn has_place(
    mut present: impl ExactSizeIterator<Item = Host>,
    host: Host,
    most: usize,
) -> bool {
    let taken = present.len();
    taken < most && (taken < most - most / 10 || !present.any(|other| other == host))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn one_host_leaves_places_to_others() {
        for (most, by_one_host) in [(1, 1), (2, 2), (10, 9), (1000, 900)] {
            let mut present = Vec::new();
            let mut enter = |address: IpAddr| {
                let host = Host::from(address);
                let enters = has_place(present.iter().copied(), host, most);
                present.extend(enters.then_some(host));
                enters
            };
            let greedy = (0..2000).filter(|_| enter([10, 0, 0, 1].into()));
            assert_eq!(greedy.count(), by_one_host, "of {most}");
            let others = (0..200).filter(|number| enter([10, 0, 1, *number].into()));
            assert_eq!(others.count(), most - by_one_host, "of {most}");
        }
    }
}
