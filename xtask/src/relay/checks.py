"""What is sent in a lab, and whether it came as it was sent."""

import random

import numpy as np
import pyxdf

from stage import expect, now, seconds, until

FORMATS = {"float32": "<f4", "double64": "<f8", "int32": "<i4", "int16": "<i2", "int8": "<i1", "int64": "<i8"}
CHANNELS = 3
DRAW = random.Random(7)


def outlets_of(peer):
    """An outlet of each format."""
    return [peer.outlet(f"{peer.machine.name}-{form}", form, CHANNELS) for form in [*FORMATS, "string"]]


def drawn(form, channels):
    """A random sample, with subnormal numbers and long texts, as hex."""
    if form == "string":
        texts = [DRAW.choice(["", "Ä <&>\n", "x" * DRAW.randrange(20_000)]) for _ in range(channels)]
        return [text.encode().hex() for text in texts]
    kind = np.dtype(FORMATS[form])
    if kind.kind == "f":
        values = [DRAW.gauss(0, 1) * 10.0 ** DRAW.choice([0, 30, -40]) for _ in range(channels)]
    else:
        values = [DRAW.randint(np.iinfo(kind).min, np.iinfo(kind).max) for _ in range(channels)]
    return np.array(values, kind).tobytes().hex()


def push(outlet, count):
    """Pushes random samples of about this moment."""
    start = outlet.peer.machine.now()
    stamps = [start + number * 1e-3 + DRAW.random() * 1e-4 for number in range(count)]
    outlet.push(stamps, [drawn(outlet.form, outlet.channels) for _ in range(count)])


def flow(pairs):
    """Pushes until something has come of each outlet to its inlet."""
    for outlet, _ in pairs:
        outlet.wait_for_reader()
    waiting = list(pairs)
    deadline = now() + 20.0
    while waiting:
        expect(now() < deadline, "nothing came of", *(outlet.name for outlet, _ in waiting))
        for outlet, _ in waiting:
            push(outlet, 1)
        waiting = [(outlet, inlet) for outlet, inlet in waiting if not inlet.pull(timeout=0.02)]


def exchange(pairs, chunks=20, each=10):
    """Pushes into outlets; their inlets get the same bits, from before the first of these chunks to the last.
    How many samples came."""
    flow(pairs)
    first = {outlet: len(outlet.pushed) for outlet, _ in pairs}
    for _ in range(chunks):
        for outlet, _ in pairs:
            push(outlet, each)
    for outlet, inlet in pairs:
        last = outlet.pushed[-1]
        until(f"last sample of {outlet.name}", lambda: inlet.pull() and inlet.received[-1] == last)
        count, pushed = len(inlet.received), len(outlet.pushed)
        expect(count >= pushed - first[outlet], f"{outlet.name}: {count} samples of {pushed} came")
        expect(inlet.received == outlet.pushed[-count:], f"{outlet.name}: not what was pushed")
    return sum(len(inlet.received) for _, inlet in pairs)


def clocks(pairs):
    """Offsets of inlets to the clocks of these machines are right within half their uncertainty."""
    worst = (0.0, 0.0)
    asked = [(machine, inlet, inlet.ask_clock()) for machine, inlet in pairs]
    for machine, inlet, number in asked:
        reply = inlet.peer.reply(number)
        offset, uncertainty = seconds(reply["offset"]), seconds(reply["uncertainty"])
        error = abs(offset - (inlet.peer.machine.clock - machine.clock))
        expect(error <= uncertainty / 2, f"{inlet.name}: clock wrong by {error} s of {uncertainty} s")
        worst = max(worst, (error, uncertainty / 2))
    return f"clock wrong by {worst[0] * 1e6:.0f} of {worst[1] * 1e6:.0f} us"


def recorded(path, **options):
    """Streams of a recording by name."""
    streams, _ = pyxdf.load_xdf(str(path), dejitter_timestamps=False, **options)
    found = {stream["info"]["name"][0]: stream for stream in streams}
    expect(len(found) == len(streams), f"{path}: two streams of one name")
    return found


def counted(stream, rate):
    """The samples of `lsl gen --pattern counter`: none is missing, none there twice, all in their time.
    First number and last."""
    numbers, stamps = stream["time_series"], stream["time_stamps"]
    expect(len(numbers), "no samples")
    steps = np.diff(numbers[:, 0].astype(int))
    wrong = np.flatnonzero(steps != 1)
    expect(not len(wrong), [(int(numbers[at, 0]), int(steps[at])) for at in wrong[:10]], "jumps after")
    expect((numbers == numbers[:, :1]).all(), "channels differ")
    late = np.abs(stamps - stamps[0] - np.arange(len(stamps)) / rate).max()
    expect(late < 1e-7, f"stamps are {late} s off")
    return int(numbers[0, 0]), int(numbers[-1, 0])
