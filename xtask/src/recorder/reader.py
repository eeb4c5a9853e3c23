"""Receives streams with pylsl: `reader.py [--stamps] NAME…`. After a first line, one of JSON for each
piece, without values if stamps are enough."""

import json
import os
import sys
import time

import pylsl

assert os.environ["LSL_STAGE_EXPECT"] in pylsl.library_info(), pylsl.library_info()
names = [word for word in sys.argv[1:] if word != "--stamps"]
wants_values = len(names) == len(sys.argv) - 1
inlets = []
for name in names:
    (info,) = pylsl.resolve_byprop("name", name, timeout=20.0)
    inlet = pylsl.StreamInlet(info, recover=False)
    inlet.open_stream(20.0)
    inlets.append((name, inlet))
print("ready", flush=True)
while inlets:
    for entry in list(inlets):
        name, inlet = entry
        try:
            values, stamps = inlet.pull_chunk(max_samples=4096)
        except pylsl.LostError:
            inlets.remove(entry)
            continue
        if stamps:
            values = values if wants_values else []
            print(json.dumps({"name": name, "stamps": stamps, "values": values}), flush=True)
    time.sleep(0.02)
