"""River's own client, where somebody has built it: `read PORT NAME` prints samples as JSON until the end, `write PORT
NAME COUNT` writes some, with a new key after every 100."""

import json
import sys

import numpy as np
import river


def read(server, name):
    reader = river.StreamReader(server)
    reader.initialize(name, 10_000)
    buffer = reader.new_buffer(64)
    while True:
        count = reader.read(buffer, 60_000)
        if count < 0:
            break
        for sample in buffer[:count]:
            values = [value.tobytes().hex() if value.dtype.kind == "V" else value.item() for value in sample]
            print("=" + json.dumps(values), flush=True)
    print("=" + json.dumps(sorted(reader.metadata)))


def write(server, name, count):
    kind = np.dtype([("lsl_timestamp", np.float64), ("a", np.int32), ("b", np.int32)])
    writer = river.StreamWriter(server, 100, 10)
    writer.initialize(name, river.StreamSchema.from_dtype(kind), {"by": "river"})
    samples = np.zeros(int(count), kind)
    samples["lsl_timestamp"] = np.arange(len(samples)) / 7
    samples["a"] = np.arange(len(samples))
    samples["b"] = -samples["a"]
    # Who is to read them from the first on is told of the stream before.
    sys.stdin.readline()
    for part in np.array_split(samples, 20):
        writer.write(part)
    sys.stdin.readline()
    writer.stop()


if __name__ == "__main__":
    what, port, *words = sys.argv[1:]
    {"read": read, "write": write}[what](river.RedisConnection("127.0.0.1", int(port)), *words)
