// A program as C++ users write it, on lsl_cpp.h, liblsl's or ours: numbers, strings and a description go
// through an outlet and an inlet, and the library tells its name at the end.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "lsl_cpp.h"

namespace {

void check(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "not so: %s\n", what);
    std::exit(1);
}

template <typename T>
void exchange(lsl::channel_format_t format, const std::vector<std::vector<T>> &samples)
{
    const std::string id = "program-" + std::to_string(getpid()) + "-" + std::to_string(format);
    lsl::stream_info info("program", "test", 2, 100.0, format, id);
    lsl::xml_element channels = info.desc().append_child("channels");
    channels.append_child("channel").append_child_value("label", "C3").append_child_value("unit", "uV");
    channels.append_child("channel").append_child_value("label", "C4");
    lsl::stream_outlet outlet(info);

    std::vector<lsl::stream_info> found = lsl::resolve_stream("source_id", id, 1, 20.0);
    check(found.size() == 1, "one stream is found");
    check(found[0].name() == "program" && found[0].channel_count() == 2, "it is the right one");
    lsl::stream_inlet inlet(found[0]);
    lsl::stream_info full = inlet.info(20.0);
    lsl::xml_element first = full.desc().child("channels").child("channel");
    check(std::string(first.child_value("label")) == "C3", "the description arrives");
    check(std::string(first.next_sibling("channel").child_value("label")) == "C4", "all of it");
    check(full.as_xml().find("<label>C4</label>") != std::string::npos, "also as text");

    inlet.open_stream(20.0);
    check(outlet.wait_for_consumers(20.0), "the inlet is seen");
    outlet.push_sample(samples[0], 100.5);
    std::vector<T> sample;
    check(inlet.pull_sample(sample, 20.0) == 100.5, "the stamp arrives");
    check(sample == samples[0], "the sample arrives");
    outlet.push_chunk(samples);
    std::vector<std::vector<T>> all;
    while (all.size() < samples.size()) {
        check(inlet.pull_sample(sample, 20.0) != 0.0, "the chunk arrives");
        all.push_back(sample);
    }
    check(all == samples, "as it was");
    check(inlet.pull_sample(sample, 0.0) == 0.0, "nothing else does");
    check(inlet.time_correction(20.0) < 0.01, "the clocks agree");
    inlet.set_postprocessing(lsl::post_ALL);
    inlet.close_stream();
}

}  // namespace

int main()
{
    exchange<float>(lsl::cf_float32, {{1.5f, -2.5f}, {3.5f, 4.5f}, {0.0f, 1e30f}});
    exchange<double>(lsl::cf_double64, {{1.5, -2.5}, {3.5, 4.5}});
    exchange<std::int32_t>(lsl::cf_int32, {{1, -2}, {3, 2147483647}});
    exchange<std::int16_t>(lsl::cf_int16, {{1, -2}, {3, 32767}});
    exchange<char>(lsl::cf_int8, {{1, 2}, {3, 127}});
    exchange<std::string>(
        lsl::cf_string, {{"text", ""}, {std::string("nul\0inside", 10), std::string(70000, 'x')}});

    lsl::stream_inlet nobody(lsl::stream_info("nobody", "test", 1, 0.0, lsl::cf_int8, "nobody"));
    try {
        nobody.open_stream(0.2);
        check(false, "a stream that nobody offers does not open");
    } catch (const lsl::timeout_error &) {
    }
    lsl::stream_info blank;
    // As members are made before there is a stream.
    lsl::stream_inlet later(blank);
    std::vector<std::string> none;
    try {
        later.pull_sample(none.data(), 0, 20.0);
        check(false, "no strings are no sample");
    } catch (const std::runtime_error &) {
    }
    lsl::continuous_resolver resolver(5.0);
    lsl::stream_outlet outlet(lsl::stream_info("seen", "test", 1, 0.0, lsl::cf_int8, "seen"));
    for (int tries = 0; resolver.results().empty(); tries++) {
        check(tries < 200, "the continuous resolver finds a stream");
        usleep(100000);
    }
    check(lsl::resolve_streams(1.0).size() == 1, "resolve_streams finds it, too");
    std::printf("works with %s\n", lsl::library_info());
}
