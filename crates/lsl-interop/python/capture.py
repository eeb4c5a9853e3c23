"""Records what goes over the wire: `capture.py FILE`.

Every frame of every interface of this network namespace, `lo` included, as a pcap file. Says "ready"
once it listens. When its input ends it takes what is still queued and says, as one line of JSON, how
many frames it wrote and how many the kernel had to drop: a search in a recording with gaps proves
nothing.
"""

import json
import select
import socket
import struct
import sys
import time

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_STATISTICS = 6
SO_RCVBUFFORCE = 33

# Frames of `lo` and of offloading interfaces are longer than any wire would carry.
LONGEST = 1 << 18

# What still has to be read when nothing comes any more.
QUIET_SECONDS = 0.3


def listen():
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    except PermissionError:
        # Not root outside of this namespace: as much as everybody may have.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    return listener


def record(listener, out):
    out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, LONGEST, 1))
    frames, ending = 0, False
    while True:
        wanted = [listener] if ending else [listener, sys.stdin]
        ready, _, _ = select.select(wanted, [], [], QUIET_SECONDS if ending else None)
        if listener in ready:
            frame = listener.recv(LONGEST)
            seconds, fraction = divmod(time.time_ns() // 1000, 1_000_000)
            out.write(struct.pack("<IIII", seconds, fraction, len(frame), len(frame)))
            out.write(frame)
            frames += 1
        elif ending:
            return frames
        else:
            ending = True


if __name__ == "__main__":
    listener = listen()
    print("ready", flush=True)
    with open(sys.argv[1], "wb") as out:
        frames = record(listener, out)
    _, dropped = struct.unpack("II", listener.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    print(json.dumps({"frames": frames, "dropped": dropped}), flush=True)
