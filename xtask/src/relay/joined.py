"""Networks that are joined: by a relay's port, by a link, and by a machine in both."""

import json
import signal
import time

import numpy as np

from checks import clocks, counted, exchange, outlets_of, recorded
from stage import PORT, expect, now

# Devices and programs of these labs do not encrypt; the port of a relay does, whatever this says.
PLAIN = 'policy = "off"'

# What a router lets through to the relay of site A.
ONLY_THE_PORT = (
    "policy drop; ct state established accept;"
    f" ip daddr 10.1.0.1 tcp dport {PORT} counter accept; reject;"
)
MASQUERADE = 'chain nat { type nat hook postrouting priority 100; oifname "e0" masquerade; };'

HUB = f"10.1.0.1:{PORT}"


def laptop(stage):
    """A machine that sees no multicast reads all that a relay sees, encrypted, through one port."""
    hub = stage.machine("hub", "10.1.0.1", clock=1000, gateway="10.1.0.254")
    hub.key('policy = "migrate"\nmigrate_until = "2099-12-31"')
    dev = stage.machine("dev", "10.1.0.2", clock=3000)
    amp = stage.machine("amp", "10.1.0.3", clock=500).key('policy = "required"')
    stage.router("router", "10.1.0.254", "10.9.0.254", rules=ONLY_THE_PORT)
    far = stage.machine("far", "10.9.0.2", clock=7000, gateway="10.9.0.254").key('policy = "required"')
    stage.trust(hub, far)
    stage.trust(hub, amp, role="both")
    hub.relay()
    outlets = outlets_of(dev.peer())
    words = ["gen", "--name", "Amp", "--rate", "500", "--format", "int32", "--pattern", "counter"]
    amp.start(*words)
    names = {"Amp", *(outlet.name for outlet in outlets)}
    expect(not far.peer().streams(1.0), "multicast is seen")

    far.configure("[lab]\nRelay = {10.1.0.1}\n")
    reader = far.peer(ours=True)
    found = reader.finds(names)
    listed = json.loads(far.run("list", "--json").stdout())
    expect(sorted(entry["name"] for entry in listed) == sorted(names), listed)
    pairs = [(outlet, reader.inlet(found[outlet.name])) for outlet in outlets]
    samples = exchange(pairs)
    right = clocks([(dev, inlet) for _, inlet in pairs[:2]] + [(amp, reader.inlet(found["Amp"]))])
    told = far.run("recv", "Amp", "-o", "jsonl", "--count", "300", "--timeout", "20").json_lines()
    counts = [line["v"][0] for _, line in told]
    expect(counts == list(range(counts[0], counts[0] + 300)), counts)
    path = far.home / "far.xdf"
    far.run("record", "-o", path, "--duration", "2", "--timeout", "20")
    streams = recorded(path, synchronize_clocks=False)
    expect(streams.keys() == names, streams.keys())
    first, last = counted(streams["Amp"], 500)
    status = json.loads(hub.run("relay", "status", "--json").stdout())
    lost = sum(entry["lost_exact"] for entry in status["streams"])
    expect(lost == 0 and last - first > 500, status)
    return f"{len(names)} streams, {samples} samples bit-equal, {right}"


def sites(stage):
    """Site A, and site B, from which only the port of A's relay can be dialled, and which nobody can dial."""
    hub = stage.machine("hub", "10.1.0.1", clock=1000, gateway="10.1.0.254").key(PLAIN)
    dev = stage.machine("dev", "10.1.0.2", clock=3000)
    router = stage.router("router", "10.1.0.254", "10.2.0.254", rules=ONLY_THE_PORT, nat=MASQUERADE)
    edge = stage.machine("edge", "10.2.0.1", clock=7000, gateway="10.2.0.254").key(PLAIN)
    lab = stage.machine("lab", "10.2.0.2", clock=500, gateway="10.2.0.254")
    stage.trust(hub, edge)
    return hub, dev, router, edge, lab


def link(stage):
    """Unmodified programs on real liblsl find and read what is on the other side of a masqueraded link, both
    ways; a recorder there aligns both."""
    hub, dev, router, edge, lab = sites(stage)
    hub.relay()
    edge.relay("--connect", HUB)
    expect(edge.reaches("10.2.0.1") and not hub.reaches("10.2.0.1"), "site B can be dialled")

    peers = dev.peer(), lab.peer()
    outlets = [outlets_of(peer) for peer in peers]
    names = {outlet.name for each in outlets for outlet in each}
    pairs = read_across(peers, outlets, names)
    samples = exchange(pairs)
    right = clocks([(outlet.peer.machine, inlet) for outlet, inlet in pairs])
    for peer in peers:
        peer.finds(names, limit=0.0)
    apart = marks_apart(peers, lab)
    expect(router.packets() == 1, f"{router.packets()} connections through the router")
    return f"{len(names)} streams, {samples} samples bit-equal, {right}, marks {apart * 1e6:.0f} us apart"


def read_across(peers, outlets, names):
    """Each side finds every stream once, and opens those of the other."""
    pairs = []
    for reader, others in zip(peers, reversed(outlets)):
        found = reader.finds(names)
        pairs += [(outlet, reader.inlet(found[outlet.name])) for outlet in others]
    return pairs


def marks_apart(peers, machine):
    """Marks that two sites push at the same moment are recorded here: how far they are apart, in seconds."""
    outlets = [peer.outlet(f"marks-{peer.machine.name}", "int32") for peer in peers]
    path = machine.home / "marks.xdf"
    words = [word for outlet in outlets for word in ("--require", outlet.name)]
    recorder = machine.start("record", "-o", path, "--timeout", "20", *words)
    for outlet in outlets:
        outlet.wait_for_reader()
    for number in range(120):
        moment = now()
        for outlet in outlets:
            outlet.push([moment + outlet.peer.machine.clock], [np.array([number], "<i4").tobytes().hex()])
        time.sleep(0.05)
    recorder.signal(signal.SIGINT)
    recorder.ends(0)
    one, other = (dict(zip(it["time_series"][:, 0], it["time_stamps"])) for it in recorded(path).values())
    both = one.keys() & other.keys()
    expect(len(both) >= 100, f"{len(both)} marks of 120")
    apart = max(abs(one[number] - other[number]) for number in both)
    expect(apart < 5e-3, f"marks of one moment are {apart} s apart")
    return apart


def between(stage):
    """One machine in two subnets offers the streams of each in the other, once."""
    mid = stage.machine("mid", "10.1.0.5", "10.2.0.5", clock=1000).key(PLAIN)
    machines = stage.machine("one", "10.1.0.2", clock=3000), stage.machine("two", "10.2.0.2", clock=500)
    mid.relay("--between", "10.1.0.5,10.2.0.5")
    peers = [machine.peer() for machine in machines]
    outlets = [outlets_of(peer) for peer in peers]
    names = {outlet.name for each in outlets for outlet in each}
    pairs = read_across(peers, outlets, names)
    samples = exchange(pairs)
    right = clocks([(outlet.peer.machine, inlet) for outlet, inlet in pairs])
    for peer in peers:
        peer.finds(names, limit=0.0)
    return f"{len(names)} streams, {samples} samples bit-equal, {right}"
