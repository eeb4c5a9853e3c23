"""Networks that are broken in one way each, in which streams are found and read all the same. Spec: doctor Part A."""

import json

from lab import expect, now, until


def known_network(network):
    """The network of known peers is asked host by host; a search that runs hears of it within 11 s."""
    network.streams()
    network.swallow_groups()
    watching = network.rec.start("list", "--watch", "--json")
    network.none_there()
    began = now()
    network.set_up(network.rec, "[lab]\nKnownPeers = {10.50.0.0/24}\n")
    until("streams", lambda: len(watching.lines) >= 3)
    took = now() - began
    expect(took < 15.0, f"{took:.1f} s")
    network.all_there()
    return f"found after {took:.1f} s, "


LABS = {
    "A-known-network": known_network,
}
