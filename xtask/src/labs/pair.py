"""27: the doctor at both ends, and the code where nothing connects. Both screens say the same."""

import json
import re

from broken import FILTER, tunnel
from network import expect, now, run, until

# What is fine is said by this headline.
FINE = "Nothing is wrong here."


def pair(network, finding, *, at, channels="1"):
    """`serve` runs at amp, the doctor at rec: both name this, which is to be put right `at` one of them, or at both."""
    network.streams(names=("Ours",), channels=channels)
    served, report = both(network)
    found = [each["id"] for each in report["findings"]]
    expect(found == [finding], f"{found}, not {finding}:", json.dumps(report, indent=1), served)
    text = served.stdout()
    said = re.findall(r"^(?:FAULT|risk ) (\S+)", text, re.M)
    expect(said == [finding], f"{said}, not {finding}, at amp:", text)
    places = {remedy["where"] for remedy in report["findings"][0]["remedies"]}
    expect(places == {"there" if at == "amp" else "here"}, f"to be typed at {at}:", report["findings"])
    marks = ["   there" in text, "   here" in text]
    expect(marks == [at == "rec", at != "rec"], f"to be typed at {at}:", text)
    return report


def serve(machine):
    served = machine.start("doctor", "serve")
    until("serve", lambda: "Waiting" in served.stderr() or not served.is_running())
    return served


def both(network, *words):
    """What `serve` at amp and the doctor at rec say of each other; rec's looks for the stream that is named."""
    served = serve(network.amp)
    start = now()
    program = network.rec.start("doctor", "--json", "10.50.0.1", *words)
    program.wait()
    took = now() - start
    served.wait()
    expect(took < 30.0, f"{took:.1f} s:", program)
    network.numbers = f"pair {took:.1f} s"
    report = json.loads(program.stdout())
    expect(report.get("pair"), "no pair:", program, served)
    return served, report


def healthy(network):
    """Nothing is wrong, and outlets that the doctor asks go on."""
    network.streams()
    reader = network.rec.start("recv", "Old", "--duration", "25")
    other = network.rec.start("recv", "New", "--duration", "25")
    until("readers", lambda: reader.lines and other.lines)
    served, report = both(network, "New")
    expect(report["healthy"], json.dumps(report, indent=1))
    expect(FINE in served.stdout(), served)
    # Asks 16569, and then each port of the range: nobody serves there.
    network.rec.run("doctor", "10.50.0.1")
    for program in (reader, other):
        before = len(program.lines)
        until("samples", lambda: len(program.lines) > before + 50)
        expect(program.is_running(), program)
    network.all_there()
    return network.numbers


def required(network):
    """25: nothing is said in plain text, and both trust each other as is printed, each for its direction alone."""
    for machine in (network.amp, network.rec):
        machine.key('policy = "required"')
    network.streams(names=("Ours",))
    served = serve(network.amp)
    for place, typing, role in (("here", network.rec, "outlet"), ("there", network.amp, "inlet")):
        program = network.rec.start("doctor", "10.50.0.1")
        program.wait()
        key = re.search(rf"(?:run {place}|{place} run): lsl trust add \S+ (\S+)", program.stderr())
        expect(key, program)
        typing.run("trust", "add", "other", key.group(1), "--role", role)
    expect("no pair with 10.50.0.2" in served.stderr(), served)
    served.end()
    served, report = both(network)
    expect(report["healthy"] and any("encrypted" in line for line in report["pair"]), json.dumps(report, indent=1))
    expect(FINE in served.stdout() and "encrypted" in served.stdout(), served)
    return network.numbers


def broken(rules_of, finding, machine, **how):
    def play(network):
        rules_of(network)
        pair(network, finding, at=machine, **how)
        return network.numbers

    return play


def code(network, prepare, expected):
    """Nothing connects: Enter in `serve` prints a code, by which the other side is certain of what is `expected`."""
    network.streams(names=("Ours",))
    prepare(network)
    for serving, asking, address in ((network.amp, network.rec, "10.50.0.1"), (network.rec, network.amp, "10.50.0.2")):
        if asking.name not in expected:
            continue
        served = serve(serving)
        # What is sent now may be heard, and is then told by the code.
        first = asking.start("doctor", address)
        first.wait()
        expect("lsl doctor serve" in first.stderr() or "FAULT" in first.stdout(), first)
        served.process.stdin.write("\n")
        served.process.stdin.flush()
        until("code", lambda: "Code:" in served.stdout())
        code = re.search(r"Code: (\S+)", served.stdout()).group(1)
        program = asking.run("doctor", "--json", address, "--code", code, status=1)
        report = json.loads(program.stdout())
        found = [(each["id"], each["certain"]) for each in report["findings"]]
        finding = expected[asking.name]
        expect(found == [(finding, True)], f"{found}, not {finding}, at {asking.name}:", json.dumps(report, indent=1))
        served.end()


def isolation(network):
    """9: the access point keeps clients apart; each reaches the gateway."""

    def prepare(network):
        for port in json.loads(run("ip", "-json", "link", "show", "master", network.switch)):
            run("bridge", "link", "set", "dev", port["ifname"], "isolated", "on")
        network.machine("gateway", "10.50.0.254")
        for machine in (network.amp, network.rec):
            machine.ip("route", "add", "default", "via", "10.50.0.254")

    code(network, prepare, {"amp": "net.isolation", "rec": "net.isolation"})


def closed(network):
    """2: amp lets in nothing that it did not ask for. It could dial, and nobody has it do so."""
    code(network, lambda network: network.amp.nft(FILTER), {"rec": "peer.fw"})


def kill_switch(network):
    """5: rec may send into its tunnel alone."""

    def prepare(network):
        tunnel(network.rec)
        network.rec.nft(
            "table inet filter { chain output { type filter hook output priority 0; policy drop; "
            'oifname { "lo", "tun0" } accept; meta l4proto ipv6-icmp accept; }; }'
        )

    code(network, prepare, {"amp": "peer.fw", "rec": "fw.out"})


def dials_out(network):
    """Nobody can dial amp, which dials."""
    network.streams(names=("Ours",))
    network.amp.nft(FILTER)
    waiting = serve(network.rec)
    dialling = network.amp.start("doctor", "serve", "10.50.0.2")
    for program, place in ((waiting, "there"), (dialling, "here")):
        program.wait()
        text = program.stdout()
        expect(re.findall(r"^FAULT (\S+)", text, re.M) == ["fw.in"] and f"   {place}" in text, text)


def no_groups_out(machine):
    machine.nft(
        "table inet filter { chain output { type filter hook output priority 0; policy accept; "
        "ip daddr { 224.0.0.0/4, 255.255.255.255, 10.50.0.255 } drop; ip6 daddr ff00::/8 udp dport 16571 drop; "
        "ip6 daddr ff02::1 drop; }; }"
    )


def no_udp_out(machine):
    machine.nft(
        "table inet filter { chain output { type filter hook output priority 0; policy accept; "
        'oifname "lo" accept; meta l4proto udp drop; }; }'
    )


def short_packets(network):
    """As lab 11. Packets are as long as they are on a wire."""
    network.without_ipv6()
    for machine in (network.amp, network.rec):
        machine.ip("link", "set", "e0", "gso_max_segs", "1")
    network.swallow([f"ip protocol {protocol} ip length > 1100 drop" for protocol in ("tcp", "udp")])


# As lab 1, but the doctor's port is open: what a user opens first.
OPEN = FILTER.replace("meta l4proto", "tcp dport 16569 accept; meta l4proto")

LABS = {
    "27-pair-healthy": healthy,
    "27-pair-1": broken(lambda network: network.rec.nft(FILTER), "fw.in", "rec"),
    "27-pair-2": broken(lambda network: network.amp.nft(OPEN), "fw.in", "amp"),
    "27-pair-3": broken(lambda network: no_udp_out(network.amp), "fw.out", "amp"),
    "27-pair-4": broken(lambda network: no_groups_out(network.rec), "fw.out", "rec"),
    "27-pair-dials-out": dials_out,
    "27-pair-7": broken(lambda network: network.swallow_groups(), "net.multicast", "both"),
    "27-pair-11": broken(short_packets, "path.mtu", "rec", channels="512"),
    "27-pair-required": required,
    "27-code-2": closed,
    "27-code-5": kill_switch,
    "27-code-9": isolation,
}
