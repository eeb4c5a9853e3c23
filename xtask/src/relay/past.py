"""A relay that keeps the past is killed: nothing of it is lost, and its segments are recordings. Spec: relay §14,
test 10."""

import random
import signal
import time

import numpy as np

from checks import counted, recorded
from cut import RATE, generate, streams
from joined import HUB, sites
from stage import IS_LONG, expect, until


def kept(stage):
    """The relay beside a source is killed; then a program that sees no stream records all of it."""
    count = 200 if IS_LONG else 4
    hub, dev, _, edge, _ = sites(stage)
    folder = hub.home / "past"
    words = ["--history", folder, "--history-age", "1d"]
    relay = hub.relay(*words)
    generate(dev, "--wait")

    def has():
        """Number behind the last sample on disk."""
        told = [entry["history"] for entry in streams(hub, "Amp") if entry["history"]]
        return max((numbers["to"] for numbers in told), default=0)

    last = 0
    for _ in range(count):
        until("more on disk", lambda: has() > last, 40.0)
        last = has()
        time.sleep(random.uniform(0.0, 2.0))
        relay.end()
        relay = hub.relay(*words)
    until("the last on disk", lambda: has() > last, 40.0)
    last = has()

    edge.configure(f"[lab]\nRelay = {{{HUB.partition(':')[0]}}}\n")
    path = edge.home / "all.xdf"
    recorder = edge.start("record", "-o", path, "--since", "start", "--timeout", "30", "--require", "Amp")
    wanted = last + 2 * RATE

    def held():
        said = [line["streams"] for _, line in recorder.json_lines()[-1:]]
        return sum(stream["samples"] for stream in said[0]) if said else 0

    until("all of it", lambda: held() > wanted, 60.0 + last / 20_000)
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
