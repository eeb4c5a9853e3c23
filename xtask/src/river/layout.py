"""A reader and a writer of streams of River, made from relay.md §12.2 and a client of Redis, and from nothing else."""

import json
import struct

CODES = {"DOUBLE": "d", "FLOAT": "f", "INT16": "h", "INT32": "i", "INT64": "q"}


def code(field):
    return CODES.get(field["type"]) or f"{field['size']}s"


class Reader:
    """Follows a stream from key to key. A sample is (i, id, values); of a variable field its bytes are the value."""

    def __init__(self, server, name):
        described = server.hgetall(f"{name}-metadata")
        assert described, f"no stream {name}"
        assert b"compression_params_json" not in described, f"{name} is compressed"
        self.server = server
        self.fields = json.loads(described[b"schema"])["field_definitions"]
        self.user = json.loads(described[b"user_metadata"]) or {}
        self.is_variable = self.fields[0]["type"] == "VARIABLE_WIDTH_BYTES"
        self.shape = struct.Struct("<" + "".join(map(code, self.fields)))
        self.key, self.after, self.last = described[b"first_stream_key"], b"0-0", -1
        self.keys, self.has_ended = [self.key], False

    def values(self, val):
        return (val,) if self.is_variable else self.shape.unpack(val)

    def read(self, wait_ms=500, most=1000):
        """Samples until the end, or until none comes for so long."""
        while not self.has_ended:
            entries = self.server.xrange(self.key, b"(" + self.after, "+", most)
            if not entries:
                found = self.server.xread({self.key: self.after}, most, wait_ms)
                if not found:
                    return
                entries = (found[0] if isinstance(found, list) else next(iter(found.items())))[1]
            for place, entry in entries:
                self.after = place
                if b"val" in entry:
                    index = int(entry[b"i"])
                    assert index > self.last, f"{index} after {self.last}"
                    self.last = index
                    yield index, place, self.values(entry[b"val"])
                elif b"tombstone" in entry:
                    assert int(entry[b"sample_index"]) == max(self.last, 0), entry
                    self.key, self.after = entry[b"next_stream_key"], b"0-0"
                    self.keys.append(self.key)
                    break
                else:
                    assert b"eof" in entry and int(entry[b"sample_index"]) == max(self.last, 0), entry
                    self.has_ended = True


class Writer:
    """Writes a stream with a new key after every `per_key` samples, as River does."""

    def __init__(self, server, name, fields, user=None, per_key=1 << 24):
        self.server, self.name, self.per_key = server, name, per_key
        self.fields = [dict(name=it[0], size=it[2], type=it[1]) for it in fields]
        self.is_variable = fields[0][1] == "VARIABLE_WIDTH_BYTES"
        self.shape = struct.Struct("<" + "".join(map(code, self.fields)))
        schema = json.dumps({"field_definitions": self.fields}, separators=(",", ":"))
        seconds, us = server.time()
        described = {
            "first_stream_key": f"{name}-0",
            "schema": schema,
            "initialized_at_us": seconds * 1_000_000 + us,
            "user_metadata": json.dumps(user, separators=(",", ":")),
        }
        assert server.hset(f"{name}-metadata", mapping=described) == len(described), f"{name} is taken"
        self.next, self.number = 0, 0

    def write(self, *samples):
        for values in samples:
            if self.next // self.per_key != self.number:
                before, self.number = self.number, self.next // self.per_key
                key = f"{self.name}-{self.number}"
                self.end(before, {"tombstone": 1, "next_stream_key": key})
            val = values[0] if self.is_variable else self.shape.pack(*values)
            self.server.xadd(f"{self.name}-{self.number}", {"val": val, "i": self.next})
            self.next += 1

    def stop(self):
        self.end(self.number, {"eof": 1})

    def end(self, number, entry):
        last = max(self.next - 1, 0)
        self.server.xadd(f"{self.name}-{number}", {**entry, "sample_index": last})
