"""As peer.py, but through pylsl: what a Python user's program does, with the package's own classes.

It needs a Python with pylsl; that brings its liblsl. Numbers are pushed and pulled as Python lists,
strings as bytes, since they may be no UTF-8.
"""

import sys

import numpy
import pylsl

from peer import (
    Failed,
    Peer,
    c,
    check,
    encryption,
    load,
    serve,
    stamp_from_hex,
    stamp_to_hex,
)

DTYPES = {
    "float32": "<f4",
    "double64": "<f8",
    "string": None,
    "int32": "<i4",
    "int16": "<i2",
    "int8": "<i1",
    "int64": "<i8",
}
CODES = {getattr(pylsl, "cf_" + name): name for name in DTYPES}


class End:
    """A pylsl inlet or outlet and how its values travel."""

    def __init__(self, stream, channel_format, channels):
        self.stream = stream
        self.dtype = DTYPES[CODES[channel_format]]
        self.channels = channels

    def samples_in(self, data):
        """Request values as lists of one list for each sample."""
        if self.dtype is None:
            values = [bytes.fromhex(text) for text in data]
        else:
            values = numpy.frombuffer(bytes.fromhex(data), self.dtype).tolist()
        return [values[at : at + self.channels] for at in range(0, len(values), self.channels)]

    def samples_out(self, samples):
        if self.dtype is None:
            return [text.hex() for sample in samples for text in sample]
        return numpy.array(samples, self.dtype).tobytes().hex()


class PylslPeer(Peer):
    """Answers the commands that the cells use; the rest of `Peer` is not for it."""

    def __init__(self):
        # Objects of pylsl know their library by this name; the settings of its own functions stay.
        super().__init__(load(pylsl.lib.lib._name))

    def cmd_outlet(self, request):
        info = pylsl.StreamInfo(
            request["name"],
            request["type"],
            request["channels"],
            request["rate"],
            request["format"],
            request["source_id"],
        )
        for name, text, _ in request["desc"]:
            info.desc().append_child_value(name, text)
        outlet = pylsl.StreamOutlet(info, transport_flags=request["flags"])
        return {"outlet": self.keep(End(outlet, info.channel_format(), info.channel_count()))}

    def cmd_push(self, request):
        end = self.objects[request["outlet"]]
        (sample,) = end.samples_in(request["data"])
        end.stream.push_sample(sample, stamp_from_hex(request["stamp"]))
        return {}

    def cmd_push_chunk(self, request):
        end = self.objects[request["outlet"]]
        if "stamps" in request:
            stamps = [stamp_from_hex(stamp) for stamp in request["stamps"]]
        else:
            stamps = stamp_from_hex(request["stamp"])
        end.stream.push_chunk(end.samples_in(request["data"]), stamps)
        return {}

    def cmd_consumers(self, request):
        end = self.objects[request["outlet"]]
        return {"found": end.stream.wait_for_consumers(request["timeout"])}

    def cmd_resolve(self, request):
        infos = pylsl.resolve_bypred(request["predicate"], request["minimum"], request["timeout"])
        return {
            "infos": [
                {
                    "info": self.keep(info),
                    "name": info.name(),
                    "source_id": info.source_id().encode().hex(),
                    "uid": info.uid(),
                    "xml": info.as_xml(),
                }
                for info in infos
            ]
        }

    def cmd_inlet(self, request):
        info = self.objects[request["info"]]
        is_string = info.channel_format() == pylsl.cf_string
        inlet = pylsl.StreamInlet(info, as_numpy=is_string)
        return {"inlet": self.keep(End(inlet, info.channel_format(), info.channel_count()))}

    def cmd_open(self, request):
        self.inlet_call(request, "open_stream")
        return {}

    def cmd_pull(self, request):
        end = self.objects[request["inlet"]]
        sample, stamp = self.inlet_call(request, "pull_sample")
        if stamp is None:
            return {}
        return {"stamp": stamp_to_hex(stamp), "data": end.samples_out([sample])}

    def cmd_pull_chunk(self, request):
        end = self.objects[request["inlet"]]
        samples, stamps = self.inlet_call(request, "pull_chunk", max_samples=request["samples"])
        return {"stamps": [stamp_to_hex(stamp) for stamp in stamps], "data": end.samples_out(samples)}

    def cmd_xml(self, request):
        return {"xml": self.inlet_call(request, "info").as_xml().encode().hex()}

    def cmd_time_correction(self, request):
        offset = self.inlet_call(request, "time_correction")
        # pylsl does not tell how uncertain it is.
        remote, uncertainty, code = c.c_double(0), c.c_double(0), c.c_int32(0)
        self.lib.lsl_time_correction_ex(
            self.objects[request["inlet"]].stream.obj,
            c.byref(remote),
            c.byref(uncertainty),
            request["timeout"],
            c.byref(code),
        )
        check(code.value)
        return {"offset": stamp_to_hex(offset), "uncertainty": stamp_to_hex(uncertainty.value)}

    def cmd_encryption(self, request):
        return encryption(self.lib, self.objects[request["inlet"]].stream.obj)

    def last_error(self):
        return self.lib.lsl_last_error().decode(errors="replace")

    def cmd_close(self, request):
        # pylsl frees what nobody refers to any more.
        with self.lock:
            del self.objects[request["handle"]]
        return {}

    def inlet_call(self, request, method, **options):
        inlet = self.objects[request["inlet"]].stream
        try:
            return getattr(inlet, method)(timeout=request["timeout"], **options)
        except (pylsl.util.LostError, TimeoutError) as error:
            raise Failed(f"{type(error).__name__}: {error}") from error


if __name__ == "__main__":
    serve(PylslPeer(), sys.stdin, sys.stdout)
