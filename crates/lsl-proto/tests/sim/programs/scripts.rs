//! Peers that follow a script, in place of a program.

use std::io;

use super::{OutletId, Owner};
use crate::tcp::Socket;
use crate::world::{HostId, World};

pub(crate) type PeerId = usize;

/// An end of a connection that a test has in its own hands, and where such ends are accepted.
pub(crate) struct Peer {
    pub(crate) socket: Option<Socket>,
    /// Written as soon as there is room.
    pub(super) unsent: Vec<u8>,
    pub(crate) received: Vec<u8>,
    /// The other side has ended the connection.
    pub(crate) is_over: bool,
    pub(crate) reads: bool,
    /// Ends its direction when everything was written.
    pub(super) half_closes: bool,
}

/// An address at which a script answers: with these bytes, once something was asked.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) answer: Vec<u8>,
    pub(crate) then_closes: bool,
}

impl World {
    /// Connects a script with an outlet.
    pub(crate) fn dial(&mut self, host: HostId, outlet: OutletId) -> PeerId {
        let to = self.address_of(outlet);
        let (number, sockets) = self.link(self.hosts[host].address, to, None);
        let [own, theirs] = sockets;
        self.peers.push(Peer::new(own));
        let peer = self.peers.len() - 1;
        self.own(number, [Owner::Peer(peer), Owner::Outlet(outlet)]);
        self.accept(outlet, number, theirs);
        peer
    }

    /// Sends bytes of a script.
    pub(crate) fn say(&mut self, peer: PeerId, bytes: &[u8]) {
        self.peers[peer].unsent.extend_from_slice(bytes);
        self.peers[peer].write();
        self.settle();
    }

    /// Ends the direction of a script after what it said.
    pub(crate) fn half_close(&mut self, peer: PeerId) {
        self.peers[peer].half_closes = true;
        self.peers[peer].write();
        self.settle();
    }
}

impl Peer {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket: Some(socket),
            unsent: Vec::new(),
            received: Vec::new(),
            is_over: false,
            reads: true,
            half_closes: false,
        }
    }

    fn write(&mut self) {
        let Some(socket) = &self.socket else {
            return;
        };
        while !self.unsent.is_empty() {
            match socket.write(&self.unsent) {
                Ok(taken) => drop(self.unsent.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.unsent.clear(),
            }
        }
        if self.half_closes {
            socket.shut_down();
        }
    }

    pub(super) fn drive(&mut self) {
        self.write();
        while let Some(socket) = self.socket.as_ref().filter(|_| self.reads && !self.is_over) {
            match socket.read(4096) {
                Ok(bytes) if bytes.is_empty() => self.is_over = true,
                Ok(bytes) => self.received.extend(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.is_over = true,
            }
        }
    }
}
