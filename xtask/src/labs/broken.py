"""Networks and machines that are broken in one way each."""

import sys

from network import expect, until


def input_filter(network):
    """1: rec lets in what belongs to flows that it began; answers to a group belong to none."""
    network.streams()
    network.rec.nft(FILTER)
    said = network.none_there()
    expect("FAULT fw.in" in said and "nft insert rule inet filter input" in said, said)
    network.cures("fw.in")


def output_filter(network):
    """4: rec may not send to groups and broadcast."""
    network.streams()
    network.rec.nft(
        "table inet filter { chain output { type filter hook output priority 0; policy accept; "
        "ip daddr { 224.0.0.0/4, 255.255.255.255, 10.50.0.255 } drop; ip6 daddr ff00::/8 udp dport 16571 drop; "
        "ip6 daddr ff02::1 drop; }; }"
    )
    network.cures("fw.out")


def kill_switch(network):
    """5: rec may send into its tunnel alone."""
    network.streams()
    tunnel(network.rec)
    network.rec.nft(
        "table inet filter { chain output { type filter hook output priority 0; policy drop; "
        'oifname { "lo", "tun0" } accept; meta l4proto ipv6-icmp accept; }; }'
    )
    network.none_there()
    found = network.diagnosed(network.rec, "fw.out")
    expect("VPN" in found["text"], found)
    network.type_in(network.rec, found)
    network.all_there()


def no_groups(network):
    """7: the switch carries no groups and no broadcast."""
    network.streams()
    network.swallow_groups()
    network.cures("net.multicast", "10.50.0.1")


def other_session(network):
    """14: amp is in another session."""
    network.set_up(network.amp, "[lab]\nSessionID = lab2\n")
    network.streams()
    network.cures("session.other")


def port_taken(network):
    """15: a program at amp keeps UDP 16571 for itself."""
    words = [*network.amp.enter, sys.executable, "-c", HOLD]
    holder = network.spawn(words, network.environment("amp"))
    until("holder", lambda: holder.lines)
    network.streams()
    network.none_there()
    found = network.diagnosed(network.amp, "port.taken")
    expect(str(holder.process.pid) in found["text"], found)
    network.type_in(network.amp, found)
    holder.wait()
    # As it says.
    network.again()
    network.all_there()


def misnamed(network):
    """18: an editor called the file lsl_api.cfg.txt."""
    network.streams()
    network.swallow_groups()
    network.set_up(network.rec, "[lab]\nKnownPeers = {10.50.0.1}\n", "lsl_api/lsl_api.cfg.txt")
    network.cures("cfg.misnamed")


def rejected(network):
    """18: a mistake for which liblsl reads nothing of the file."""
    network.streams()
    network.swallow_groups()
    text = "# peers\n[lab]\nKnownPeers = {10.50.0.1}\n"
    path = network.set_up(network.rec, text)
    network.none_there()
    found = network.diagnosed(network.rec, "cfg.rejected")
    expect("line 1" in found["text"], found)
    # Told in words: which line is meant knows its author alone.
    path.write_text(text.replace("#", ";"))
    network.all_there()


def hidden(network):
    """18: a file in the working directory is read in place of that in the home."""
    network.streams()
    network.swallow_groups()
    network.set_up(network.rec, "[lab]\nKnownPeers = {10.50.0.1}\n")
    network.set_up(network.rec, "[log]\nlevel = 1\n", "work/lsl_api.cfg")
    network.cures("cfg.hidden")


def scope(network):
    """19: questions stay on the machine."""
    network.streams()
    network.set_up(network.rec, "[multicast]\nResolveScope = machine\n")
    network.cures("cfg.limits")


def gone_interface(network):
    """19: the interface that is to be used is no longer there."""
    network.without_ipv6()
    network.streams()
    network.set_up(network.rec, "; of the old card\n[multicast]\nInterfaces = {10.99.0.7}\n")
    network.cures("cfg.limits")


def other_ports(network):
    """19: rec has ports of its own."""
    network.streams()
    network.set_up(network.rec, "[ports]\nMulticastPort = 17571\nBasePort = 17572\n")
    network.cures("cfg.ports")


def tunnel(machine):
    """A VPN that swallows what goes into it."""
    machine.ip("link", "add", "tun0", "type", "veth", "peer", "name", "swallow")
    machine.ip("address", "add", "10.8.0.2/24", "dev", "tun0")
    for end in ("tun0", "swallow"):
        machine.ip("link", "set", end, "up")
    machine.ip("route", "replace", "default", "dev", "tun0")


FILTER = (
    "table inet filter { chain input { type filter hook input priority 0; policy drop; "
    'iifname "lo" accept; ct state established,related accept; meta l4proto { icmp, ipv6-icmp } accept; }; }'
)

HOLD = """
import signal, socket
held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
held.bind(("", 16571))
held6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
held6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
held6.bind(("::", 16571))
print("held", flush=True)
signal.pause()
"""

LABS = {
    "1-input-filter": input_filter,
    "4-output-filter": output_filter,
    "5-kill-switch": kill_switch,
    "7-no-groups": no_groups,
    "14-other-session": other_session,
    "15-port-taken": port_taken,
    "18-misnamed": misnamed,
    "18-rejected": rejected,
    "18-hidden": hidden,
    "19-scope": scope,
    "19-gone-interface": gone_interface,
    "19-other-ports": other_ports,
}
