"""A relay that keeps the past is killed, and its disk fills: nothing is lost, or known to be, and its segments are
recordings. Spec: relay §14, tests 10 and 11."""

import os
import random
import signal
import time

import numpy as np

from checks import counted, recorded
from cut import RATE, generate, held, record, streams
from joined import HUB, sites
from stage import IS_LONG, expect, now, run, seconds, until


def kept(stage):
    """The relay beside a source is killed; then a program that sees no stream records all of it."""
    count = 200 if IS_LONG else 4
    hub, dev, _, edge, _ = sites(stage)
    folder = hub.home / "past"
    words = ["--history", folder, "--history-age", "1d"]
    relay = hub.relay(*words)
    generate(dev, "--wait")

    last = 0
    for _ in range(count):
        until("more on disk", lambda: has(hub) > last, 40.0)
        last = has(hub)
        time.sleep(random.uniform(0.0, 2.0))
        relay.end()
        relay = hub.relay(*words)
    until("the last on disk", lambda: has(hub) > last, 40.0)
    last = has(hub)

    edge.configure(f"[lab]\nRelay = {{{HUB.partition(':')[0]}}}\n")
    path = edge.home / "all.xdf"
    recorder = edge.start("record", "-o", path, "--since", "start", "--timeout", "30", "--require", "Amp")
    wanted = last + 2 * RATE

    until("all of it", lambda: (held(recorder, 0.0) or 0) > wanted, 60.0 + last / 20_000)
    recorder.signal(signal.SIGINT)
    recorder.ends(0)
    first, end = counted(recorded(path, synchronize_clocks=False)["Amp"], RATE)
    expect(first == 0 and end >= wanted, f"from {first} to {end}, wanted {wanted}")

    relay.signal(signal.SIGTERM)
    relay.ends(0)
    segments = sorted(folder.glob("*.xdf"))
    # Some were killed before they had anything.
    expect(len(segments) > count / 2, segments)
    numbers = [recorded(segment, synchronize_clocks=False) for segment in segments]
    numbers = [found["Amp"]["time_series"][:, 0] for found in numbers if found]
    numbers = np.concatenate([found for found in numbers if len(found)])
    expect((np.diff(numbers) == 1).all() and numbers[0] == 0, "segments miss samples, or have some twice")
    return f"{count} kills: {end + 1} samples of 64 values recorded, 0 lost, 0 twice; {len(segments)} segments for pyxdf"


def full(stage):
    """Something else fills the disk of 64 MiB on which a relay keeps the past. Who reads live misses nothing and, in
    the long run, gets it as soon as before; who reads the past is told of each sample that found no room."""
    turns = 10 if IS_LONG else 1
    hub, dev, _, edge, _ = sites(stage)
    folder = hub.home / "past"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder)
    rules = hub.home / "relay.toml"
    rules.write_text(f'[history]\ndir = "{folder}"\nmax_size = "1GiB"\nmin_free = "1KiB"\n')
    # Of 4 s: what waits for room is not lost.
    hub.configure("[tuning]\nRetainTotalBytes = 1048576\n")
    hub.relay("--relay-config", rules)
    generate(dev, "--wait")
    edge.configure(f"[lab]\nRelay = {{{HUB.partition(':')[0]}}}\n")
    live = record(edge, "live.xdf")
    reader = edge.peer(ours=True)
    inlet = reader.inlet(reader.finds(["Amp"])["Amp"])

    def history():
        return (hub.status() or {}).get("history") or {}

    def p99(secs):
        """How old the newest sample is that has come, in seconds."""
        ages, end = [], now() + secs
        while now() < end:
            if inlet.pull(timeout=0.0):
                ages.append(dev.now() - seconds(inlet.received[-1][0]))
                inlet.received.clear()
        return np.quantile(ages, 0.99)

    ratios = []
    for _ in range(turns):
        last = has(hub)
        until("more on disk", lambda: has(hub) > last + RATE, 40.0)
        p99(1.0)
        before = p99(8.0)
        ballast = folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            free = os.statvfs(folder)
            file.write(bytes(free.f_bavail * free.f_bsize - (256 << 10)))
        until("full", lambda: history().get("stopped"), 40.0)
        dropped = history()["dropped"]
        ratios.append(p99(8.0) / before)
        until("samples that find no room", lambda: history()["dropped"] > dropped + 4 * RATE, 60.0)
        last = has(hub)
        ballast.unlink()
        until("room", lambda: not history()["stopped"] and has(hub) > last + 2 * RATE, 40.0)
    dropped = history()["dropped"]
    wanted = has(hub)
    first, end = recorded_to(edge, live)
    expect(end >= wanted, f"live to {end}, not {wanted}")

    path = edge.home / "past.xdf"
    recorder = edge.start("record", "-o", path, "--since", "start", "--timeout", "30", "--require", "Amp")
    until("all of it", lambda: (held(recorder, 0.0) or 0) + dropped > wanted, 60.0)
    recorder.signal(signal.SIGINT)
    recorder.ends(0)
    past = recorded(path, synchronize_clocks=False)["Amp"]
    steps = np.diff(past["time_series"][:, 0].astype(int))
    missing = int((steps - 1).sum())
    expect((steps > 0).all() and missing == dropped, f"{missing} samples missing, {dropped} counted")
    ratio = float(np.median(ratios))
    expect(not IS_LONG or ratio <= 1.5, f"p99 of the live reader by {ratio:.2f}: {ratios}")
    return f"full {turns} times: {dropped} samples found no room, told; live 0 lost of {end - first + 1}, p99 x {ratio:.2f}"


def has(hub):
    """Number behind the last sample on disk."""
    told = [entry["history"] for entry in streams(hub, "Amp") if entry["history"]]
    return max((numbers["to"] for numbers in told), default=0)


def recorded_to(machine, recorder):
    """Ends a recording of what is live, which misses nothing. First number and last."""
    since = now()
    until("live", lambda: (held(recorder, since) or 0) > 0, 40.0)
    recorder.signal(signal.SIGINT)
    recorder.ends(0)
    return counted(recorded(machine.home / "live.xdf", synchronize_clocks=False)["Amp"], RATE)
