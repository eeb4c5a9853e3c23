"""Part A of doctor.md: networks that change while programs run, and what leaves a machine on which nothing does."""

import json
import sys

from network import expect, now, until


def interface_added(network):
    """A machine gets a network after its outlet was started; then who watches gets one."""
    late = network.host("late")
    for machine in (network.rec, late):
        # 224.0.0.1 is joined by the system itself.
        network.set_up(machine, "[ports]\nIPv6 = disable\n[multicast]\nLinkAddresses = {}\n")
    network.streams(names=("Ours",))
    late.start("gen", "--name", "Late", "--rate", "50", "--channels", "1")
    watcher = watch(network.rec)
    until("Ours", lambda: events(watcher, "appeared", "Ours"))
    # Who looks for interfaces every ten seconds has just done so.
    until("second", lambda: 0.5 < now() % 10.0 < 1.5)
    late.join("10.50.0.9")
    took = until_event(watcher, "appeared", "Late")
    expect(took < 3.0, f"{took:.1f} s")
    other = network.host("other", "10.51.0.1")
    generator = other.start("gen", "--name", "Other", "--rate", "50", "--channels", "1")
    until("Other", lambda: "Ctrl-C" in generator.stderr())
    network.rec.join("10.51.0.2")
    then = until_event(watcher, "appeared", "Other")
    expect(then < 3.0, f"{then:.1f} s")
    return f"found {took:.2f} s after its machine has a network, {then:.2f} s after the asker has one"


def wire(network):
    """What a search sends without healing is what 0.1 sent; with it, one datagram more. Who waits sends nothing."""
    network.streams()
    rec = network.rec
    rec.ip("route", "add", "default", "dev", "e0")
    capture = network.spawn([*rec.enter, sys.executable, "-c", CAPTURE], network.environment("rec"))
    until("capture", lambda: capture.lines)
    seen = []
    for value in (0, 1):
        network.set_up(rec, f"[lab]\nSelfHealing = {value}\n")
        before = len(capture.lines)
        rec.run("list", "--timeout", "1")
        sent = [line.split() for _, line in capture.lines[before:]]
        queries = [(to, bytes.fromhex(text)) for kind, to, text in sent if kind == "udp" and to.endswith("/16571")]
        for _, text in queries:
            expect(text.startswith(b"LSL:shortinfo\r\nsession_id='default'\r\n"), text)
            expect(text.count(b"\r\n") == 3 and text.endswith(b"\r\n"), text)
        seen.append([to for to, _ in queries])
        others = [line for line in sent if line[0] == "tcp" or not line[1].endswith("/16571")]
        expect(value or not others, others)
    expect(seen[0] == ASKED, seen[0])
    more = [to for to in seen[1] if to != "10.50.0.255/16571"]
    expect((more, len(seen[1])) == (ASKED, len(ASKED) + 1), seen[1])
    # An outlet that nobody reads.
    rec.start("gen", "--name", "Idle", "--rate", "50", "--channels", "1")
    until("settled", lambda: quiet(capture, 3.0))
    before, began = len(capture.lines), now()
    until("quarter of a minute", lambda: now() > began + 15.0)
    idle = [line for _, line in capture.lines[before:]]
    expect(not idle, idle)
    return f"{len(ASKED)} and {len(seen[1])} datagrams"


def quiet(capture, secs):
    return not capture.lines or now() > capture.lines[-1][0] + secs


def watch(machine):
    return machine.start("list", "--watch", "--json")


def events(watcher, kind, name):
    found = (json.loads(line) for _, line in watcher.lines)
    return [event for event in found if event["event"] == kind and event["stream"]["name"] == name]


def until_event(watcher, kind, name):
    """Seconds until it was told."""
    began = now()
    until(name, lambda: events(watcher, kind, name))
    return now() - began


# Groups, then the broadcast; IPv4 first. As 0.1 had it.
ASKED = [
    f"{to}/16571"
    for to in (
        "224.0.0.1",
        "224.0.0.183",
        "239.255.172.215",
        "255.255.255.255",
        "ff02:113d:6fdd:2c17:a643:ffe2:1bd1:3cd2",
        "ff05:113d:6fdd:2c17:a643:ffe2:1bd1:3cd2",
    )
]

# Prints what leaves by e0: protocol, destination and payload.
CAPTURE = """
import socket
frames = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
frames.bind(("e0", 3))
print("captures", flush=True)
while True:
    packet, (_, kind, direction, *_) = frames.recvfrom(65536)
    if direction != 4:
        continue
    if kind == 0x800:
        start, protocol, to = (packet[0] & 15) * 4, packet[9], socket.inet_ntop(socket.AF_INET, packet[16:20])
    elif kind == 0x86DD:
        start, protocol, to = 40, packet[6], socket.inet_ntop(socket.AF_INET6, packet[24:40])
    else:
        continue
    if protocol in (6, 17):
        port = int.from_bytes(packet[start + 2:start + 4])
        name, header = ("udp", 8) if protocol == 17 else ("tcp", 20)
        print(name, f"{to}/{port}", packet[start + header:].hex() or "00", flush=True)
"""

LABS = {
    "A-interface-added": interface_added,
    "A-wire": wire,
}
