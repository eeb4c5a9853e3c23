"""Sends all formats with pylsl, to a receiver of each: `outlet.py COUNT`. Prints what was pushed, and
stays until its input ends."""

import json
import os
import sys

import pylsl

SPECIAL = {
    "float32": [1.5, -2.25, 1e30, -0.0, float("inf"), float("-inf"), float("nan"), 2.0**-149],
    "double64": [1.5, -2.25, 1e300, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324],
    "int32": [1, -2, 2**31 - 1, -(2**31)],
    "int16": [1, -2, 2**15 - 1, -(2**15)],
    "int8": [1, -2, 127, -128],
    "int64": [1, -2, 2**63 - 1, -(2**63)],
    "string": ["text", "", "Ä <&>\n\t\"',", "ü" * 200],
}
CHANNELS = 3
RATE = 100.0

assert os.environ["LSL_STAGE_EXPECT"] in pylsl.library_info(), pylsl.library_info()
count = int(sys.argv[1])
outlets = {}
for form in SPECIAL:
    name = f"pylsl-{form}"
    rate = 0.0 if form == "string" else RATE
    info = pylsl.StreamInfo(name, "check", CHANNELS, rate, form, name)
    info.desc().append_child_value("manufacturer", "Ä <&>")
    outlets[name] = (form, pylsl.StreamOutlet(info))
for _, outlet in outlets.values():
    assert outlet.wait_for_consumers(60.0)
pushed = {name: {"stamps": [], "values": []} for name in outlets}
start = pylsl.local_clock()
for number in range(count):
    while pylsl.local_clock() < start + number / RATE:
        pass
    for name, (form, outlet) in outlets.items():
        special = SPECIAL[form]
        sample = [special[(number * CHANNELS + k) % len(special)] for k in range(CHANNELS)]
        if form == "string" and number == 7:
            sample[0] = "x" * 70_000
        # Neither even nor as the rate says.
        stamp = start + number / RATE + (number % 3) * 1e-4
        outlet.push_sample(sample, stamp)
        pushed[name]["stamps"].append(stamp)
        pushed[name]["values"].append(sample)
print(json.dumps(pushed), flush=True)
sys.stdin.read()
