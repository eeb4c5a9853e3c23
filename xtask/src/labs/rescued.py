"""Part A, recovery: what breaks a connection on its way, and how long readers are without samples. Limits are those of a
gate that runs at any load; what was measured is printed."""

import json
import os
import signal
import time

from network import HERE, expect, now, run, until

# In one process; 2,000 by hand.
STREAMS = int(os.environ.get("LSL_LABS_STREAMS", "200"))

LIBRARIES = {"Ours": "lsl-rs", "New": "1.18", "Old": "1.17"}


def reading(network, names=tuple(LIBRARIES), how=()):
    """Numbered streams of amp, one of each library, and who reads them at rec on ours."""
    ours, old = network.tools.library, os.environ["LSL_STAGE_OLDER"]
    libraries = {"Ours": ours, "New": None, "Old": old}
    for name in names:
        program = network.foreign(network.amp, name, 1, LIBRARIES[name], libraries[name], *how)
        expect(program.is_running(), program)
        network.senders.append(program)
    env = network.environment("rec")
    env |= {"PYLSL_LIB": ours, "LSL_STAGE_EXPECT": "lsl-rs"}
    words = [*network.rec.enter, network.tools.pylsl, str(HERE / "reader.py"), *names]
    reader = network.spawn(words, env)
    until("reader", lambda: reader.lines or not reader.is_running())
    expect(reader.is_running(), reader)
    # So long that it is known how they flow.
    time.sleep(3.0)
    return reader


def pauses(reader, since, limit, names=tuple(LIBRARIES), resumes=True):
    """Waits until all flow that did not at `since`; how long they were silent after that, at most `limit`."""

    def flows(name):
        reports = (json.loads(line) for _, line in list(reader.lines))
        return [each for each in reports if each["stream"] == name and each["at"] > since and each["pause"] > 0.4]

    for name in names:
        until(f"samples of {name}", lambda: flows(name) or not reader.is_running())
    expect(reader.is_running(), reader)
    said = []
    # Also of what came with the first ones, or might come twice.
    time.sleep(1.0)
    for name in names:
        [report, *more] = flows(name)
        expect(not more, f"{name} is silent again", reader)
        took = report["at"] - since
        expect(took < limit, f"{name}: {took:.1f} s", reader)
        said.append(f"{name} {took:.2f} s, {report['missing']} missing")
        expect(report["missing"] >= 0, f"{name}: samples came twice", reader)
        if name == "Ours" and resumes:
            expect(report["missing"] == 0, report)
    return "; ".join(said)


def goes_on(reader, since):
    """Waits until all flow again; the longest pause of each since then, which may be too short to be noticed."""
    said = []
    for name in LIBRARIES:

        def reports(after, name=name):
            found = (json.loads(line) for _, line in list(reader.lines))
            return [each for each in found if each["stream"] == name and each["at"] > after]

        until(f"samples of {name}", lambda reports=reports: reports(since + 1.0) or not reader.is_running())
        expect(reader.is_running(), reader)
        longest, missing = (max(each[key] for each in reports(since)) for key in ("pause", "missing"))
        expect(longest < 10.0 and missing >= 0 and not (name == "Ours" and missing), reports(since), reader)
        said.append(f"{name} {longest:.2f} s, {missing} missing")
    return "; ".join(said)


def address_of_sender(network):
    """The host of the outlets gets another address, and the old one is gone."""
    network.without_ipv6()
    reader = reading(network)
    amp = network.amp
    since = now()
    amp.ip("address", "add", "10.50.0.11/24", "dev", "e0")
    amp.ip("address", "delete", "10.50.0.1/24", "dev", "e0")
    # It was the first of its subnet, with which others go.
    amp.ip("address", "replace", "10.50.0.11/24", "dev", "e0")
    amp.ip("route", "replace", "224.0.0.0/4", "dev", "e0")
    return pauses(reader, since, 15.0)


def address_of_reader(network, how=()):
    """The host of the reader gets another address, and the old one is gone."""
    network.without_ipv6()
    reader = reading(network, how=how)
    rec = network.rec
    since = now()
    rec.ip("address", "delete", "10.50.0.2/24", "dev", "e0")
    rec.ip("address", "add", "10.50.0.12/24", "dev", "e0")
    rec.ip("route", "replace", "224.0.0.0/4", "dev", "e0")
    return goes_on(reader, since)


def address_of_irregular(network):
    """The same of streams that may be silent for as long as they like: nobody else would ask for them."""
    return address_of_reader(network, ["irregular"])


def link_down(network):
    """The link of the reader is down for 5 s, and for 8 s: what TCP sends again later is waited for."""
    network.without_ipv6()
    reader = reading(network)
    said = []
    for seconds in (5.0, 8.0):
        network.rec.ip("link", "set", "e0", "down")
        time.sleep(seconds)
        since = now()
        network.rec.ip("link", "set", "e0", "up")
        network.rec.ip("route", "replace", "224.0.0.0/4", "dev", "e0")
        came = pauses(reader, since, 15.0)
        expect(came.count(", 0 missing") == len(LIBRARIES), came)
        said.append(f"{seconds:.0f} s: {came}")
        time.sleep(15.0)
    return "; ".join(said)


def stopped(network):
    """The reader is stopped for 30 s."""
    reader = reading(network)
    reader.signal(signal.SIGSTOP)
    time.sleep(30.0)
    return pauses(reader, reader.signal(signal.SIGCONT), 15.0)


def paused(network):
    """The outlets push nothing for 40 s: no connection more, and no sample lost."""
    reader = reading(network)
    for sender in network.senders:
        sender.signal(signal.SIGUSR1)
    time.sleep(40.0)
    since = now()
    for sender in network.senders:
        sender.signal(signal.SIGUSR1)
    said = pauses(reader, since, 15.0)
    expect("connected again" not in reader.stderr(), reader)
    return said


def restarted(network):
    """The process of some streams among many is killed and started again: all come back, by one search."""
    network.is_large = True
    some, count = STREAMS // 100 or 1, STREAMS

    def many(name, number):
        return network.foreign(network.amp, name, number, "lsl-rs", network.tools.library, "rarely")

    lost = {"Few": many("Few", some), "Many": many("Many", count - some)}
    env = network.environment("rec")
    env |= {"PYLSL_LIB": network.tools.library, "LSL_STAGE_EXPECT": "lsl-rs"}
    words = [*network.rec.enter, network.tools.pylsl, str(HERE / "readers.py"), str(count), *lost]
    reader = network.spawn(words, env)
    network.rec.nft(
        "table inet waves { counter waves {}; chain out { type filter hook output priority 0; policy accept; "
        "ip daddr 239.255.172.215 udp dport 16571 counter name waves; }; }"
    )

    def flowing():
        reports = list(reader.lines)
        return json.loads(reports[-1][1])["flowing"] if reports else 0

    def waves():
        counted = json.loads(run(*network.rec.enter, "nft", "--json", "list", "counters"))
        return sum(each["counter"]["packets"] for each in counted["nftables"] if "counter" in each)

    until("all streams", lambda: flowing() == count or not reader.is_running(), 120.0)
    said = []
    for name, number in (("Few", some), ("Many", count - some)):
        before, began = waves(), now()
        lost[name].process.kill()
        until("silence", lambda: flowing() <= count - number)
        lost[name] = many(name, number)
        since = now()
        until("all streams", lambda: flowing() == count or not reader.is_running(), 60.0)
        took, asked, period = now() - since, waves() - before, now() - began
        expect(reader.is_running(), reader)
        # Up to four queries by name in a wave.
        expect(asked <= (2 + period / 1.25) * (4 if name == "Few" else 1) + 4, f"{asked} queries in {period:.1f} s")
        said.append(f"{number} of {count} after {took:.1f} s, {asked} queries in {period:.1f} s")
    return "; ".join(said)


LABS = {
    "A-restarted": restarted,
    "A-address-of-sender": address_of_sender,
    "A-address-of-reader": address_of_reader,
    "A-address-of-irregular": address_of_irregular,
    "A-link-down": link_down,
    "A-stopped": stopped,
    "A-paused": paused,
}
