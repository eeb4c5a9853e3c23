"""Our own additions (lslx.h) from Python, beside pylsl: `extensions.py CHECK`.

pylsl gives the streams; what it does not know is called by name in the library it loaded.
"""

import asyncio
import ctypes
import os
import select
import sys
import time

import pylsl
from pylsl.lib import lib
from pylsl_classes import PATIENCE, pair, wait_until


class InletStats(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("samples", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
        ("reconnects", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("available_bytes", ctypes.c_uint64),
        ("idle_seconds", ctypes.c_double),
    ]


class OutletStats(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("samples", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
        ("consumers_seen", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("backlog_bytes", ctypes.c_uint64),
    ]


class Consumer(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_char * 64),
        ("sent", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
        ("behind", ctypes.c_uint64),
        ("encrypted", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 5),
    ]


POLICY = os.environ.get("LSL_EXPECT_POLICY", "off")
IS_SECURE = int(POLICY != "off")

LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)


if os.name == "nt":
    kernel = ctypes.WinDLL("kernel32")
    kernel.WaitForSingleObject.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    lib.lslx_inlet_handle.restype = ctypes.c_void_p

    def awaited(inlet):
        """What an event loop waits for: an event."""
        assert lib.lslx_inlet_fd(inlet.obj) < 0
        return lib.lslx_inlet_handle(inlet.obj) or 0

    def readable(event, seconds):
        return kernel.WaitForSingleObject(event, int(seconds * 1000)) == 0

    async def watch(loop, event, callback):
        """What libraries for asyncio do: its own loop waits for handles as for sockets."""
        while True:
            await loop._proactor.wait_for_handle(event)
            callback()

else:

    def awaited(inlet):
        """What an event loop waits for: a descriptor."""
        assert not lib.lslx_inlet_handle(inlet.obj)
        return lib.lslx_inlet_fd(inlet.obj)

    def readable(descriptor, seconds):
        return bool(select.select([descriptor], [], [], seconds)[0])

    async def watch(loop, descriptor, callback):
        loop.add_reader(descriptor, callback)
        try:
            await asyncio.Event().wait()
        finally:
            loop.remove_reader(descriptor)


def event_loop():
    """asyncio waits for samples without a thread and without polling."""
    outlet, inlet = pair("event-loop")
    descriptor = awaited(inlet)
    assert descriptor > 0 and awaited(inlet) == descriptor
    assert not readable(descriptor, 0.1)

    async def receive():
        loop, got, done = asyncio.get_running_loop(), [], asyncio.Event()

        def pull():
            samples, _ = inlet.pull_chunk()
            got.extend(sample[0] for sample in samples)
            assert lib.lslx_inlet_fd_clear(inlet.obj) >= 0
            if len(got) >= 100:
                done.set()

        watching = asyncio.create_task(watch(loop, descriptor, pull))
        for at in range(100):
            outlet.push_sample([at] * 3)
            await asyncio.sleep(0.001)
        await asyncio.wait_for(done.wait(), PATIENCE)
        watching.cancel()
        return got

    assert asyncio.run(receive()) == list(range(100))
    assert not readable(descriptor, 0.1)
    # What is not pulled keeps it readable.
    outlet.push_sample([1] * 3)
    assert readable(descriptor, PATIENCE) and lib.lslx_inlet_fd_clear(inlet.obj) == 1
    assert readable(descriptor, 0.0)
    inlet.pull_sample(PATIENCE)
    assert lib.lslx_inlet_fd_clear(inlet.obj) == 0 and not readable(descriptor, 0.0)
    # The end of a stream that is not recovered wakes the loop, too.
    lost, reader = pair("event-loop-lost", inlet_options={"recover": False})
    descriptor = awaited(reader)
    del lost
    assert readable(descriptor, PATIENCE)
    try:
        reader.pull_sample(0.0)
    except pylsl.util.LostError:
        return
    raise AssertionError("not lost")


def counters():
    outlet, inlet = pair("counters", channels=1, channel_format="int32")
    for at in range(10):
        outlet.push_sample([at])
    wait_until(lambda: inlet.samples_available() == 10)
    stats = InletStats(size=ctypes.sizeof(InletStats))
    assert lib.lslx_inlet_stats(inlet.obj, ctypes.byref(stats)) == 0
    assert (stats.samples, stats.available, stats.dropped, stats.reconnects) == (10, 10, 0, 0)
    assert stats.bytes >= 40 and 0.0 <= stats.idle_seconds < PATIENCE
    stats = OutletStats(size=ctypes.sizeof(OutletStats))
    assert lib.lslx_outlet_stats(outlet.obj, ctypes.byref(stats)) == 0
    assert (stats.samples, stats.consumers_seen, stats.dropped) == (10, 1, 0)
    readers = (Consumer * 4)()
    assert lib.lslx_outlet_consumers(outlet.obj, readers, 4) == 1
    assert readers[0].sent == 10 and b":" in readers[0].address
    assert readers[0].encrypted == IS_SECURE
    outlet.push_sample([10], pushthrough=False)
    assert lib.lslx_outlet_flush(outlet.obj, ctypes.c_double(PATIENCE)) == 1
    assert [inlet.pull_sample(PATIENCE)[0][0] for _ in range(11)] == list(range(11))
    assert lib.lslx_outlet_stats(None, ctypes.byref(stats)) == -3
    assert lib.lslx_outlet_consumers(None, readers, 4) == -3


def log():
    """Nothing is written to the standard error output once there is a callback."""
    messages = []
    callback = LogCallback(lambda level, message, _: messages.append((level, message.decode())))
    lib.lslx_set_log_callback.restype = None
    written = os.memfd_create("stderr")
    kept = os.dup(2)
    os.dup2(written, 2)
    try:
        lib.lslx_set_log_callback(callback, None)
        pair("log")
        time.sleep(0.1)
        lib.lslx_set_log_callback(LogCallback(), None)
    finally:
        os.dup2(kept, 2)
    assert any("lsl_api.cfg" in text or "configuration" in text for _, text in messages), messages
    os.lseek(written, 0, os.SEEK_SET)
    assert os.read(written, 10_000) == b"", os.pread(written, 10_000, 0)


def encryption():
    """What a program can find out, with keys or without."""

    def told(function, *arguments):
        function = getattr(lib, function)
        function.restype = ctypes.c_void_p
        text = function(*arguments)
        assert text
        value = ctypes.string_at(text).decode()
        lib.lsl_destroy_string(ctypes.c_void_p(text))
        return value

    assert lib.lslx_security_policy() == {"off": 0, "migrate": 1, "required": 2}[POLICY]
    assert told("lslx_security_text").startswith(f"policy {POLICY}, ")
    outlet, inlet = pair("encryption")
    info = inlet.info(PATIENCE)
    assert lib.lslx_info_encryption(info.obj) == lib.lslx_security_policy()
    assert lib.lslx_is_encrypted(inlet.obj) == IS_SECURE
    begin = "SHA256:" if IS_SECURE else ""
    fingerprint = told("lslx_peer_fingerprint", inlet.obj)
    assert fingerprint[:7] == begin and told("lslx_info_fingerprint", info.obj) == fingerprint
    assert told("lslx_peer_name", inlet.obj) == ("amplifier" if IS_SECURE else "")
    assert bool(told("lslx_cipher", inlet.obj)) == IS_SECURE
    assert told("lslx_last_security_error", inlet.obj) == ""
    readers = (Consumer * 1)()
    assert lib.lslx_outlet_consumers(outlet.obj, readers, 1) == 1
    address = ctypes.c_char_p(readers[0].address)
    assert told("lslx_consumer_fingerprint", outlet.obj, address) == fingerprint
    assert told("lslx_consumer_name", outlet.obj, address) == told("lslx_peer_name", inlet.obj)


if __name__ == "__main__":
    assert "lsl-rs" in pylsl.library_info(), pylsl.library_info()
    assert pylsl.library_info().endswith(POLICY), pylsl.library_info()
    CHECKS = [event_loop, counters, encryption, log]
    {check.__name__: check for check in CHECKS}[sys.argv[1]]()
