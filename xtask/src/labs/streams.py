"""Streams that are found, and with which something is wrong."""

import sys
from pathlib import Path

from network import expect, until

HERE = Path(__file__).resolve().parent


def senders(network, how):
    """The same is wrong with a stream of ours and of each liblsl, beside three in order."""
    network.streams()
    for name in ("BadNew", "BadOld", "BadOurs"):
        program = network.foreign(network.amp, name, 1, *network.library(name.removeprefix("Bad")), how)
        expect(program.is_running(), program)


def risk(network, how, finding, status=0):
    """The doctor names it for the three, and them alone; where they come from, too."""
    senders(network, how)
    for machine, status in ((network.rec, status), (network.amp, status or 3)):
        found = network.diagnosed(machine, finding, status=status)
        expect(found["streams"] == 3, found)


def unix_stamps(network):
    """22: seconds since 1970."""
    risk(network, "unix", "clock.alien")


def fast_stamps(network):
    """22: a clock that is 0.2 % fast, after a minute."""
    risk(network, "fast", "clock.alien")


def other_case(network):
    """22: type=eeg, of a stream with type EEG."""
    network.streams(names=["Old"])
    found = network.diagnosed(network.rec, "query.miss", "type='eeg'")
    network.type_in(network.rec, found)


def stalls(network):
    """23: nothing is pushed."""
    risk(network, "stalls", "stream.silent", status=1)


def drops(network):
    """23: one sample of ten is left out."""
    risk(network, "drops", "stream.gaps")


def half(network):
    """23: half of the announced rate."""
    risk(network, "half", "stream.slow")


def duplicate(network):
    """21: a copied program offers the same stream on a second machine."""
    network.streams()
    network.streams(network.host("amp2", "10.50.0.3"), ["New"])
    network.diagnosed(network.rec, "stream.duplicate", status=0)


def cloned(network):
    """21: a machine was cloned while its program ran."""
    network.streams(names=["New"])
    other = network.host("amp2", "10.50.0.3")
    # Something has to answer at its ports, too.
    network.streams(other, ["Old"])
    clone = network.spawn([*other.enter, sys.executable, str(HERE / "clone.py"), "10.50.0.1"], network.environment("amp2"))
    until("clone", lambda: clone.lines or not clone.is_running())
    network.diagnosed(network.rec, "stream.cloned", status=0)


def no_trust(network):
    """25: both machines have keys, and neither knows that of the other."""
    network.amp.key('policy = "required"')
    network.rec.key('policy = "migrate"\nmigrate_until = "2099-12-31"')
    network.streams(names=["Ours"])
    here = network.diagnosed(network.rec, "trust.here")
    # Whoever types it compares the fingerprint, and answers yes.
    network.type_in(network.rec, here, " --yes")
    there = network.diagnosed(network.rec, "trust.there")
    expect(there["remedies"][0]["where"] == "there", there)
    network.type_in(network.amp, there)
    network.all_there(["Ours"])
    network.doctor(network.rec, status=0)


def no_key(network):
    """25: amp encrypts, and rec never heard of it."""
    network.amp.key('policy = "required"')
    network.streams(names=["Ours"])
    network.type_in(network.rec, network.diagnosed(network.rec, "trust.key"))


def plaintext(network):
    """25: rec reads nothing but what is encrypted."""
    network.rec.key('policy = "required"')
    network.streams()
    found = network.diagnosed(network.rec, "trust.plaintext")
    expect(found["streams"] == 3, found)


def broken_keys(network):
    """25: the configuration of encryption cannot be read."""
    network.streams()
    network.rec.key("policy = 7")
    network.diagnosed(network.rec, "cfg.secure")


def relay(network):
    """28: a relay is to be asked: this machine has no key; nobody is there; neither trusts the other."""
    network.set_up(network.rec, "[lab]\nRelay = {10.50.0.1}\n")
    network.type_in(network.rec, network.diagnosed(network.rec, "relay.trust"))
    network.amp.key('policy = "required"')
    network.diagnosed(network.rec, "relay.off")
    network.amp.relay()
    network.diagnosed(network.rec, "relay.trust")
    network.trust(network.amp, network.rec)
    network.streams(names=["Ours"])
    until("the relay's knowledge", lambda: network.amp.knows() == ["Ours"])
    report = network.doctor(network.rec, status=0)
    expect([each["streams"] for each in report["observations"]["relays"]] == [1], report["observations"]["relays"])


def overrun(network):
    """26: a resolver of liblsl 1.18 gets more answers than its buffer holds."""
    network.is_large = True
    program = network.foreign(network.amp, "O", 300, *network.library("Old"), "rarely")
    expect(program.is_running(), program)
    env = network.environment("rec") | {"LSL_STAGE_EXPECT": network.library("New")[0]}
    resolver = network.spawn([*network.rec.enter, network.tools.pylsl, "-c", RESOLVER], env)
    until("resolver", lambda: resolver.lines or not resolver.is_running())
    found = network.diagnosed(network.rec, "udp.overrun")
    expect(f"(pid {resolver.process.pid})" in found["text"], found, resolver)
    return found["seen"][0]


# Asks for all streams until it is ended.
RESOLVER = """
import os
import time
import pylsl
assert os.environ["LSL_STAGE_EXPECT"] in pylsl.library_info(), pylsl.library_info()
resolver = pylsl.ContinuousResolver()
print("ready", flush=True)
while True:
    time.sleep(1.0)
    resolver.results()
"""

LABS = {
    "21-duplicate": duplicate,
    "21-cloned": cloned,
    "22-unix-stamps": unix_stamps,
    "22-fast-stamps": fast_stamps,
    "22-other-case": other_case,
    "23-stalls": stalls,
    "23-drops": drops,
    "23-half": half,
    "25-no-trust": no_trust,
    "25-no-key": no_key,
    "25-plaintext": plaintext,
    "25-broken": broken_keys,
    "26-overrun": overrun,
    "28-relay": relay,
}
