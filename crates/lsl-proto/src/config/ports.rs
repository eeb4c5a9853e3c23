//! Choice of a port: the first free one of the configured range, else any. Spec: lsl-protocol §12.1.

use std::io;

/// Says where to look for a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSearch {
    /// First port to try (`ports.BasePort`).
    pub base: u16,
    /// How many ports to try from there (`ports.PortRange`).
    pub count: u16,
    /// Whether the system may choose one when all of them are taken (`ports.AllowRandomPorts`).
    pub allow_random: bool,
}

impl PortSearch {
    /// A port that the system chooses.
    pub const ANY: Self = Self {
        base: 0,
        count: 0,
        allow_random: true,
    };

    /// Returns the ports of the range in order; it ends early at 65535.
    pub fn ports(self) -> impl Iterator<Item = u16> + Clone {
        (0..self.count).map_while(move |offset| self.base.checked_add(offset))
    }

    /// Calls `bind` with one port after the other until one is free.
    ///
    /// # Errors
    /// The first error that is not "address in use", since another port would not cure it; or
    /// "address in use" when the range is full and no other port is allowed.
    pub fn bind<S>(self, mut bind: impl FnMut(u16) -> io::Result<S>) -> io::Result<S> {
        for port in self.ports() {
            match bind(port) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                outcome => return outcome,
            }
        }
        if self.allow_random {
            return bind(0);
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("all {} ports from {} on are taken", self.count, self.base),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn check(search: PortSearch, taken: &[u16], expected: Option<u16>, tried: &[u16]) {
        let seen = RefCell::new(Vec::new());
        let outcome = search.bind(|port| {
            seen.borrow_mut().push(port);
            if taken.contains(&port) {
                Err(io::ErrorKind::AddrInUse.into())
            } else {
                Ok(port)
            }
        });
        assert_eq!(outcome.ok(), expected);
        assert_eq!(*seen.borrow(), tried);
    }

    #[test]
    fn takes_the_first_free_port_of_the_range_then_any() {
        let search = PortSearch {
            base: 100,
            count: 3,
            allow_random: true,
        };
        check(search, &[], Some(100), &[100]);
        check(search, &[100, 101], Some(102), &[100, 101, 102]);
        check(search, &[100, 101, 102], Some(0), &[100, 101, 102, 0]);
        let strict = PortSearch {
            allow_random: false,
            ..search
        };
        check(strict, &[100, 101, 102], None, &[100, 101, 102]);
        check(
            PortSearch {
                base: 65534,
                ..strict
            },
            &[65534, 65535],
            None,
            &[65534, 65535],
        );
        check(PortSearch { count: 0, ..search }, &[], Some(0), &[0]);
    }

    #[test]
    fn stops_at_an_error_that_another_port_would_not_cure() {
        let search = PortSearch {
            base: 100,
            count: 3,
            allow_random: true,
        };
        let outcome: io::Result<()> = search.bind(|_| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
