"""H: networks in which nothing is wrong, however odd they look: no finding, exit status 0. Also those that heal."""

from broken import FILTER, tunnel
from network import STREAMS, expect


def healthy(network, names=STREAMS):
    """The doctor at rec and at amp finds nothing."""
    took = []
    for machine in (network.rec, network.amp):
        # Nothing is wrong at amp either, where there are no streams of others.
        status = 0 if machine is network.rec else 3
        report = network.doctor(machine, status=status)
        expect(not report["findings"], report["findings"])
        took.append(report["took_ms"] / 1000.0)
    # On a machine with nothing else to do 4 s; the gate runs at any load.
    expect(max(took) < 10.0, took)
    network.all_there(names)
    return f"{took[0]:.1f} and {took[1]:.1f} s by the doctor"


def plain(network):
    network.streams()
    said = healthy(network)
    # One of several is asked for.
    report = network.doctor(network.rec, "Ours", status=0)
    expect(report["healthy"], report)
    return said


def ipv4_only(network):
    network.without_ipv6()
    network.streams()
    return healthy(network)


def ipv6_only(network):
    for machine in (network.amp, network.rec):
        machine.ip("-4", "address", "flush", "dev", "e0")
    network.streams()
    return healthy(network)


def wifi(network):
    """An access point loses four of ten frames to groups, and one of a hundred others."""
    network.streams()
    network.swallow(
        ["meta pkttype { multicast, broadcast } numgen random mod 100 < 40 drop", "numgen random mod 100 < 1 drop"]
    )
    return healthy(network)


def laptop(network):
    """A VPN has the default route, containers and machines have networks; only LSL's ports are open."""
    rec = network.rec
    network.streams()
    tunnel(rec)
    for name in ("docker0", "br-0123456789ab", "virbr0"):
        rec.ip("link", "add", name, "type", "bridge")
        rec.ip("link", "set", name, "up")
    rec.ip("address", "add", "172.17.0.1/16", "dev", "docker0")
    rec.ip("address", "add", "172.18.0.1/16", "dev", "br-0123456789ab")
    rec.ip("address", "add", "192.168.122.1/24", "dev", "virbr0")
    for number in range(40):
        rec.ip("link", "add", f"veth{number}", "type", "veth", "peer", "name", f"inner{number}")
        rec.ip("link", "set", f"veth{number}", "master", "br-0123456789ab", "up")
    opened = "udp dport 16571-16603 accept; tcp dport 16572-16603 accept; }; }"
    rec.nft(FILTER.replace("}; }", opened))
    return healthy(network)


def two_cards(network):
    """rec is in a second network, in which nobody has streams."""
    network.rec.join("10.51.0.2")
    network.streams()
    return healthy(network)


def many(network):
    """Two hundred streams, half of them of real liblsl."""
    network.is_large = True
    for name, library in (("N", None), ("O", network.tools.library)):
        program = network.foreign(network.amp, name, 100, "1.18" if library is None else "lsl-rs", library)
        expect(program.is_running(), program)
    return healthy(network, [f"N{number}" for number in range(100)] + [f"O{number}" for number in range(100)])


def broadcast_only(network):
    """8: the switch carries no groups, and the default route leads nowhere, then into a tunnel."""
    network.streams()
    network.swallow(["ip daddr 224.0.0.0/4 drop", "ip6 daddr ff00::/8 udp dport 16571 drop"])
    path = network.set_up(network.rec, "[lab]\nSelfHealing = 0\n")
    network.none_there()
    path.unlink()
    network.all_there()
    tunnel(network.rec)
    return healthy(network)


LABS = {
    "8-broadcast-only": broadcast_only,
    "H-plain": plain,
    "H-ipv4": ipv4_only,
    "H-ipv6": ipv6_only,
    "H-wifi": wifi,
    "H-laptop": laptop,
    "H-two-cards": two_cards,
    "H-200-streams": many,
}
