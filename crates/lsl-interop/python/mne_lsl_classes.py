"""mne-lsl's classes, unmodified, on whatever library MNE_LSL_LIB names: `mne_lsl_classes.py CHECK`.

A player streams a known recording with a trigger channel; a stream and epochs read it back.
"""

import ctypes
import os
import sys
import time

import numpy
from mne import Annotations, create_info
from mne.io import RawArray
from mne_lsl import lsl
from mne_lsl.player import PlayerLSL
from mne_lsl.stream import EpochsStream, StreamLSL

PATIENCE = 20.0
POLICY = os.environ.get("LSL_EXPECT_POLICY", "off")
RATE = 500.0
SECONDS = 4


def recording():
    """Two channels of which every sample tells its number, and a trigger each half second."""
    count = int(RATE * SECONDS)
    ramp = numpy.arange(count, dtype=float) * 1e-9
    trigger = numpy.zeros(count)
    trigger[::250] = 1.0
    trigger[125::250] = 2.0
    info = create_info(["Fp1", "Fp2", "STI"], RATE, ["eeg", "eeg", "stim"])
    raw = RawArray(numpy.vstack([ramp, -ramp, trigger]), info, verbose="error")
    raw.set_annotations(Annotations([0.5, 1.5], [0.1, 0.1], ["left", "right"]))
    return raw


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def is_ramp(values):
    """Whether samples follow one another without a gap, the end of the recording apart."""
    numbers = numpy.round(values * 1e9).astype(int)
    steps = numpy.diff(numbers)
    return set(steps) <= {1, 1 - int(RATE * SECONDS)}


# -- checks --------------------------------------------------------------------------------------


def low_level():
    """The wrapper classes, with strings, and with the buffers they reuse."""
    sinfo = lsl.StreamInfo("low", "Markers", 2, 0, "string", "low-level")
    sinfo.set_channel_names(["a", "b"])
    outlet = lsl.StreamOutlet(sinfo)
    (found,) = lsl.resolve_streams(timeout=PATIENCE, source_id="low-level")
    inlet = lsl.StreamInlet(found)
    inlet.open_stream(timeout=PATIENCE)
    assert inlet.get_sinfo(timeout=PATIENCE).get_channel_names() == ["a", "b"]
    for _ in range(100):
        outlet.push_sample(["one", ""])
        assert inlet.pull_sample(timeout=PATIENCE)[0] == ["one", ""]
        outlet.push_chunk([["x", "y"], ["", "z"]])
        got = [inlet.pull_sample(timeout=PATIENCE)[0] for _ in range(2)]
        assert got == [["x", "y"], ["", "z"]], got
        outlet.push_chunk([["x", "y"]] * 3)
        data, stamps = inlet.pull_chunk(timeout=0.01, max_samples=16)
        assert len(data) <= 3 and len(data) == len(stamps)
        inlet.flush()
    # mne-lsl itself refuses the last on Windows.
    dtypes = ("float32", "float64", "int8", "int16", "int32", "int64")
    for dtype in dtypes[: -1 if os.name == "nt" else None]:
        sinfo = lsl.StreamInfo("low", "check", 3, 100, dtype, f"low-{dtype}")
        outlet = lsl.StreamOutlet(sinfo, chunk_size=4)
        (found,) = lsl.resolve_streams(timeout=PATIENCE, source_id=f"low-{dtype}")
        inlet = lsl.StreamInlet(found)
        inlet.open_stream(timeout=PATIENCE)
        assert outlet.wait_for_consumers(PATIENCE)
        values = numpy.arange(12, dtype=dtype).reshape(4, 3)
        outlet.push_chunk(values, 100.5)
        data, stamps = inlet.pull_chunk(timeout=PATIENCE, max_samples=4)
        assert (data == values).all() and numpy.allclose(stamps, [100.47, 100.48, 100.49, 100.5])
        outlet.push_sample(values[1], 7.5)
        data, stamp = inlet.pull_sample(timeout=PATIENCE)
        assert (data == values[1]).all() and stamp == 7.5
        assert abs(inlet.time_correction(timeout=PATIENCE)) < 0.01
        inlet.close_stream()


def player_and_stream():
    with PlayerLSL(recording(), chunk_size=20, name="player", source_id="mne-player"):
        stream = StreamLSL(2.0, name="player", source_id="mne-player")
        stream.connect(timeout=PATIENCE, processing_flags="all")
        assert stream.ch_names == ["Fp1", "Fp2", "STI"]
        assert stream.info["sfreq"] == RATE
        is_encrypted = lsl.functions.lib.lslx_is_encrypted
        is_encrypted.argtypes = [ctypes.c_void_p]
        assert is_encrypted(stream._inlet._obj) == int(POLICY == "required")
        assert stream.get_channel_types() == ["eeg", "eeg", "stim"]
        wait_until(lambda: stream.n_new_samples >= 1000)
        data, stamps = stream.get_data(winsize=1.0)
        assert data.shape == (3, 500) and is_ramp(data[0]) and numpy.allclose(data[1], -data[0])
        assert (numpy.diff(stamps) >= 0.0).all() and abs(stamps[-1] - lsl.local_clock()) < 5.0
        stream.disconnect()


def annotations():
    with PlayerLSL(recording(), chunk_size=20, name="annotated", source_id="mne-annotated"):
        stream = StreamLSL(5, name="annotated-annotations", source_id="mne-annotated")
        stream.connect(timeout=PATIENCE)
        assert stream.ch_names == ["left", "right"]
        wait_until(lambda: stream.n_new_samples >= 2)
        stream.disconnect()


def epochs():
    with PlayerLSL(recording(), chunk_size=10, name="epochs", source_id="mne-epochs"):
        stream = StreamLSL(4.0, name="epochs", source_id="mne-epochs").connect(timeout=PATIENCE)
        epochs = EpochsStream(
            stream, 6, event_id={"one": 1, "two": 2}, event_channels="STI", tmin=-0.1, tmax=0.1,
            baseline=None,
        ).connect(acquisition_delay=0.05)
        wait_until(lambda: epochs.n_new_epochs >= 4)
        data = epochs.get_data(n_epochs=4)
        assert data.shape[0] == 4 and data.shape[1] == 3
        for epoch in data:
            assert is_ramp(epoch[0])
            # The trigger is where the epoch says that it is.
            assert epoch[2, numpy.argmin(numpy.abs(epochs.times))] in (1.0, 2.0)
        assert {1, 2} <= set(epochs.events)
        epochs.disconnect()
        stream.disconnect()


CHECKS = [low_level, player_and_stream, annotations, epochs]


if __name__ == "__main__":
    wanted = os.environ.get("LSL_EXPECT_LIBRARY", "")
    info = lsl.functions.lib.lsl_library_info().decode()
    assert wanted in info, f"not {wanted}: {info}"
    assert info.endswith(POLICY), f"not {POLICY}: {info}"
    {check.__name__: check for check in CHECKS}[sys.argv[1]]()
