"""Recorders that are killed, stopped or run out of disk, all on the same streams.

Real liblsl receives them, too: what it had at a time was surely sent by then. Samples carry their
numbers, so that what is in a file proves how much is not.
"""

import bisect
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

from judge import footer_is_right, form, load
from lab import Lab, Reader, expect, now, until

KILLS = int(os.environ.get("LSL_STAGE_KILLS", "200"))
STOPS = 10
AT_ONCE = 12
# The part of the killed ones that may meet it before it records.
EARLY = 0.1

# What may be lost: an interval of --sync (1 s) and a chunk (0.5 s); encrypted, a block of age besides.
SYNC_SECS = 1.0
CHUNK_SECS = 0.5
BLOCK = 64 << 10

# Name, format, channels, rate, samples in a push: some 150 kB/s.
STREAMS = [
    ("double64", 32, 250, 5),
    ("int64", 16, 200, 1),
    ("float32", 8, 500, 25),
    ("int32", 4, 400, 1),
    ("int16", 4, 200, 10),
    ("int8", 2, 100, 1),
    ("string", 2, 100, 4),
]
SIZES = {"double64": 8, "int64": 8, "float32": 4, "int32": 4, "int16": 2, "int8": 1, "string": 10}
MARKERS = "k-string-Markers"


class Sent:
    """What was sent, by name, and when it surely had been."""

    def __init__(self, received):
        self.times = {name: times for name, (_, _, times) in received.items()}
        self.places = {
            name: {stamp: place for place, stamp in enumerate(stamps)}
            for name, (stamps, _, _) in received.items()
        }
        self.stamps = {name: stamps for name, (stamps, _, _) in received.items()}

    def by(self, name, at):
        """How many samples had been sent."""
        return bisect.bisect_right(self.times[name], at)


# What a sample takes in the file, at most.
SAMPLE_BYTES = {f"k-{name}": 9 + channels * SIZES[name] for name, channels, _, _ in STREAMS}
SAMPLE_BYTES[MARKERS] = 9 + 2 * SIZES["string"]


def numbers_are_right(stream, name, sent):
    """Samples from first to last without a hole, each with its number and stamp: the range of them."""
    places = [sent.places[name].get(stamp) for stamp in stream["time_stamps"]]
    if not places:
        return 0, 0
    first, end = places[0], places[0] + len(places)
    expect(places == list(range(first, end)), f"{name}: samples are missing or others")
    values = stream["time_series"]
    if name == MARKERS:
        # A generator that is held up leaves numbers out; it never sends one twice.
        marks = [int(sample[0].removeprefix("marker ")) for sample in values]
        expect(marks == sorted(set(marks)), name, marks)
    elif form(stream) == "string":
        expected = [[str(number)] * 2 for number in range(first, end)]
        expect(values == expected, f"{name}: other texts")
    else:
        # Integers keep the low bits of the number.
        expected = np.arange(first, end).astype(values.dtype)
        expect((values == expected[:, None]).all(), f"{name}: other numbers")
    return first, end


def promised(program, at):
    """Samples by name that the recorder said it had by then."""
    counts = {}
    for said_at, line in program.json_lines():
        if said_at <= at:
            counts = {stream["name"]: stream["samples"] for stream in line["streams"]}
    return counts


class Point:
    """One recorder, and how it ends."""

    def __init__(self, lab, number, how, is_encrypted, key, seed):
        self.lab, self.number, self.how, self.is_encrypted = lab, number, how, is_encrypted
        self.identity, self.recipient = key
        self.random = random.Random(f"{seed} {how} {number}")
        self.name = f"{how}-{number}.xdf" + (".age" if is_encrypted else "")

    def run(self):
        words = ["record", "-o", self.name, "--json", "--min-free", "0"]
        words += ["-r", self.recipient] if self.is_encrypted else []
        if self.how == "full":
            return self.fill(words)
        self.program = self.lab.start(*words)
        file = self.lab.folder / self.name
        is_there = file.exists
        # A few also before there is anything in the file.
        if self.how == "stop" or self.random.random() > EARLY:
            is_there = lambda: any(promised(self.program, now()).values())  # noqa: E731
        until("recording", lambda: is_there() or not self.program.is_running())
        time.sleep(self.random.uniform(0.0, 4.0))
        expect(self.program.is_running(), "ended by itself:", self.program)
        if self.how == "kill":
            self.at = self.program.signal(signal.SIGKILL)
            self.program.ends(-signal.SIGKILL)
            return self.repair()
        self.at = self.program.signal(signal.SIGTERM)
        self.program.ends(0, ["Recorded "])
        return self.unlock(file)

    def fill(self, words):
        """Records on a disk of 1 MiB, until after it is full."""
        disk = self.lab.folder / f"disk-{self.number}"
        kept = self.lab.folder / f"kept-{self.number}"
        disk.mkdir()
        # In a mount namespace: the disk goes with the process.
        script = (
            'disk=$1 kept=$2; shift 2; mount -t tmpfs -o size=1m none "$disk" || exit 99; '
            '"$@"; status=$?; cp -a "$disk" "$kept" || exit 98; exit $status'
        )
        prefix = ["unshare", "-m", "sh", "-c", script, "sh", str(disk), str(kept)]
        words[2] = str(disk / self.name)
        self.program = self.lab.start(*words, "--duration", "14", prefix=prefix)
        self.program.ends(4, ["DISK FULL", "No space left", "samples are MISSING"])
        return self.unlock(kept / self.name)

    def repair(self):
        """What `lsl` makes of what is left, in plaintext; None if that is nothing."""
        path = self.lab.folder / self.name
        if self.is_encrypted:
            words = ["xdf", "repair", "-i", self.identity, "-r", self.recipient]
            words += [self.name, "-o", f"fixed-{self.name}"]
        else:
            words = ["xdf", "repair", self.name]
        repair = self.lab.start(*words)
        if repair.wait():
            # Killed before the file had a beginning; then nothing may have been promised, see below.
            said = repair.stderr()
            expect("Traceback" not in said and "panicked" not in said, repair)
            self.unrepaired = said.strip()
            return None
        if not self.is_encrypted:
            self.lab.run("xdf", "check", self.name)
            return path
        path.unlink()
        return self.unlock(self.lab.folder / f"fixed-{self.name}")

    def unlock(self, path):
        if not self.is_encrypted:
            return path
        self.lab.run("unlock", "-i", self.identity, path)
        return path.with_suffix("")


class Verdicts:
    """Sums over points."""

    def __init__(self):
        self.samples = 0
        self.files = 0
        self.empty = []
        self.worst_secs = {False: 0.0, True: 0.0}
        self.worst_bytes = 0

    def judge(self, point, path, sent):
        self.files += 1
        streams = {} if path is None else load(path)
        expect(streams.keys() <= sent.places.keys(), streams.keys())
        ends, counts = {}, {}
        for name, stream in streams.items():
            first, end = (
                self.with_gaps(stream, name, sent)
                if point.how == "full"
                else numbers_are_right(stream, name, sent)
            )
            footer_is_right(stream, name)
            counts[name] = len(stream["time_stamps"])
            ends[name] = end if counts[name] else None
            self.samples += counts[name]
        if path is None:
            self.empty.append(f"{point.name}: {point.unrepaired}")
        if point.how == "kill":
            self.loss(point, ends, counts, sent)
        elif point.how == "stop":
            self.nothing_is_lost(point, ends, sent)
        else:
            self.holes_are_counted(point, counts)
        if path is not None:
            path.unlink()

    def loss(self, point, ends, counts, sent):
        """What was there long enough before the end is in the file, or in the last block of age."""
        before = point.at - SYNC_SECS - CHUNK_SECS
        said = promised(point.program, before)
        lost = 0
        for name in sent.places:
            missing = said.get(name, 0) - counts.get(name, 0)
            if ends.get(name) is not None:
                missing = max(missing, sent.by(name, before) - ends[name])
                # When the first one that is missing was surely sent.
                times = sent.times[name][ends[name] : ends[name] + 1]
                secs = max([point.at - at for at in times], default=0.0)
                if name != MARKERS:
                    worst = self.worst_secs[point.is_encrypted]
                    self.worst_secs[point.is_encrypted] = max(worst, secs)
            if missing > 0:
                expect(point.is_encrypted, f"{point.name}: {missing} samples of {name} are lost")
                lost += missing * SAMPLE_BYTES[name]
        expect(lost <= BLOCK, f"{point.name}: {lost} bytes are lost")
        self.worst_bytes = max(self.worst_bytes, lost)

    @staticmethod
    def nothing_is_lost(point, ends, sent):
        """Every sample from before the signal is in the file."""
        expect(ends.keys() == sent.places.keys(), point.name, ends)
        for name, end in ends.items():
            # There may have been no marker.
            expect(end is not None or name == MARKERS, f"{point.name}: nothing of {name}")
            if end is not None:
                until_then = bisect.bisect_right(sent.stamps[name], point.at)
                expect(end >= until_then, f"{point.name}: {name} ends {until_then - end} early")

    @staticmethod
    def with_gaps(stream, name, sent):
        """Other than a full disk leaves out, the samples are those sent, in order."""
        places = [sent.places[name].get(stamp) for stamp in stream["time_stamps"]]
        expect(None not in places and places == sorted(set(places)), f"{name}: other samples")
        return (places[0], places[-1] + 1) if places else (0, 0)

    @staticmethod
    def holes_are_counted(point, counts):
        """What came and is not in the file is what the recorder says is missing."""
        last = point.program.json_lines()[-1][1]
        came = sum(stream["samples"] for stream in last["streams"])
        missing = came - sum(counts.values())
        expect(last["unwritten_samples"] == missing > 0, point.name, missing, last)


def run(tools, folder, seed):
    with Lab(tools, folder, "survive") as lab:
        key = ("key.txt", lab.run("key", "age", "key.txt").stdout().strip())
        for name, channels, rate, chunk in STREAMS:
            words = ["--format", name, "--channels", channels, "--rate", rate, "--chunk", chunk]
            words += ["--markers"] if name == "string" else []
            lab.generate(f"k-{name}", "--pattern", "counter", *words)
        # The markers begin with their stream.
        names = [MARKERS, *(f"k-{name}" for name, *_ in STREAMS)]
        reader = Reader(lab, names, "--stamps")
        plan = [("kill", number, number % 2 == 1) for number in range(KILLS)]
        plan += [("stop", number, number % 2 == 1) for number in range(STOPS)]
        plan += [("full", number, number % 2 == 1) for number in range(2)]
        # The long ones first.
        points = [Point(lab, number, how, age, key, seed) for how, number, age in reversed(plan)]
        verdicts = {how: Verdicts() for how in ("kill", "stop", "full")}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ended = {pool.submit(point.run): point for point in points}
            paths = [(ended[future], future.result()) for future in as_completed(ended)]
        # Whatever was sent before the last of them ended has been received by then.
        time.sleep(2.0)
        sent = Sent(reader.received())
        for point, path in paths:
            verdicts[point.how].judge(point, path, sent)
    kill, stop, full = (verdicts[how] for how in ("kill", "stop", "full"))
    for said in kill.empty:
        print(f"  nothing to repair: {said}")
    expect(len(kill.empty) <= KILLS * 2 * EARLY, "too many were killed before they began")
    print(
        f"  killed {kill.files} times, {kill.samples} samples in the files; the oldest lost sample "
        f"was {kill.worst_secs[False]:.2f} s old, encrypted {kill.worst_secs[True]:.2f} s; "
        f"{kill.worst_bytes} bytes lost from before {SYNC_SECS + CHUNK_SECS} s"
    )
    print(f"  SIGTERM {stop.files} times, {stop.samples} samples, none lost")
    print(f"  disk full {full.files} times, {full.samples} samples, the others counted")
