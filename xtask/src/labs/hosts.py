"""Machines that are found by half or not at all: filters at the other end, tunnels, networks that lose packets."""

import os
from pathlib import Path

from broken import FILTER, tunnel
from network import STREAMS, expect, now, ports_of, run, until

AMP = "10.50.0.1"


def filter_there(network):
    """2: amp lets in what belongs to flows that it began."""
    network.streams()
    network.amp.nft(FILTER)
    network.none_there()
    found = network.diagnosed(network.rec, "peer.fw", AMP)
    expect(found["remedies"][0]["where"] == "there", found)
    network.type_in(network.amp, network.diagnosed(network.amp, "fw.in"))
    network.all_there()


def filter_there_by_hint(network):
    """2: the same, and what is printed at rec is typed at amp."""
    network.streams()
    network.amp.nft(FILTER)
    network.none_there()
    network.type_in(network.amp, network.diagnosed(network.rec, "peer.fw", AMP))
    network.all_there()


def no_udp_from_there(network):
    """3: amp sends no UDP, as with a filter of Windows for what goes out."""
    network.without_ipv6()
    network.streams()
    network.amp.nft(
        "table inet filter { chain output { type filter hook output priority 0; policy accept; "
        'oifname "e0" meta l4proto udp drop; }; }'
    )
    network.none_there()
    found = network.diagnosed(network.rec, "peer.fw-udp", AMP)
    here = [remedy for remedy in found["remedies"] if remedy["where"] == "here"]
    network.type_in(network.rec, {"remedies": here})
    network.all_there()
    network.diagnosed(network.amp, "fw.out")


def one_program(network):
    """6: a rule at amp is about one of its programs, by its control group."""
    network.without_ipv6()
    network.streams(names=("Ours", "New"))
    with ControlGroup(f"lab-{os.getpid()}") as group:
        enter = network.amp.enter
        network.amp.enter = [*enter, *group.enter]
        network.streams(names=("Old",))
        network.amp.enter = enter
        # The port that it shares with others is open.
        ports = [port for port in ports_of(network.senders[-1]) if 16571 < port <= 16603]
        expect(ports, network.senders[-1])
        network.amp.nft(
            "table inet filter { chain input { type filter hook input priority 0; policy accept; "
            f"meta l4proto {{ tcp, udp }} th dport 16572-16603 {group.match(ports)} drop; }}; }}"
        )
        network.diagnosed(network.rec, "fw.program", AMP)
        # Which rule it is says the machine.
        run(*network.amp.enter, "nft", "flush", "chain", "inet", "filter", "input")
        network.all_there()
        network.senders.pop().end()
    return group.numbers


class ControlGroup:
    """What rules call a program by. Without the rights of root its ports stand for it."""

    def __init__(self, name):
        self.name = name
        self.folder = Path("/sys/fs/cgroup") / name
        self.enter = []
        self.numbers = "by ports"

    def __enter__(self):
        try:
            run("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
            self.folder.mkdir()
        except (AssertionError, OSError):
            return self
        self.enter = ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]
        self.numbers = "by control group"
        return self

    def match(self, ports):
        if self.enter:
            return f'socket cgroupv2 level 1 "{self.name}"'
        return f"th dport {{ {', '.join(map(str, ports))} }}"

    def __exit__(self, *_):
        if self.enter:
            self.folder.rmdir()


def apart(network):
    """9: the switch keeps its machines apart, but for the gateway."""
    gateway = network.host("gateway", "10.50.0.254")
    network.host("third", "10.50.0.3")
    network.streams()
    for machine in (network.amp, network.rec):
        machine.ip("route", "add", "default", "via", "10.50.0.254")
    # It becomes a neighbour.
    network.rec.reaches("10.50.0.3")
    ports = network.isolate(but=gateway)
    for machine in (network.amp, network.rec):
        machine.ip("neigh", "flush", "all")
    network.none_there()
    found = network.diagnosed(network.rec, "net.isolation", AMP)
    expect(not found["certain"], found)
    for port in ports:
        run("ip", "link", "set", port, "type", "bridge_slave", "isolated", "off")
    network.all_there()


def into_the_tunnel(network):
    """10: rules of a VPN send all that has an address into its tunnel; connections take the network all the same."""
    network.without_ipv6()
    network.streams()
    tunnel(network.rec)
    network.rec.ip("route", "add", "default", "dev", "tun0", "table", "51820")
    network.rec.ip("rule", "add", "pref", "100", "lookup", "51820")
    network.all_there()
    peer = network.rec.peer(ours=True)
    for name, info in peer.finds(STREAMS).items():
        inlet, began = peer.inlet(info), now()
        peer.reply(inlet.ask_clock())
        expect(now() - began < 5.0, f"the clock of {name} took {now() - began:.1f} s")
    found = network.diagnosed(network.rec, "route.vpn", status=0)
    expect(found["level"] == "risk", found)
    network.set_up(network.rec, "[lab]\nSelfHealing = 0\n")
    network.rec.run("recv", "Ours", "--count", "1", "--timeout", "3", status=3)
    found = network.diagnosed(network.rec, "route.vpn")
    expect(found["level"] == "fault", found)
    network.type_in(network.rec, found)
    network.all_there()


def short_packets(network):
    """11: packets over 1,100 bytes vanish."""
    network.without_ipv6()
    network.streams(channels="512", how=["wide"])
    network.swallow([f"ip protocol {protocol} ip length > 1100 drop" for protocol in ("tcp", "udp")])
    found = network.diagnosed(network.rec, "path.mtu")
    network.type_in(network.rec, found)
    network.all_there()


def beyond_the_range(network):
    """12: forty streams of liblsl, of which sixteen have ports in the range that is open."""
    network.without_ipv6()
    names = network.forty()
    opened = "udp dport 16571-16603 accept; tcp dport 16572-16603 accept; }; }"
    network.amp.nft(FILTER.replace("}; }", opened))
    found = network.diagnosed(network.rec, "port.beyond")
    network.type_in(network.amp, found)
    network.senders.pop().end()
    network.forty()
    network.all_there(names, reads=40)


def no_tcp_to_there(network):
    """13: amp lets no connection in."""
    network.without_ipv6()
    network.streams()
    network.amp.nft(INPUT.replace("RULE", "tcp dport 16572-16603 drop;"))
    network.type_in(network.amp, network.diagnosed(network.rec, "peer.fw-tcp"))
    network.all_there()


def no_clock_from_there(network):
    """13: amp lets questions in, and no clock probes."""
    network.without_ipv6()
    network.streams()
    network.amp.nft(INPUT.replace("RULE", "udp dport 16572-16603 drop;"))
    found = network.diagnosed(network.rec, "peer.fw-udp")
    expect("clock" in found["text"], found)
    network.type_in(network.amp, found)
    expect(not network.doctor(network.rec, status=0)["findings"])
    network.all_there()


def two_networks(network):
    """16: two networks share one wire."""
    network.without_ipv6()
    network.rec.ip("address", "flush", "dev", "e0")
    network.rec.ip("address", "add", "192.168.7.2/24", "dev", "e0")
    network.rec.ip("route", "replace", "224.0.0.0/4", "dev", "e0")
    network.streams()
    network.cures("net.subnet", AMP)


def behind_its_host(network):
    """17: rec is a container, whose host hides it."""
    network.streams()
    network.router(
        "host", "10.50.0.9", "172.17.0.1",
        nat='chain hide { type nat hook postrouting priority srcnat; oifname "e0" masquerade; };',
    )  # fmt: skip
    network.rec = network.machine("inner", "172.17.0.2", gateway="172.17.0.1")
    network.into_its_home(network.rec)
    network.cures("nat", AMP)


def published(network):
    """17: the streams are in a container, whose host lets LSL's ports in to it."""
    network.router(
        "host", "10.50.0.9", "172.17.0.1",
        nat='chain publish { type nat hook prerouting priority dstnat; '
        'iifname "e0" meta l4proto { tcp, udp } th dport 16572-16603 dnat to 172.17.0.2; };',
    )  # fmt: skip
    inner = network.into_its_home(network.machine("inner", "172.17.0.2", gateway="172.17.0.1"))
    network.streams(inner)
    network.cures("net.multicast", "10.50.0.9")


def switched_off(network):
    """20: amp is off, and others are there."""
    network.host("third", "10.50.0.3")
    network.host("gateway", "10.50.0.254")
    network.rec.ip("route", "add", "default", "via", "10.50.0.254")
    network.streams()
    network.amp.ip("link", "set", "e0", "down")
    # It becomes a neighbour.
    network.rec.reaches("10.50.0.3")
    network.none_there()
    network.diagnosed(network.rec, "peer.off", AMP)
    network.amp.ip("link", "set", "e0", "up")
    network.all_there()


def idle(network):
    """20: amp is up, and offers nothing."""
    network.none_there()
    network.diagnosed(network.rec, "peer.idle", AMP)
    network.streams()
    network.all_there()


def loses(network):
    """24: one packet of ten is lost, each way."""
    network.streams()
    network.swallow(["numgen random mod 100 < 10 drop"])
    network.diagnosed(network.rec, "path.loss", status=0)
    network.all_there()


def too_full(network):
    """24: a stream takes more than the network has."""
    network.without_ipv6()
    network.streams()
    flood = network.amp.start("gen", "--name", "Flood", "--rate", "5000", "--channels", "125")
    until("flood", lambda: "Ctrl-C" in flood.stderr() or not flood.is_running())
    reader = network.rec.start("recv", "Flood", "--count", "100000000")
    until("samples", lambda: reader.lines)
    run(*network.amp.enter, "tc", "qdisc", "add", "dev", "e0", "root", "tbf", "rate", "3mbit", "burst", "20kb", "latency", "400ms")
    network.diagnosed(network.rec, "path.slow", status=0)
    reader.end()
    flood.end()
    run(*network.amp.enter, "tc", "qdisc", "delete", "dev", "e0", "root")
    network.all_there()


INPUT = "table inet filter { chain input { type filter hook input priority 0; policy accept; RULE }; }"

LABS = {
    "2-filter-there": filter_there,
    "2-filter-there-by-hint": filter_there_by_hint,
    "3-no-udp-from-there": no_udp_from_there,
    "6-one-program": one_program,
    "9-apart": apart,
    "10-into-the-tunnel": into_the_tunnel,
    "11-short-packets": short_packets,
    "12-beyond-the-range": beyond_the_range,
    "13-no-tcp": no_tcp_to_there,
    "13-no-clock": no_clock_from_there,
    "16-two-networks": two_networks,
    "17-behind-its-host": behind_its_host,
    "17-published": published,
    "20-off": switched_off,
    "20-idle": idle,
    "24-loses": loses,
    "24-too-full": too_full,
}
