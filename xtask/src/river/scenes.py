"""River's layout both ways: what the relay writes is read, and what others write it offers, at a real server. Spec:
relay §14, test 13."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path

import pyarrow.parquet
import redis

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "recorder"))
from lab import Lab, expect, play, until  # noqa: E402
from layout import Reader, Writer  # noqa: E402

PORT = 6400
URL = f"redis://127.0.0.1:{PORT}"
RULES = "[[rule]]\nengine = true\n"
FORMATS = ["float32", "double64", "int64", "int32", "int16", "int8", "string"]


class Stage(Lab):
    """A server of its own for each scene."""

    def __enter__(self):
        words = ["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.spawn(words, os.environ)
        self.server = redis.Redis(port=PORT)
        until("server", self.answers)
        return self

    def answers(self):
        try:
            return self.server.ping()
        except redis.ConnectionError:
            return False

    def __exit__(self, *_):
        super().__exit__()
        self.server.close()

    def relay(self, *words):
        rules = self.folder / "lsl-relay.toml"
        rules.write_text(RULES)
        listen = ["--listen", "127.0.0.1:16570", "--relay-config", rules]
        relay = self.start("relay", *listen, "--engine", URL, "--layout", "river", *words)
        until("relay", lambda: "Relay " in str(relay) or relay.process.poll() is not None)
        expect(relay.process.poll() is None, relay)
        return relay

    def names(self, part=""):
        keys = (key.decode() for key in self.server.scan_iter("*-metadata"))
        return sorted(key.removesuffix("-metadata") for key in keys if part in key)

    def reader(self, part):
        until(f"stream {part}", lambda: self.names(part))
        return Reader(self.server, self.names(part)[0])

    def client(self, *words):
        """River's own client."""
        return self.spawn([CLIENT, str(HERE / "real.py"), words[0], str(PORT), *map(str, words[1:])], os.environ)

    def ingest(self, *words):
        return self.start("relay", "ingest", "--engine", URL, "--output", self.path("tables"), *words)

    def table(self, name):
        table = pyarrow.parquet.read_table(self.path(f"tables/{name}/data.parquet"))
        return table.to_pydict()


def counted(number, form, channels):
    """Sample `number` of `lsl gen --pattern counter`, as River has it."""
    if form == "string":
        return str(number).encode()
    if form == "int8":
        return (bytes([number % 256]),) * channels
    if form == "int16":
        number = (number + 2**15) % 2**16 - 2**15
    return (number,) * channels


def ours(stage):
    """Every format of LSL, read from what §12.2 says; as a table, too; and the ends."""
    count = 400
    for form in FORMATS:
        channels = 1 if form == "string" else 3
        stage.generate(
            f"of-{form}", "--format", form, "--channels", channels, "--rate", 200, "--count", count,
            "--pattern", "counter",
        )  # fmt: skip
    stage.relay()
    found = {}
    for form in FORMATS:
        reader = stage.reader(f".of-{form}.")
        samples = []
        until(f"end of {form}", lambda: samples.extend(reader.read()) or reader.has_ended)
        expect([index for index, *_ in samples] == list(range(count)), form, samples[:3], len(samples))
        for index, _, values in samples:
            if form == "string":
                values = (values[0][:8], values[0][8:])
                expect(values[1] == counted(index, form, 1), values)
            else:
                expect(values[1:] == counted(index, form, 3), index, values)
        expect({"lsl_xml", "lsl_uid"} <= set(reader.user), reader.user)
        found[stage.names(f".of-{form}.")[0]] = (reader, samples)
    expect("eof" in str(stage.server.xrevrange(reader.key, count=1)), "no eof")
    stage.ingest("--once", "--keep").ends(0)
    for name, (reader, samples) in found.items():
        table = stage.table(name)
        columns = ["sample_index", "key", "timestamp_ms", *(field["name"] for field in reader.fields)]
        expect(list(table) == columns, list(table))
        rows = list(zip(*table.values()))
        for (index, place, values), row in zip(samples, rows, strict=True):
            place = place.decode()
            expect(row == (index, place, int(place.split("-")[0]), *values), row, values)
        said = json.loads(Path(stage.path(f"tables/{name}/metadata.json")).read_text())
        expect(said["ingestion_status"] == "COMPLETED" and said["stream_name"] == name, said)
    return f"{len(found)} formats x {count}"


def killed(stage):
    """The relay is killed again and again, and a key ends meanwhile: no sample twice, each under its number."""
    stage.generate("count", "--format", "int32", "--rate", 500, "--channels", 2, "--pattern", "counter")
    relay = stage.relay()
    reader = stage.reader(".count.")
    samples = []

    def more(count):
        until("samples", lambda: samples.extend(islice(reader.read(), 50)) or len(samples) > count)

    for turn in range(KILLS):
        more(500 * (turn + 1))
        relay.signal(signal.SIGKILL)
        relay.wait()
        samples.extend(reader.read(100))
        if turn == 0:
            older(stage.server, reader.key)
        relay = stage.relay()
    more(500 * (KILLS + 1))
    numbers = [index for index, *_ in samples]
    expect(numbers == sorted(set(numbers)), "twice")
    for index, _, (_, *values) in samples:
        expect(values == [index, index], index, values)
    expect(len(reader.keys) == 2, reader.keys)
    # What is said of the clock leads from a timestamp to the time at which its sample came.
    until("clock", lambda: "lsl_clock_offset" in stage.reader(".count.").user)
    (place, entry), = stage.server.xrevrange(reader.key, count=1)
    (stamp, *_), said = reader.values(entry[b"val"]), stage.reader(".count.").user
    late = int(place.split(b"-")[0]) / 1000 - (stamp + float(said["lsl_clock_offset"]))
    expect(-0.1 < late < 2, late)
    missing = numbers[-1] + 1 - numbers[0] - len(numbers)
    return f"{len(numbers)} samples, {KILLS} kills, {missing} in gaps"


def older(server, key):
    """Makes the first entry of a key eleven minutes older."""
    entries = server.xrange(key)
    server.delete(key)
    for number, (place, entry) in enumerate(entries):
        ms, within = map(int, place.split(b"-"))
        server.xadd(key, entry, f"{ms - 660_000 * (number == 0)}-{within}")


THEIRS = {
    "neuro.same": ([("a", "FLOAT", 4), ("b", "FLOAT", 4)], lambda n: (n * 0.5, -n)),
    "neuro.mixed": ([("a", "INT16", 2), ("b", "DOUBLE", 8)], lambda n: (n % 1000, n / 3)),
    "neuro.stamped": ([("lsl_timestamp", "DOUBLE", 8), ("a", "INT64", 8)], lambda n: (n / 7, 1 << 40 | n)),
    "neuro.bytes": ([("data", "FIXED_WIDTH_BYTES", 3)], lambda n: (bytes([n % 128, 1, 2]),)),
    "neuro.text": ([("t", "VARIABLE_WIDTH_BYTES", 64)], lambda n: (b"x" * (n % 9) + b"%d" % n,)),
}


def theirs(stage):
    """What another writes is read as streams of LSL, across its keys, until it ends."""
    writers = {
        name: Writer(stage.server, name, fields, {"by": "a test"}, per_key=40)
        for name, (fields, _) in THEIRS.items()
    }
    for name in ["other", "neuro.packed"]:
        Writer(stage.server, name, THEIRS["neuro.same"][0]).write((0, 0))
    stage.server.hset("neuro.packed-metadata", "compression_params_json", "{}")
    stage.server.hset("neuro.bad-metadata", "schema", "{}")
    relay = stage.relay("--river", "neuro.*")
    receivers = {
        name: stage.start("recv", name, "--count", 200, "-o", "jsonl")
        for name in THEIRS
    }
    done = threading.Event()

    def write():
        while not done.is_set():
            for name, (_, sample) in THEIRS.items():
                writers[name].write(sample(writers[name].next))
            time.sleep(0.005)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for name, (fields, sample) in THEIRS.items():
            receivers[name].ends(0)
            lines = [json.loads(line) for _, line in receivers[name].lines]
            expect(len(lines) == 200, name, len(lines))
            has_stamp = fields[0][0] == "lsl_timestamp"
            of = (lambda n: sample(n)[1:]) if has_stamp else sample
            first = next(n for n in range(100_000) if shown(of(n)) == lines[0]["v"])
            for n, line in enumerate(lines, first):
                expect(line["v"] == shown(of(n)), name, n, line, of(n))
    finally:
        done.set()
        thread.join()
    listed = list_streams(stage)
    expect("neuro.same" in listed and "other" not in listed and "neuro.bad" not in listed, listed)
    expect("it is compressed" in str(relay), relay)
    for writer in writers.values():
        writer.stop()
    until("ends", lambda: "neuro" not in list_streams(stage))
    return f"{len(THEIRS)} streams, {writers['neuro.same'].number + 1} keys each"


def list_streams(stage):
    listing = stage.start("list")
    listing.wait()
    return listing.stdout()


def shown(values):
    """Values as `lsl recv` writes them."""
    if isinstance(values[0], bytes):
        return list(values[0]) if values[0][-2:] == b"\1\2" else [values[0].decode()]
    return list(values)


def ingested(stage):
    """The ingester is stopped and killed while somebody writes: each sample is in one row."""
    total = 20_000
    writer = Writer(stage.server, "neuro.fast", THEIRS["neuro.stamped"][0], per_key=997)

    def write():
        for number in range(total):
            writer.write(THEIRS["neuro.stamped"][1](number))
        writer.stop()

    thread = threading.Thread(target=write)
    thread.start()
    files = Path(stage.path("tables/neuro.fast"))
    for turn in range(KILLS):
        ingest = stage.ingest("--keep")
        # It has the folder for itself from before it says so.
        until("begin", lambda: "begins" in str(ingest))
        stage.ingest("--once", "--keep").ends(1)
        time.sleep(0.3)
        ingest.signal(signal.SIGTERM if turn % 2 == 0 else signal.SIGKILL)
        ingest.wait()
    parts = len(list(files.glob("data_*.parquet")))
    thread.join()
    stage.ingest("--once", "--keep").ends(0)
    expect(not list(files.glob("data_*")) and not list(files.glob("*.part")), list(files.iterdir()))
    table = stage.table("neuro.fast")
    expect(table["sample_index"] == list(range(total)), len(table["sample_index"]))
    expect(table["a"] == [1 << 40 | number for number in range(total)], "values")
    # What was interrupted before it was removed is removed, not taken again.
    stage.ingest("--once").ends(0)
    expect(stage.table("neuro.fast")["sample_index"] == list(range(total)), "again")
    # Another stream of the same name is not taken for its rest, nor removed; what is no stream keeps none from being
    # taken.
    stage.server.flushdb()
    stage.server.set("aaa-metadata", "no stream")
    for name in ("neuro.fast", "neuro.slow"):
        other = Writer(stage.server, name, THEIRS["neuro.stamped"][0], per_key=997)
        other.write(THEIRS["neuro.stamped"][1](0))
        other.stop()
    refused = stage.ingest("--once", "--keep")
    refused.wait()
    expect("another stream of this name" in str(refused), str(refused))
    expect(stage.table("neuro.fast")["sample_index"] == list(range(total)), "another")
    expect(stage.table("neuro.slow")["sample_index"] == [0], "slow")
    expect(stage.server.exists("neuro.fast-0"), "removed")
    again(stage)
    return f"{total} rows, {parts} files before the end"


def again(stage):
    """A server loses samples that were taken, has them again later, and loses everything; and a disk takes nothing for
    a moment."""
    name = "lsl.lab.again.0123-ab"
    files, hidden = Path(stage.path(f"tables/{name}")), Path(stage.path("hidden"))
    writer = Writer(stage.server, name, THEIRS["neuro.stamped"][0])
    write = lambda first, count: [writer.write(THEIRS["neuro.stamped"][1](first + n)) for n in range(count)]
    write(0, 100)
    which = "--keep", "--river", name.replace(".", r"\.")
    stage.ingest("--once", *which).ends(0)
    stage.server.xdel(f"{name}-0", *[place for place, _ in stage.server.xrevrange(f"{name}-0", count=40)])
    writer.next = 60
    write(60, 20)
    ingest = stage.ingest(*which)
    until("again", lambda: "the server lost samples" in str(ingest) and "begins" in str(ingest))
    write(80, 40)
    stage.server.flushdb()
    until("removed", lambda: "somebody removed it" in str(ingest))
    writer = Writer(stage.server, name, THEIRS["neuro.stamped"][0])
    writer.next = 50
    write(50, 100)
    until("begin again", lambda: str(ingest).count("begins") == 2)
    files.rename(hidden)
    writer.stop()
    until("disk", lambda: "No such file" in str(ingest))
    hidden.rename(files)
    until("end", lambda: "complete" in str(ingest))
    ingest.signal(signal.SIGTERM)
    ingest.ends(0)
    table = stage.table(name)
    expect(table["sample_index"] == list(range(150)), table["sample_index"])
    expect(table["a"] == [1 << 40 | number for number in range(150)], "values")


def real(stage):
    """River's own client reads ours, and is read."""
    count = 300
    for form in ["float32", "double64", "int64", "int32", "int16", "int8"]:
        stage.generate(
            f"of-{form}", "--format", form, "--channels", 2, "--rate", 100, "--count", count,
            "--pattern", "counter",
        )  # fmt: skip
    stage.relay("--river", "neuro.*")
    readers = {}
    for form in ["float32", "double64", "int64", "int32", "int16", "int8"]:
        until(f"stream {form}", lambda: stage.names(f".of-{form}."))
        readers[form] = stage.client("read", stage.names(f".of-{form}.")[0])
    writer = stage.client("write", "neuro.real", 1000)
    until("stream", lambda: "neuro.real" in list_streams(stage))
    receiver = stage.start("recv", "neuro.real", "-o", "jsonl")
    until("receiver", lambda: "Receiving" in str(receiver))
    # Its relay reads the stream from now on.
    until("feed", lambda: "flowing" in str(stage.run("relay", "status", "--json").stdout()))
    writer.process.stdin.write("\n")
    writer.process.stdin.flush()
    for form, reader in readers.items():
        reader.ends(0, limit=120)
        *samples, said = [json.loads(line[1:]) for line in reader.stdout().splitlines() if line[0] == "="]
        expect({"lsl_uid", "lsl_xml"} <= set(said), said)
        expect(len(samples) == count, form, len(samples))
        for number, (_, *values) in enumerate(samples):
            wanted = [f"{number % 256:02x}"] * 2 if form == "int8" else list(counted(number, form, 2))
            expect(values == wanted, form, values, wanted)
    until("samples", lambda: len(receiver.lines) >= 1000)
    writer.process.stdin.write("\n")
    writer.process.stdin.flush()
    writer.ends(0)
    for number, line in enumerate(json.loads(line) for _, line in receiver.lines):
        expect(line["v"] == [number, -number], number, line)
    return f"{len(readers)} formats x {count} read, 1000 written"


SCENES = {"ours": ours, "killed": killed, "theirs": theirs, "ingested": ingested, "real": real}
KILLS = 20 if os.environ["LSL_STAGE_SCOPE"] == "all" else 3


# A Python that imports `river`, which is on conda-forge alone.
CLIENT = os.environ.get("LSL_RIVER_PYTHON")


def main(folder, part=""):
    scenes = dict(SCENES)
    if part in "real" and not CLIENT:
        del scenes["real"]
        print("real ... ignored: LSL_RIVER_PYTHON names no Python with River's client")
        if not any(part in name for name in scenes):
            return
    play(scenes, Stage, folder, part)


if __name__ == "__main__":
    main(*sys.argv[1:])
