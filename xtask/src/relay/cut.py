"""Relays and links that come and go."""

import json
import random
import re
import signal
import threading
import time

from checks import counted, exchange, flow, recorded
from joined import HUB, PLAIN, sites
from stage import IS_LONG, PORT, expect, now, run, until

RATE = 1000


def kills(stage):
    """Our library on both ends: while samples flow, connections are reset, the network is silent, and relays
    are killed."""
    count, seconds = (200, 600.0) if IS_LONG else (5, 10.0)
    hub, dev, router, edge, lab = sites(stage)
    far = hub.relay()
    near = edge.relay("--connect", HUB)
    generate(dev, "--wait")
    # One by the port of the relay beside it, one by what that offers again.
    edge.configure("[lab]\nRelay = {127.0.0.1}\n")
    recorders = [(machine.home / "kills.xdf", record(machine, "kills.xdf")) for machine in (edge, lab)]
    until("flow", lambda: flows(edge))
    began = now()
    done = dict.fromkeys(["reset", "silence", "kill of the far relay", "kill of the near relay"], 0)
    told = []
    for moment in sorted(random.uniform(0.0, seconds) for _ in range(count)):
        time.sleep(max(0.0, began + moment - now()))
        how = random.choice(list(done))
        done[how] += 1
        if how == "reset":
            run(*edge.enter, "ss", "-K", "dst", "10.1.0.1", "dport", "=", PORT)
        elif how == "silence":
            router.nft("table ip cut { chain pass { type filter hook forward priority -1; policy drop; }; }")
            time.sleep(0.5)
            router.nft("delete table ip cut")
        elif "far" in how:
            told += streams(hub, "Amp")
            far.end()
            far = hub.relay()
        else:
            told += streams(edge, "Amp")
            near.end()
            near = edge.relay("--connect", HUB)
    told += streams(hub, "Amp") + streams(edge, "Amp")
    count = 0
    for path, recorder in recorders:
        expect(recorder.is_running(), recorder)
        cut = now()
        until("status", lambda: held(recorder, cut) is not None)
        before = held(recorder, cut)
        until("flow after the last cut", lambda: held(recorder, cut) > before + 2 * RATE)
        came = max(entry["next"] for entry in streams(edge, "Amp"))
        recorder.signal(signal.SIGINT)
        recorder.ends(0)
        first, last = counted(recorded(path, synchronize_clocks=False)["Amp"], RATE)
        expect(last > came - RATE, f"{path} ends with {last}, though {came} was here")
        count += last - first + 1
    lost = [sum(entry[key] for entry in told) for key in ("lost_exact", "lost_unknown")]
    generations = {entry["gen"] for entry in told} - {None}
    expect(lost == [0, 0] and len(generations) == 1, f"lost {lost}, generations {generations}")
    done = ", ".join(f"{times} x {how}" for how, times in done.items())
    return f"{done}: {count} samples of 64 values, lost_exact and lost_unknown 0, 0 twice, 1 generation"


def sources(stage):
    """The source is killed, too: each one that follows comes from its first sample to where it was killed, without a
    gap or a copy, and what the kill cost is told as a loss of unknown size."""
    count, seconds = (200, 600.0) if IS_LONG else (5, 8.0)
    hub, dev, _, edge, _ = sites(stage)
    far = hub.relay()
    near = edge.relay("--connect", HUB)
    source = generate(dev, channels=2)
    edge.configure("[lab]\nRelay = {127.0.0.1}\n")
    receiver = edge.start("recv", "Amp", "--output", "jsonl", "--timeout", "30", "--history", "all")
    until("flow", lambda: len(receiver.lines) > RATE)
    began, kinds = now(), ("source", "far relay", "near relay", "link")
    done = dict.fromkeys(kinds, 0)
    moments = sorted(random.uniform(0.0, seconds) for _ in range(count))
    for moment, what in zip(moments, ["source", *random.choices(kinds, k=count - 1)]):
        time.sleep(max(0.0, began + moment - now()))
        done[what] += 1
        if what == "source":
            source.end()
            source = generate(dev, channels=2)
        elif what == "far relay":
            far.end()
            far = hub.relay()
        elif what == "near relay":
            near.end()
            near = edge.relay("--connect", HUB)
        else:
            run(*edge.enter, "ss", "-K", "dst", "10.1.0.1", "dport", "=", PORT)
    came = len(receiver.lines)
    until("flow after the last kill", lambda: len(receiver.lines) > came + 2 * RATE)
    receiver.signal(signal.SIGINT)
    receiver.ends(0)
    numbers = [json.loads(line)["v"][0] for _, line in receiver.lines]
    begins = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    assert numbers[0] == 0 and all(numbers[at] == 0 for at in begins), [numbers[at - 1 : at + 1] for at in begins]
    told = receiver.stderr().count("what was lost before is not known")
    assert 0 < len(begins) == told <= done["source"], (begins, told, done)
    return f"{done}: {len(numbers)} samples of {told + 1} sources, each from its first on, {told} losses told, 0 twice"


def record(machine, name):
    """Starts to record stream Amp."""
    words = ["-o", machine.home / name, "--timeout", "30", "--require", "Amp"]
    return machine.start("record", *words)


def held(recorder, since):
    """Samples of the recording, if it has told them since."""
    said = [line["streams"] for at, line in recorder.json_lines()[-1:] if at > since]
    return sum(stream["samples"] for stream in said[0]) if said else None


def generate(machine, *words, channels=64):
    """Numbered samples."""
    words = ["--channels", channels, "--rate", RATE, "--format", "int32", "--pattern", "counter", *words]
    return machine.start("gen", "--name", "Amp", *words)


def streams(machine, name):
    """What the relay of this machine says of streams of this name."""
    status = machine.status() or {"streams": []}
    return [entry for entry in status["streams"] if entry["name"] == name]


def flows(*machines):
    """Whether a second of stream Amp has come to one of these relays."""
    return any(entry["received"] > RATE for machine in machines for entry in streams(machine, "Amp"))


def ring(stage, size):
    """Sites around a ring of links; streams come and go, and no relay knows more or less than the others."""
    changes = 500 if IS_LONG else 10
    gates = [f"10.{site}.0.254" for site in range(1, size + 1)]
    stage.router("router", *gates)
    relays, peers = [], []
    for site, gate in enumerate(gates, 1):
        name, address = f"relay{site}", f"10.{site}.0.1"
        relays.append(stage.machine(name, address, clock=1000 * site, gateway=gate).key(PLAIN))
    for one, other in zip(relays, relays[1:] + relays[:1]):
        stage.trust(one, other)
    for site, relay in enumerate(relays):
        relay.relay("--connect", f"10.{(site + 1) % size + 1}.0.1:{PORT}")
        peers.append(stage.machine(f"dev{site + 1}", f"10.{site + 1}.0.2", clock=500 * site).peer())
    watch = Watch(relays)
    outlets = [peer.outlet(f"first-{site}", "int32") for site, peer in enumerate(peers)]
    for number in range(changes):
        if len(outlets) > size and random.random() < 0.5:
            outlets.pop(random.randrange(size, len(outlets))).close()
        else:
            outlets.append(random.choice(peers).outlet(f"more-{number}"))
        time.sleep(random.uniform(0.0, 0.4))
    names = sorted(outlet.name for outlet in outlets)
    until("agreement of all", lambda: all(relay.knows() == names for relay in relays), 20.0)
    worst = watch.end()
    expect(worst < 2.0, f"a stream was known to some and not to others for {worst:.2f} s")
    found = [peer.finds(names) for peer in peers]
    far = size // 2
    samples = exchange([(outlets[0], peers[far].inlet(found[far][outlets[0].name]))])
    return f"{changes} changes, directories equal within {worst:.2f} s, {samples} samples once"


class Watch(threading.Thread):
    """Looks at the directories of relays: how long a stream is known to some and not to others."""

    def __init__(self, relays):
        super().__init__(daemon=True)
        self.relays = relays
        self.worst = 0.0
        self.is_over = False
        self.start()

    def run(self):
        since = {}
        while not self.is_over:
            known = [set(relay.knows("uid")) for relay in self.relays]
            torn = set.union(*known) - set.intersection(*known)
            since = {uid: since.get(uid, now()) for uid in torn}
            self.worst = max([self.worst, *(now() - at for at in since.values())])
            time.sleep(0.05)

    def end(self):
        self.is_over = True
        self.join()
        return self.worst


def spare(stage):
    """Two relays of one subnet are linked with a third: one offers; when it is killed the other does."""
    hub, dev, _, edge, lab = sites(stage)
    twin = stage.machine("twin", "10.2.0.3", clock=9000, gateway="10.2.0.254").key(PLAIN)
    stage.trust(hub, twin)
    stage.trust(edge, twin)
    hub.relay()
    running = {machine: machine.relay("--connect", HUB) for machine in (edge, twin)}
    ids = {machine.status()["relay"]: machine for machine in running}
    generate(dev)
    outlet = dev.peer().outlet("Marks", "int32")
    # Resolving takes real liblsl five seconds longer now and then.
    reader, watcher = lab.peer(), lab.peer(ours=True)
    names = {"Amp", "Marks"}
    found = reader.finds(names)
    inlet = reader.inlet(found["Marks"])
    flow([(outlet, inlet)])
    path = lab.home / "spare.xdf"
    recorder = lab.start("record", "-o", path, "--timeout", "30", "--require", "Amp")
    until("flow", lambda: flows(*running))

    offering = offered_by(found["Amp"], ids)
    other = next(machine for machine in running if machine is not offering)
    running[offering].end()
    killed = now()

    def offers():
        infos = watcher.call("resolve", predicate="name='Amp'", minimum=1, timeout=0.3)["infos"]
        return [offered_by(info, ids) for info in infos]

    until("other offer", lambda: offers() == [other], 20.0)
    took = now() - killed
    reader.finds(names)
    flow([(outlet, inlet)])
    offering.relay("--connect", HUB)
    until("return", lambda: offering.knows() == sorted(names))
    reader.finds(names)
    recorder.signal(signal.SIGINT)
    recorder.ends(0)
    first, last = counted(recorded(path, synchronize_clocks=False)["Amp"], RATE)
    expect(took < 6.0, f"the other offered after {took:.1f} s")
    return f"offered again after {took:.1f} s, {last - first + 1} samples, 0 lost, 0 twice; liblsl recovered"


def offered_by(info, ids):
    """The machine whose relay offers this: the last in its path."""
    path = re.search(r'<lsl_relay [^>]*path="([^"]*)"', info["xml"])
    expect(path, info["xml"])
    return ids.get(path[1].split()[-1])
