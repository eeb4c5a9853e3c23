"""pylsl's public classes on whatever library PYLSL_LIB names: `pylsl_classes.py CHECK`.

Each check is a function here and runs in a process of its own; it ends with an exception if anything is
not as pylsl's documentation says. The library must say that it is ours, or nothing would be proven.
"""

import gc
import os
import sys
import threading
import time

import numpy
import pylsl

PATIENCE = 20.0

FORMATS = {
    "float32": [1.5, -2.25, 1e30],
    "double64": [1.5, -2.25, 1e300],
    "int32": [1, -2, 2**31 - 1],
    "int16": [1, -2, 2**15 - 1],
    "int8": [1, -2, 127],
    "int64": [1, -2, 2**63 - 1],
    "string": ["text", "", "Ä nul\0inside"],
}
if os.name == "nt":
    # pylsl itself refuses it there.
    del FORMATS["int64"]


def announce(name, channels=3, rate=100.0, channel_format="float32", describe=None, **options):
    """An outlet, and its source id."""
    source_id = f"{name}-{channel_format}-{os.getpid()}"
    info = pylsl.StreamInfo(name, "check", channels, rate, channel_format, source_id)
    if describe:
        describe(info)
    return pylsl.StreamOutlet(info, **options), source_id


def listen(source_id, **options):
    """An open inlet on the only stream with this source id."""
    (info,) = pylsl.resolve_byprop("source_id", source_id, timeout=PATIENCE)
    inlet = pylsl.StreamInlet(info, **options)
    inlet.open_stream(PATIENCE)
    return inlet


def pair(name, inlet_options=None, **options):
    outlet, source_id = announce(name, **options)
    inlet = listen(source_id, **(inlet_options or {}))
    assert outlet.wait_for_consumers(PATIENCE)
    return outlet, inlet


def raises(kind, action):
    try:
        action()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


# -- checks --------------------------------------------------------------------------------------


def library():
    assert pylsl.library_version() >= 118
    assert pylsl.protocol_version() == 110
    is_windows = os.name == "nt"
    now = time.perf_counter() if is_windows else time.clock_gettime(time.CLOCK_MONOTONIC)
    assert abs(pylsl.local_clock() - now) < 0.1


def stream_info():
    info = pylsl.StreamInfo("Nämé <&>", "EEG", 8, 250.0, "int16", "id'é")
    assert (info.name(), info.type(), info.source_id()) == ("Nämé <&>", "EEG", "id'é")
    assert (info.channel_count(), info.nominal_srate()) == (8, 250.0)
    assert info.channel_format() == pylsl.cf_int16
    assert (info.version(), info.created_at(), info.uid()) == (110, 0.0, "")
    uid = info.reset_uid()
    assert len(uid) == 36 and info.uid() == uid and info.reset_uid() != uid
    assert "<name>Nämé &lt;&amp;&gt;</name>" in info.as_xml()
    outlet = pylsl.StreamOutlet(info)
    live = outlet.get_info()
    assert live.uid() not in ("", info.uid()) and live.created_at() > 0.0
    assert live.hostname() and live.session_id()
    raises(RuntimeError, lambda: pylsl.StreamInfo("", "EEG", 8, 250.0, "int16", ""))
    raises(RuntimeError, lambda: pylsl.StreamInfo("n", "EEG", -1, 250.0, "int16", ""))
    pylsl.StreamInfo()


def metadata():
    """Channel setters, navigation and edits, and what of it arrives."""

    def describe(info):
        info.set_channel_labels(["C3", "C4", "Cz"])
        info.set_channel_types("eeg")
        info.set_channel_units(["microvolts", "uV", "-6"])
        assert info.get_channel_labels() == ["C3", "C4", "Cz"]
        info.set_channel_labels(["A", "B", "C"])
        desc = info.desc()
        cap = desc.append_child("cap")
        cap.append_child_value("size", "54").append_child_value("name", "Müller & Söhne")
        cap.prepend_child_value("first", "1")
        assert [cap.child_value("first"), cap.first_child().name()] == ["1", "first"]
        assert cap.last_child().name() == "name" and cap.last_child().previous_sibling().name() == "size"
        assert cap.child("size").next_sibling("name").child_value() == "Müller & Söhne"
        assert cap.parent().name() == "desc" and cap.child("nothing").empty()
        assert cap.first_child().first_child().is_text()
        cap.set_child_value("size", "56")
        assert cap.child_value("size") == "56"
        assert cap.child("first").first_child().set_value("one") and cap.child_value("first") == "one"
        assert cap.set_name("helmet") and desc.child("cap").empty()
        copy = desc.append_copy(cap)
        desc.prepend_copy(cap).set_name("leading")
        copy.remove_child(copy.child("first"))
        copy.remove_child(copy.child("nothing"))
        desc.prepend_child("empty")
        assert not desc.child("empty").empty() and desc.child("empty").first_child().empty()

    outlet, inlet = pair("metadata", describe=describe)
    sent, got = outlet.get_info(), inlet.info(PATIENCE)
    assert got.get_channel_labels() == ["A", "B", "C"]
    assert got.get_channel_types() == ["eeg"] * 3
    assert got.get_channel_units() == sent.get_channel_units()
    assert got.desc().child("leading").child_value("first") == "one"
    helmets = [got.desc().child("helmet")]
    helmets.append(helmets[0].next_sibling("helmet"))
    assert [helmet.child_value("first") for helmet in helmets] == ["one", ""]
    # An element without content is written shorter by whoever read it.
    text = sent.as_xml()
    for name in ("v4address", "v6address"):
        text = text.replace(f"<{name}></{name}>", f"<{name} />")
    assert got.as_xml() == text


def temporaries():
    """Python ends an info as soon as nothing names it, while its nodes go on being used."""

    def describe(info):
        info.set_channel_labels(["C3", "C4", "Cz"])

    outlet, inlet = pair("temporaries", describe=describe)
    assert inlet.info().desc().child("channels").child("channel").child_value("label") == "C3"
    channel = inlet.info().desc().child("channels").child("channel")
    labels = []
    while not channel.empty():
        labels.append(channel.child_value("label"))
        channel = channel.next_sibling()
    assert labels == ["C3", "C4", "Cz"]
    assert outlet.get_info().desc().child("channels").last_child().child_value("label") == "Cz"
    copy = pylsl.StreamInfo("copy", "EEG", 3, 0.0, "float32", "copy")
    copy.desc().append_copy(inlet.info().desc().child("channels"))
    assert copy.get_channel_labels() == ["C3", "C4", "Cz"]
    found = pylsl.resolve_byprop("name", "temporaries")[0].desc()
    assert found.name() == "desc"


def samples():
    """Every format, sample by sample, with a stamp, a deduced one and none."""
    for channel_format, values in FORMATS.items():
        outlet, inlet = pair("samples", channel_format=channel_format)
        outlet.push_sample(values, 100.5)
        outlet.push_sample(values, -1.0)
        before = pylsl.local_clock()
        outlet.push_sample(values)
        got = [inlet.pull_sample(PATIENCE) for _ in range(3)]
        assert [list(sample) for sample, _ in got] == [numpy_values(channel_format, values)] * 3, got
        assert [stamp for _, stamp in got[:2]] == [100.5, 100.51]
        assert before <= got[2][1] <= pylsl.local_clock()
        assert inlet.pull_sample(0.0) == (None, None)
        assert inlet.pull_sample(0.05) == (None, None)
        raises(ValueError, lambda outlet=outlet: outlet.push_sample([1]))


def numpy_values(channel_format, values):
    """What of Python numbers a format keeps."""
    if channel_format == "float32":
        return [float(numpy.float32(value)) for value in values]
    return values


def chunks():
    """Lists and arrays, one stamp for all and one for each, into lists, arrays and own memory."""
    for channel_format, values in FORMATS.items():
        outlet, inlet = pair("chunks", channel_format=channel_format)
        wanted = [numpy_values(channel_format, values)] * 4
        outlet.push_chunk([values] * 4, 100.5)
        got, stamps = inlet.pull_chunk(PATIENCE, max_samples=4)
        assert got == wanted and numpy.allclose(stamps, [100.47, 100.48, 100.49, 100.5])
        each = [1.25, 7.5, 7.5, 9.125]
        outlet.push_chunk([values] * 4, each)
        assert inlet.pull_chunk(PATIENCE, max_samples=4) == (wanted, each)
        outlet.push_chunk([value for _ in range(4) for value in values], 200.5, pushthrough=False)
        outlet.push_chunk([values], 201.5)
        got, stamps = inlet.pull_chunk(PATIENCE, max_samples=5, as_numpy=True)
        assert got.shape == (5, 3) and stamps[4] == 201.5
        assert inlet.pull_chunk() == ([], [])
        outlet.push_chunk([values] * 3, each[:3])
        got, stamps = inlet.pull_chunk(PATIENCE, max_samples=100, min_samples=3)
        assert len(got) == 3 and stamps == each[:3]
        # Strings take no own memory; wrong lengths are pylsl's own errors.
        raises(ValueError, lambda outlet=outlet: outlet.push_chunk(["1"] * 4))
    outlet, inlet = pair("chunks", channel_format="double64")
    memory = numpy.zeros((8, 3))
    outlet.push_chunk(numpy.arange(24.0).reshape(8, 3), 5.5)
    got, stamps = inlet.pull_chunk(PATIENCE, max_samples=8, dest_obj=memory)
    assert got is None and memory.tolist() == numpy.arange(24.0).reshape(8, 3).tolist()


def strings():
    """Any bytes survive, in samples and chunks, whatever their length."""
    awkward = [b"", b"\0", b"a\0b\0", b"\xff\xfe", "Ä€🙂".encode(), b"x" * 70_000]
    outlet, inlet = pair(
        "strings", channels=2, rate=0.0, channel_format="string", inlet_options={"as_numpy": True}
    )
    for first, second in zip(awkward, reversed(awkward)):
        outlet.push_sample([first, second])
        sample, _ = inlet.pull_sample(PATIENCE)
        assert list(sample) == [first, second]
    chunk = [[one, two] for one in awkward for two in awkward]
    outlet.push_chunk(chunk, [float(at) for at in range(1, len(chunk) + 1)])
    got, stamps = inlet.pull_chunk(PATIENCE, max_samples=len(chunk))
    assert got.tolist() == chunk and stamps[-1] == len(chunk)
    # Pulled again and again with room to spare: nothing may be freed twice.
    for _ in range(200):
        outlet.push_chunk(chunk[:3])
        inlet.pull_chunk(0.01, max_samples=7)


def inlet_controls():
    outlet, inlet = pair("controls")
    for at in range(1, 6):
        outlet.push_sample([at] * 3, float(at))
    wait_until(lambda: inlet.samples_available() == 5)
    assert inlet.flush() == 5 and inlet.samples_available() == 0
    assert abs(inlet.time_correction(PATIENCE)) < 0.01
    assert not inlet.was_clock_reset()
    inlet.close_stream()
    wait_until(lambda: not outlet.have_consumers())
    inlet.open_stream(PATIENCE)
    assert outlet.wait_for_consumers(PATIENCE)
    outlet.push_sample([1, 2, 3], 9.5)
    assert inlet.pull_sample(PATIENCE) == ([1, 2, 3], 9.5)
    processed = listen(
        outlet.get_info().source_id(), max_buflen=10, max_chunklen=4, processing_flags=pylsl.proc_ALL
    )
    wait_until(lambda: pushed_arrives(outlet, processed))


def pushed_arrives(outlet, inlet):
    outlet.push_sample([1, 2, 3])
    sample, stamp = inlet.pull_sample(1.0)
    return sample is not None and abs(stamp - pylsl.local_clock()) < 5.0


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def loss():
    """Without recovery the end of a stream is an error; with it, its return is none."""
    outlet, inlet = pair("loss", inlet_options={"recover": False})
    sibling = listen(outlet.get_info().source_id())
    del outlet
    gc.collect()
    raises(pylsl.util.LostError, lambda: inlet.pull_sample(PATIENCE))
    raises(pylsl.util.LostError, lambda: inlet.time_correction(PATIENCE))
    again, _ = announce("loss")
    assert again.wait_for_consumers(PATIENCE)
    again.push_sample([7, 8, 9], 3.5)
    assert sibling.pull_sample(PATIENCE) == ([7, 8, 9], 3.5)
    absent = pylsl.StreamInlet(pylsl.StreamInfo("absent", "check", 1, 0.0, "int8", "absent"))
    raises(pylsl.util.TimeoutError, lambda: absent.open_stream(0.2))
    raises(pylsl.util.TimeoutError, lambda: absent.info(0.2))


def resolving():
    outlets = [announce(f"resolving {at}")[0] for at in range(5)]
    mine = f"starts-with(name,'resolving') and contains(source_id,'{os.getpid()}')"
    assert len(pylsl.resolve_bypred(mine, 5, PATIENCE)) == 5
    assert len(pylsl.resolve_bypred(f"{mine} and contains(name,'3')", 1, PATIENCE)) == 1
    assert pylsl.resolve_byprop("name", "nobody", timeout=0.2) == []
    assert pylsl.resolve_bypred("name='", timeout=0.2) == []
    begin = time.monotonic()
    names = [info.name() for info in pylsl.resolve_streams(0.7)]
    assert time.monotonic() - begin > 0.6
    assert all(f"resolving {at}" in names for at in range(5))
    del outlets


def continuous():
    resolvers = [
        pylsl.ContinuousResolver(forget_after=3.0),
        pylsl.ContinuousResolver(prop="type", value="check", forget_after=3.0),
        pylsl.ContinuousResolver(pred="channel_count=3", forget_after=3.0),
    ]
    outlet, source_id = announce("continuous")

    def seen():
        return [any(info.source_id() == source_id for info in one.results()) for one in resolvers]

    wait_until(lambda: all(seen()))
    infos = resolvers[0].results()
    del outlet
    wait_until(lambda: not any(seen()))
    raises(RuntimeError, lambda: pylsl.ContinuousResolver(pred="name='"))
    del resolvers
    gc.collect()
    # Results outlive what found them.
    assert any(info.source_id() == source_id for info in infos)


def synchronous():
    """Every numeric format from an outlet that writes itself, to two readers."""
    for channel_format, values in FORMATS.items():
        if channel_format == "string":
            raises(
                RuntimeError,
                lambda: announce("sync", channel_format="string", transport_flags=pylsl.transp_sync_blocking),
            )
            continue
        outlet, inlet = pair(
            "sync", channel_format=channel_format, transport_flags=pylsl.transp_sync_blocking
        )
        other = listen(outlet.get_info().source_id())
        # Which of both is counted is not said, so ask by sending.
        outlet.push_sample(values, 4.5)
        outlet.push_chunk([values] * 3, [5.5, 6.5, 8.5])
        for reader in (inlet, other):
            got, stamps = reader.pull_chunk(PATIENCE, max_samples=4)
            assert got == [numpy_values(channel_format, values)] * 4 and stamps == [4.5, 5.5, 6.5, 8.5]


def buffers():
    """Where there is no room the oldest samples give way, never the newest."""
    outlet, source_id = announce("buffers", channels=1, channel_format="int32")
    (info,) = pylsl.resolve_byprop("source_id", source_id, timeout=PATIENCE)
    # A second at 100 Hz.
    inlet = pylsl.StreamInlet(info, max_buflen=1)
    inlet.open_stream(PATIENCE)
    assert outlet.wait_for_consumers(PATIENCE)
    for at in range(1, 1001):
        outlet.push_sample([at], float(at))
    got = []
    while not got or got[-1] != 1000:
        sample, _ = inlet.pull_sample(PATIENCE)
        got.append(sample[0])
    assert got == sorted(got)


def threads():
    """Several threads push into one outlet, one pulls; nothing is lost or doubled."""
    outlet, inlet = pair("threads", channels=1, rate=0.0, channel_format="int32")

    def push(first):
        for at in range(first, first + 500):
            outlet.push_sample([at])

    workers = [threading.Thread(target=push, args=(first,)) for first in (0, 500, 1000)]
    for worker in workers:
        worker.start()
    got = []
    while len(got) < 1500:
        sample, _ = inlet.pull_sample(PATIENCE)
        assert sample, f"only {len(got)} came"
        got += sample
    assert sorted(got) == list(range(1500))


def lifecycle():
    """Objects come and go in any order; an unopened, unread one, too."""
    for at in range(50):
        outlet, source_id = announce(f"life {at}")
        inlet = pylsl.StreamInlet(outlet.get_info())
        if at % 2:
            del outlet
        del inlet
    gc.collect()


CHECKS = [
    library,
    stream_info,
    metadata,
    temporaries,
    samples,
    chunks,
    strings,
    inlet_controls,
    loss,
    resolving,
    continuous,
    synchronous,
    buffers,
    threads,
    lifecycle,
]


if __name__ == "__main__":
    wanted = os.environ.get("LSL_EXPECT_LIBRARY", "")
    assert wanted in pylsl.library_info(), f"not {wanted}: {pylsl.library_info()}"
    policy = os.environ.get("LSL_EXPECT_POLICY", "")
    assert pylsl.library_info().endswith(policy), f"not {policy}: {pylsl.library_info()}"
    named = {check.__name__: check for check in CHECKS}
    named[sys.argv[1]]()
