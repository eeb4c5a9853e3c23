// Uses every class, function and overload of lsl_cpp.h, with and without what has a default, so that it
// compiles only if all are there. With NEWEST also what is newer than the header of liblsl that it is
// compiled with as well (`cargo xtask abi`). Nobody runs it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lsl_cpp.h"

namespace surface {

// That header was read inside of the namespace, with what it includes.
using namespace lsl;

#ifdef NEWEST
// The linker lets a program and its libraries share functions of the classes, so all have to lie alike.
struct outlet_members {
    std::int32_t channels;
    double rate;
    std::shared_ptr<lsl_outlet_struct_> handle;
};
struct inlet_members {
    std::int32_t channels;
    std::shared_ptr<lsl_inlet_struct_> handle;
};
struct resolver_members {
    std::unique_ptr<lsl_continuous_resolver_, void (*)(lsl_continuous_resolver_ *)> handle;
};
static_assert(sizeof(lsl::stream_outlet) == sizeof(outlet_members), "as liblsl has it");
static_assert(sizeof(lsl::stream_inlet) == sizeof(inlet_members), "as liblsl has it");
static_assert(sizeof(lsl::continuous_resolver) == sizeof(resolver_members), "as liblsl has it");
static_assert(sizeof(lsl::stream_info) == sizeof(std::shared_ptr<void>), "as liblsl has it");
static_assert(sizeof(lsl::xml_element) == sizeof(lsl_xml_ptr), "as liblsl has it");
#endif

// Compiles only if an expression has this very type.
template <typename Wanted, typename Got> void is(Got &&)
{
    static_assert(std::is_same<Wanted, typename std::decay<Got>::type>::value, "another type");
}

template <typename T> void values(lsl::stream_outlet &out, lsl::stream_inlet &in)
{
    T array[2] = {T(), T()};
    const T *pointer = array;
    double stamps[2] = {1.0, 2.0};
    const std::size_t two = 2;
    std::vector<T> sample(two);
    std::vector<double> times(two);
    std::vector<std::vector<T>> samples(two, sample);
    std::vector<const T *> pointers(two, pointer);

    out.push_sample<T, 2>(array);
    out.push_sample<T, 2>(array, 1.0);
    out.push_sample<T, 2>(array, 1.0, false);
    out.push_sample(pointer);
    out.push_sample(pointer, 1.0);
    out.push_sample(pointer, 1.0, false);
    out.push_sample(array);
    out.push_sample(sample);
    out.push_sample(sample, 1.0);
    out.push_sample(sample, 1.0, false);
    out.push_chunk(samples);
    out.push_chunk(samples, 1.0);
    out.push_chunk(samples, 1.0, false);
    out.push_chunk(samples, times);
    out.push_chunk(samples, times, false);
    out.push_chunk(pointers);
    out.push_chunk(pointers, times);
    out.push_chunk_multiplexed(sample);
    out.push_chunk_multiplexed(sample, 1.0);
    out.push_chunk_multiplexed(sample, 1.0, false);
    out.push_chunk_multiplexed(sample, times);
    out.push_chunk_multiplexed(sample, times, false);
    out.push_chunk_multiplexed(pointer, two);
    out.push_chunk_multiplexed(pointer, two, 1.0);
    out.push_chunk_multiplexed(pointer, two, 1.0, false);
    out.push_chunk_multiplexed(pointer, stamps, two);
    out.push_chunk_multiplexed(pointer, stamps, two, false);

    is<double>(in.pull_sample<T, 2>(array));
    is<double>(in.pull_sample<T, 2>(array, 1.0));
    is<double>(in.pull_sample(array, 2));
    is<double>(in.pull_sample(array, 2, 1.0));
    is<double>(in.pull_sample(sample));
    is<double>(in.pull_sample(sample, 1.0));
    is<bool>(in.pull_chunk(samples, times));
    is<double>(in.pull_chunk(samples));
    is<std::vector<std::vector<T>>>(in.pull_chunk<T>());
    is<std::size_t>(in.pull_chunk_multiplexed(array, stamps, two, two));
    is<std::size_t>(in.pull_chunk_multiplexed(array, stamps, two, two, 1.0));
    is<bool>(in.pull_chunk_multiplexed(sample));
    is<bool>(in.pull_chunk_multiplexed(sample, &times));
    is<bool>(in.pull_chunk_multiplexed(sample, &times, 1.0));
    is<bool>(in.pull_chunk_multiplexed(sample, nullptr, 1.0, true));
}

template void values<float>(lsl::stream_outlet &, lsl::stream_inlet &);
template void values<double>(lsl::stream_outlet &, lsl::stream_inlet &);
template void values<std::int64_t>(lsl::stream_outlet &, lsl::stream_inlet &);
template void values<std::int32_t>(lsl::stream_outlet &, lsl::stream_inlet &);
template void values<std::int16_t>(lsl::stream_outlet &, lsl::stream_inlet &);
template void values<char>(lsl::stream_outlet &, lsl::stream_inlet &);
template void values<std::string>(lsl::stream_outlet &, lsl::stream_inlet &);

struct stereo {
    float left;
    float right;
};

void structures(lsl::stream_outlet &out, lsl::stream_inlet &in)
{
    stereo sample = {0.0f, 1.0f};
    std::vector<stereo> samples(2, sample);
    std::vector<double> times(2);

    out.push_numeric_struct(sample);
    out.push_numeric_struct(sample, 1.0);
    out.push_numeric_struct(sample, 1.0, false);
    out.push_numeric_raw(&sample);
    out.push_numeric_raw(&sample, 1.0);
    out.push_numeric_raw(&sample, 1.0, false);
    out.push_chunk_numeric_structs(samples);
    out.push_chunk_numeric_structs(samples, 1.0);
    out.push_chunk_numeric_structs(samples, 1.0, false);
    out.push_chunk_numeric_structs(samples, times);
    out.push_chunk_numeric_structs(samples, times, false);

    is<double>(in.pull_numeric_struct(sample));
    is<double>(in.pull_numeric_struct(sample, 1.0));
    is<double>(in.pull_numeric_raw(&sample, 8));
    is<double>(in.pull_numeric_raw(&sample, 8, 1.0));
    is<bool>(in.pull_chunk_numeric_structs(samples, times));
    is<double>(in.pull_chunk_numeric_structs(samples));
    is<std::vector<stereo>>(in.pull_chunk_numeric_structs<stereo>());
}

void outlets(const lsl::stream_info &info)
{
    lsl::stream_outlet out(info);
    lsl::stream_outlet chunked(info, 1);
    lsl::stream_outlet buffered(info, 1, 360);
    lsl::stream_outlet moved(std::move(out));
    is<bool>(moved.have_consumers());
    is<bool>(moved.wait_for_consumers(1.0));
    const lsl::stream_outlet &unchanged = moved;
    is<lsl::stream_info>(unchanged.info());
#ifdef NEWEST
    lsl::stream_outlet flagged(info, 1, 360, transp_sync_blocking);
    chunked = std::move(flagged);
    is<std::shared_ptr<lsl_outlet_struct_>>(chunked.handle());
    using type = lsl::stream_outlet;
    static_assert(std::is_nothrow_move_constructible<type>::value, "moves");
    static_assert(std::is_nothrow_move_assignable<type>::value, "moves");
    static_assert(!std::is_copy_constructible<type>::value, "no copies");
    static_assert(!std::is_copy_assignable<type>::value, "no copies");
#endif
}

void inlets(const lsl::stream_info &info)
{
    lsl::stream_inlet in(info);
    lsl::stream_inlet buffered(info, 360);
    lsl::stream_inlet chunked(info, 360, 1);
    lsl::stream_inlet lossy(info, 360, 1, false);
    is<lsl::stream_info>(in.info());
    is<lsl::stream_info>(in.info(1.0));
    in.open_stream();
    in.open_stream(1.0);
    in.close_stream();
    double remote_time = 0.0;
    double uncertainty = 0.0;
    is<double>(in.time_correction());
    is<double>(in.time_correction(1.0));
    is<double>(in.time_correction(&remote_time, &uncertainty));
    is<double>(in.time_correction(&remote_time, &uncertainty, 1.0));
    in.set_postprocessing();
    in.set_postprocessing(lsl::post_clocksync | lsl::post_dejitter);
    in.smoothing_halftime(90.0f);
    is<std::size_t>(in.samples_available());
    is<bool>(in.was_clock_reset());
    const lsl::stream_inlet &unchanged = in;
    is<int>(unchanged.get_channel_count());
#ifdef NEWEST
    lsl::stream_inlet flagged(info, 360, 1, false, transp_bufsize_samples);
    lsl::stream_inlet moved(std::move(in));
    flagged = std::move(moved);
    is<std::uint32_t>(flagged.flush());
    static_assert(noexcept(flagged.flush()), "throws nothing");
    is<std::shared_ptr<lsl_inlet_struct_>>(flagged.handle());
    using type = lsl::stream_inlet;
    static_assert(std::is_nothrow_move_constructible<type>::value, "moves");
    static_assert(std::is_nothrow_move_assignable<type>::value, "moves");
    static_assert(!std::is_copy_constructible<type>::value, "no copies");
    static_assert(!std::is_copy_assignable<type>::value, "no copies");
#endif
}

void infos(lsl_streaminfo *handle)
{
    lsl::stream_info blank;
    lsl::stream_info named("name", "type");
    lsl::stream_info wide("name", "type", 8);
    lsl::stream_info fast("name", "type", 8, 100.0);
    lsl::stream_info typed("name", "type", 8, lsl::IRREGULAR_RATE, lsl::cf_int64);
    lsl::stream_info whole("name", "type", 8, 100.0, lsl::cf_string, std::string("id"));
    lsl::stream_info taken(*handle);
    lsl::stream_info copy(whole);
    lsl::stream_info moved(std::move(copy));
    blank = moved;
    blank = lsl::stream_info("name", "type");
    is<lsl::stream_info>(lsl::stream_info::from_xml(std::string("<info/>")));
    is<lsl::xml_element>(blank.desc());

    const lsl::stream_info &info = moved;
    is<std::string>(info.name());
    is<std::string>(info.type());
    is<std::int32_t>(info.channel_count());
    is<double>(info.nominal_srate());
    is<lsl::channel_format_t>(info.channel_format());
    is<std::string>(info.source_id());
    is<std::int32_t>(info.version());
    is<double>(info.created_at());
    is<std::string>(info.uid());
    is<std::string>(info.session_id());
    is<std::string>(info.hostname());
    is<bool>(info.matches_query("name='x'"));
    is<std::string>(info.as_xml());
    is<std::int32_t>(info.channel_bytes());
    is<std::int32_t>(info.sample_bytes());
    info.handle();
#ifdef NEWEST
    is<lsl::stream_info>(blank.clone());
    is<std::string>(blank.reset_uid());
    is<std::shared_ptr<lsl_streaminfo_struct_>>(info.handle());
    using type = lsl::stream_info;
    static_assert(std::is_nothrow_copy_constructible<type>::value, "copies");
    static_assert(std::is_nothrow_move_constructible<type>::value, "moves");
    static_assert(std::is_nothrow_move_assignable<type>::value, "moves");
    static_assert(std::is_convertible<lsl_streaminfo, type>::value, "implicit");
#endif
}

void elements(lsl::stream_info &info)
{
    lsl::xml_element nothing;
    nothing = info.desc();
    lsl::xml_element e = info.desc();
    const lsl::xml_element &at = e;
    const std::string name("name");
    is<lsl::xml_element>(at.first_child());
    is<lsl::xml_element>(at.last_child());
    is<lsl::xml_element>(at.next_sibling());
    is<lsl::xml_element>(at.next_sibling(name));
    is<lsl::xml_element>(at.previous_sibling());
    is<lsl::xml_element>(at.previous_sibling(name));
    is<lsl::xml_element>(at.parent());
    is<lsl::xml_element>(at.child(name));
    is<bool>(at.empty());
    is<bool>(at.is_text());
    is<const char *>(at.name());
    is<const char *>(at.value());
    is<const char *>(at.child_value());
    is<const char *>(at.child_value(name));
    is<lsl::xml_element>(e.append_child_value(name, "text").append_child_value("more", "text"));
    is<lsl::xml_element>(e.prepend_child_value(name, "text"));
    is<bool>(e.set_child_value(name, "text"));
    is<bool>(e.set_name(name));
    is<bool>(e.set_value("text"));
    is<lsl::xml_element>(e.append_child(name));
    is<lsl::xml_element>(e.prepend_child(name));
    is<lsl::xml_element>(e.append_copy(at));
    is<lsl::xml_element>(e.prepend_copy(at));
    e.remove_child(name);
    e.remove_child(at.first_child());
}

void searches()
{
    using list = std::vector<lsl::stream_info>;
    is<list>(lsl::resolve_streams());
    is<list>(lsl::resolve_streams(1.0));
    is<list>(lsl::resolve_stream("type", "EEG"));
    is<list>(lsl::resolve_stream("type", "EEG", 2));
    is<list>(lsl::resolve_stream("type", "EEG", 2, 1.0));
    is<list>(lsl::resolve_stream("type='EEG'"));
    is<list>(lsl::resolve_stream("type='EEG'", 2));
    is<list>(lsl::resolve_stream("type='EEG'", 2, 1.0));
    lsl::continuous_resolver all;
    lsl::continuous_resolver forgetful(1.0);
    lsl::continuous_resolver typed("type", "EEG");
    lsl::continuous_resolver typed_forgetful("type", "EEG", 1.0);
    lsl::continuous_resolver matching("type='EEG'");
    lsl::continuous_resolver matching_forgetful("type='EEG'", 1.0);
    is<list>(all.results());
#ifdef NEWEST
    lsl::continuous_resolver moved(std::move(all));
    forgetful = std::move(moved);
    static_assert(!std::is_copy_constructible<lsl::continuous_resolver>::value, "no copies");
#endif
}

void others()
{
    is<std::int32_t>(lsl::protocol_version());
    is<std::int32_t>(lsl::library_version());
    is<const char *>(lsl::library_info());
    is<double>(lsl::local_clock());
    is<double>(lsl::IRREGULAR_RATE);
    is<double>(lsl::DEDUCED_TIMESTAMP);
    is<double>(lsl::FOREVER);
    for (lsl::channel_format_t format : {lsl::cf_undefined, lsl::cf_float32, lsl::cf_double64,
             lsl::cf_string, lsl::cf_int32, lsl::cf_int16, lsl::cf_int8, lsl::cf_int64})
        is<lsl::channel_format_t>(format);
    for (lsl::processing_options_t option : {lsl::post_none, lsl::post_clocksync,
             lsl::post_dejitter, lsl::post_monotonize, lsl::post_threadsafe, lsl::post_ALL})
        is<lsl::processing_options_t>(option);
    try {
        lsl::check_error(0);
        throw lsl::lost_error("lost");
    } catch (const lsl::timeout_error &) {
    } catch (const lsl::lost_error &) {
    }
    const lsl::timeout_error late(std::string("late"));
    is<lsl::timeout_error>(late);
    static_assert(std::is_base_of<std::runtime_error, lsl::timeout_error>::value, "its base");
    static_assert(std::is_base_of<std::runtime_error, lsl::lost_error>::value, "its base");
#ifdef NEWEST
    is<std::int32_t>(lsl::check_error(1));
#endif
}

} // namespace surface
