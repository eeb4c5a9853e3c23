"""Reads many streams with pylsl on our library: `readers.py COUNT PREFIX...`. A line of JSON five times a second: when, and
how many streams brought a sample in the last three seconds."""

import json
import os
import resource
import sys
import time

import pylsl

assert os.environ["LSL_STAGE_EXPECT"] in pylsl.library_info(), pylsl.library_info()
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
count, prefixes = int(sys.argv[1]), sys.argv[2:]


def find(prefix):
    """Streams by their names; pylsl gives 1,024 at once."""
    infos = pylsl.resolve_bypred(f"starts-with(name,'{prefix}')", 0, 2.0)
    if len(infos) == 1024:
        infos += [info for digit in "0123456789" for info in find(prefix + digit)]
    return infos


found = {}
while len(found) < count:
    found |= {info.name(): info for prefix in prefixes for info in find(prefix)}
inlets = [pylsl.StreamInlet(info, max_buflen=10) for info in found.values()]
last = [float("-inf")] * count
told = 0.0
while True:
    for number, inlet in enumerate(inlets):
        if inlet.pull_chunk(timeout=0.0, max_samples=64)[0]:
            last[number] = time.monotonic()
    now = time.monotonic()
    if now - told > 0.2:
        flowing = sum(now - at < 3.0 for at in last)
        print(json.dumps({"at": now, "flowing": flowing}), flush=True)
        told = now
    time.sleep(0.02)
