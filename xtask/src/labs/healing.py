"""Networks that are broken in one way each, in which streams are found and read all the same. Spec: doctor Part A."""

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
    return f"found after {took:.1f} s"


def first_result(network, limit):
    """How long the first result of a search takes, the start of the program included."""
    began = now()
    search = network.rec.start("list", "--watch", "--json")
    until("stream", lambda: search.lines or not search.is_running())
    took = search.lines[0][0] - began
    until("streams", lambda: len(search.lines) >= 3)
    expect(took < limit, f"{took:.3f} s")
    return search, took


def stays(search):
    """Nothing counts as gone, though no datagram says that it is there."""
    until("some waves", lambda: now() > search.lines[0][0] + 8.0)
    expect(not any('"lost"' in line for _, line in search.lines), search)


def udp_swallowed(network, machine, chain):
    network.streams()
    search, healthy = first_result(network, 2.0)
    search.end()
    machine.nft(
        f"table inet filter {{ chain {chain} {{ type filter hook {chain} priority 0; policy accept; "
        "iifname lo accept; oifname lo accept; meta l4proto udp drop; }; }"
    )
    network.none_there()
    network.set_up(network.rec, "[lab]\nKnownPeers = {10.50.0.1}\n")
    search, took = first_result(network, healthy + 2.0)
    stays(search)
    network.all_there()
    return f"first result {1e3 * healthy:.0f} ms healthy, {1e3 * took:.0f} ms over TCP"


def sender_swallows(network):
    """3: amp may send no UDP."""
    return udp_swallowed(network, network.amp, "output")


def reader_swallows(network):
    """rec hears no UDP."""
    return udp_swallowed(network, network.rec, "input")


def restarted(network):
    """Once found, they are found again over TCP where nobody named them."""
    network.streams()
    search, _ = first_result(network, 2.0)
    network.rec.nft("table inet filter { chain input { type filter hook input priority 0; meta l4proto udp drop; }; }")
    stays(search)


def neighbours(network):
    """Hosts that the system knows are asked if that is wished."""
    network.without_ipv6()
    network.streams()
    network.swallow_groups()
    network.rec.reaches("10.50.0.1")
    network.none_there()
    network.set_up(network.rec, "[lab]\nAskNeighbours = 1\n")
    search, took = first_result(network, 3.0)
    search.end()
    return f"first result after {took:.1f} s"


LABS = {
    "A-known-network": known_network,
    "A-3-sender-swallows-udp": sender_swallows,
    "A-reader-swallows-udp": reader_swallows,
    "A-seen-host": restarted,
    "A-neighbours": neighbours,
}
