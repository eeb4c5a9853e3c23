/*
 * The C++ API of the Lab Streaming Layer, as liblsl 1.18 has it, over lsl_c.h; for C++11 and newer.
 *
 * Timeouts are seconds. A call that fails throws lsl::timeout_error, lsl::lost_error,
 * std::invalid_argument or std::runtime_error, with the reason that lsl_last_error() gives. A push
 * throws only if there are too few or too many values or time stamps.
 *
 * Several threads may use an object, as they may its handle, but not while one assigns to it. Objects
 * lie in memory as with liblsl's header since 1.16: a program may load libraries that were built with it.
 */
#ifndef LSL_CPP_H
#define LSL_CPP_H

#if __cplusplus < 201103L && !(defined(_MSC_VER) && _MSC_VER >= 1900)
#error "lsl_cpp.h needs C++11: compile with -std=c++11 or newer"
#endif

#include <cstddef>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lsl_c.h"

namespace lsl {

/// Nominal rate of a stream whose samples come when they come.
const double IRREGULAR_RATE = LSL_IRREGULAR_RATE;

/// Time stamp that stands for one sampling period after the sample before.
const double DEDUCED_TIMESTAMP = LSL_DEDUCED_TIMESTAMP;

/// A timeout that never ends.
const double FOREVER = LSL_FOREVER;

/// What the values of a stream are.
enum channel_format_t {
    cf_undefined = cft_undefined, ///< Cannot be sent.
    cf_float32 = cft_float32,
    cf_double64 = cft_double64,
    cf_string = cft_string, ///< Any bytes of any length.
    cf_int32 = cft_int32,
    cf_int16 = cft_int16,
    cf_int8 = cft_int8,
    cf_int64 = cft_int64
};

/// What an inlet does with time stamps; may be combined.
enum processing_options_t {
    post_none = proc_none,
    post_clocksync = proc_clocksync,   ///< Add the time correction.
    post_dejitter = proc_dejitter,     ///< Smooth them.
    post_monotonize = proc_monotonize, ///< Never let them go back.
    post_threadsafe = proc_threadsafe, ///< Has no effect here: it always is.
    post_ALL = proc_ALL
};

/// The source of a stream is gone, and the inlet cannot or may not find it again.
class lost_error : public std::runtime_error {
public:
    explicit lost_error(const std::string &msg) : std::runtime_error(msg) {}
};

/// What was waited for did not come in time.
class timeout_error : public std::runtime_error {
public:
    explicit timeout_error(const std::string &msg) : std::runtime_error(msg) {}
};

/// Returns the result of a C function that may be a negative error code, for which it throws.
inline int32_t check_error(int32_t ec) {
    if (ec >= 0) return ec;
    std::string reason = lsl_last_error();
    if (reason.empty()) reason = "LSL error " + std::to_string(ec);
    switch (ec) {
    case lsl_timeout_error: throw timeout_error(reason);
    case lsl_lost_error: throw lost_error(reason);
    case lsl_argument_error: throw std::invalid_argument(reason);
    default: throw std::runtime_error(reason);
    }
}

/// Protocol version in use, major * 100 + minor.
inline int32_t protocol_version() { return lsl_protocol_version(); }

/// Version of the library, major * 100 + minor.
inline int32_t library_version() { return lsl_library_version(); }

/// Which library this is, for people to read.
inline const char *library_info() { return lsl_library_info(); }

/// Seconds of a monotonic clock that all LSL programs on this host share.
inline double local_clock() { return lsl_local_clock(); }

/// What the classes below have in common; no part of the interface.
namespace cpp_detail {

/// Returns a handle that a C function made; throws its reason if it made none.
template <typename Handle> Handle made(Handle handle) {
    if (handle == nullptr) throw std::invalid_argument(lsl_last_error());
    return handle;
}

/// Strings as C functions take them: pointers and lengths, good as long as the strings.
struct borrowed_strings {
    borrowed_strings(const std::string *strings, std::size_t count) : data(count), lengths(count) {
        for (std::size_t k = 0; k < count; k++) {
            data[k] = strings[k].data();
            lengths[k] = static_cast<uint32_t>(strings[k].size());
        }
    }

    std::vector<const char *> data;
    std::vector<uint32_t> lengths;
};

/// Room for strings that a C function hands out, which are released in the end.
struct received_strings {
    explicit received_strings(std::size_t count) : data(count), lengths(count) {}
    received_strings(const received_strings &) = delete;
    received_strings &operator=(const received_strings &) = delete;
    ~received_strings() {
        for (char *text : data) lsl_destroy_string(text);
    }

    void copy_to(std::string *strings, std::size_t count) const {
        for (std::size_t k = 0; k < count; k++)
            strings[k].assign(data[k] != nullptr ? data[k] : "", lengths[k]);
    }

    std::vector<char *> data;
    std::vector<uint32_t> lengths;
};

} // namespace cpp_detail

/// An element or a text of a stream's description, or nothing; copies are the same element.
class xml_element {
public:
    xml_element(lsl_xml_ptr handle = nullptr) : handle_(handle) {}

    // Where to go from here; an empty element where there is none.
    xml_element first_child() const { return lsl_first_child(handle_); }
    xml_element last_child() const { return lsl_last_child(handle_); }
    xml_element next_sibling() const { return lsl_next_sibling(handle_); }
    xml_element previous_sibling() const { return lsl_previous_sibling(handle_); }
    xml_element parent() const { return lsl_parent(handle_); }

    // The same, to the first of this name.
    xml_element child(const std::string &name) const { return lsl_child(handle_, name.c_str()); }
    xml_element next_sibling(const std::string &name) const {
        return lsl_next_sibling_n(handle_, name.c_str());
    }
    xml_element previous_sibling(const std::string &name) const {
        return lsl_previous_sibling_n(handle_, name.c_str());
    }

    /// Whether this is no element at all. An element without children is not empty.
    bool empty() const { return lsl_empty(handle_) != 0; }

    /// Whether this is text and no element.
    bool is_text() const { return lsl_is_text(handle_) != 0; }

    // Never NULL; good until the element is changed.
    const char *name() const { return lsl_name(handle_); }
    const char *value() const { return lsl_value(handle_); }
    const char *child_value() const { return lsl_child_value(handle_); }
    const char *child_value(const std::string &name) const {
        return lsl_child_value_n(handle_, name.c_str());
    }

    // Add a child that holds a text; return this element, so that calls can be chained.
    xml_element append_child_value(const std::string &name, const std::string &value) {
        return lsl_append_child_value(handle_, name.c_str(), value.c_str());
    }
    xml_element prepend_child_value(const std::string &name, const std::string &value) {
        return lsl_prepend_child_value(handle_, name.c_str(), value.c_str());
    }

    // Change what is there; whether it was there.
    bool set_child_value(const std::string &name, const std::string &value) {
        return lsl_set_child_value(handle_, name.c_str(), value.c_str()) != 0;
    }
    bool set_name(const std::string &rhs) { return lsl_set_name(handle_, rhs.c_str()) != 0; }
    bool set_value(const std::string &rhs) { return lsl_set_value(handle_, rhs.c_str()) != 0; }

    // Add a child, or a copy of another element with all below it, and return that.
    xml_element append_child(const std::string &name) {
        return lsl_append_child(handle_, name.c_str());
    }
    xml_element prepend_child(const std::string &name) {
        return lsl_prepend_child(handle_, name.c_str());
    }
    xml_element append_copy(const xml_element &e) { return lsl_append_copy(handle_, e.handle_); }
    xml_element prepend_copy(const xml_element &e) { return lsl_prepend_copy(handle_, e.handle_); }

    void remove_child(const std::string &name) { lsl_remove_child_n(handle_, name.c_str()); }
    void remove_child(const xml_element &e) { lsl_remove_child(handle_, e.handle_); }

private:
    lsl_xml_ptr handle_;
};

/// What a stream is. Copies are the same info; clone() makes another.
class stream_info {
public:
    /// source_id tells one device from all others, so that inlets find it again after a restart.
    stream_info(const std::string &name, const std::string &type, int32_t channel_count = 1,
        double nominal_srate = IRREGULAR_RATE, channel_format_t channel_format = cf_float32,
        const std::string &source_id = std::string())
        : stream_info(cpp_detail::made(lsl_create_streaminfo(name.c_str(), type.c_str(),
              channel_count, nominal_srate, static_cast<lsl_channel_format_t>(channel_format),
              source_id.c_str()))) {}

    /// An info to assign another one to.
    stream_info() : stream_info("untitled", "", 0, 0.0, cf_undefined) {}

    /// Takes over an info that C functions made.
    stream_info(lsl_streaminfo handle) : handle_(handle, &lsl_destroy_streaminfo) {}

    /// An info from what as_xml() gave. If that fails its name is "(invalid: reason)".
    static stream_info from_xml(const std::string &xml) {
        return stream_info(lsl_streaminfo_from_xml(xml.c_str()));
    }

    stream_info clone() { return stream_info(lsl_copy_streaminfo(handle_.get())); }

    // What the constructor was told.
    std::string name() const { return lsl_get_name(handle_.get()); }
    std::string type() const { return lsl_get_type(handle_.get()); }
    int32_t channel_count() const { return lsl_get_channel_count(handle_.get()); }
    double nominal_srate() const { return lsl_get_nominal_srate(handle_.get()); }
    channel_format_t channel_format() const {
        return static_cast<channel_format_t>(lsl_get_channel_format(handle_.get()));
    }
    std::string source_id() const { return lsl_get_source_id(handle_.get()); }

    // What the outlet added to it.
    int32_t version() const { return lsl_get_version(handle_.get()); }
    double created_at() const { return lsl_get_created_at(handle_.get()); }
    std::string uid() const { return lsl_get_uid(handle_.get()); }
    std::string session_id() const { return lsl_get_session_id(handle_.get()); }
    std::string hostname() const { return lsl_get_hostname(handle_.get()); }

    /// Gives the info a new random uid and returns it.
    std::string reset_uid() { return lsl_reset_uid(handle_.get()); }

    /// The <desc> element, which belongs to the info. That of a resolved stream is empty: ask an inlet.
    xml_element desc() { return lsl_get_desc(handle_.get()); }

    /// Whether an XPath 1.0 predicate holds for the info.
    bool matches_query(const char *query) const {
        return lsl_stream_info_matches_query(handle_.get(), query) != 0;
    }

    std::string as_xml() const {
        const std::unique_ptr<char, void (*)(char *)> text(
            lsl_get_xml(handle_.get()), &lsl_destroy_string);
        return text ? text.get() : std::string();
    }

    // Bytes of a value and of a sample, 0 for strings.
    int32_t channel_bytes() const { return lsl_get_channel_bytes(handle_.get()); }
    int32_t sample_bytes() const { return lsl_get_sample_bytes(handle_.get()); }

    /// For C functions.
    std::shared_ptr<lsl_streaminfo_struct_> handle() const { return handle_; }

private:
    std::shared_ptr<lsl_streaminfo_struct_> handle_;
};

/// Offers a stream, as long as it lives. Can be moved, not copied.
///
/// Values are float, double, int64_t, int32_t, int16_t, char or std::string, and are converted to the
/// format of the stream. Time stamp 0.0 is now. Without pushthrough samples wait for later ones.
class stream_outlet {
public:
    /// max_buffered: seconds (hundreds of samples if the rate is irregular) kept for a slow reader,
    /// unless flags name another unit. chunk_size has no effect, as in liblsl.
    stream_outlet(const stream_info &info, int32_t chunk_size = 0, int32_t max_buffered = 360,
        lsl_transport_options_t flags = transp_default)
        : channel_count_(info.channel_count()), nominal_srate_(info.nominal_srate()),
          handle_(cpp_detail::made(
                      lsl_create_outlet_ex(info.handle().get(), chunk_size, max_buffered, flags)),
              &lsl_destroy_outlet) {}

    stream_outlet(stream_outlet &&) noexcept = default;
    stream_outlet &operator=(stream_outlet &&) noexcept = default;
    stream_outlet(const stream_outlet &) = delete;
    stream_outlet &operator=(const stream_outlet &) = delete;
    ~stream_outlet() = default;

    /// Pushes a sample in an array of known length: push_sample<float, 8>(array).
    template <class T, int32_t N>
    void push_sample(const T *data, double timestamp = 0.0, bool pushthrough = true) {
        throw_unless_values(static_cast<std::size_t>(N));
        push_sample(data, timestamp, pushthrough);
    }

    /// Pushes a sample, one value per channel.
    template <typename T>
    void push_sample(
        const std::vector<T> &data, double timestamp = 0.0, bool pushthrough = true) {
        throw_unless_values(data.size());
        push_sample(data.data(), timestamp, pushthrough);
    }

    // Where there is only a pointer: push_sample reads a value per channel, push_chunk_multiplexed as
    // many as it is told, sample after sample. A chunk has the time stamp of its last sample, or one
    // for each.
#define LSL_CPP_PUSH(T, x)                                                                          \
    void push_sample(const T *data, double timestamp = 0.0, bool pushthrough = true) {              \
        lsl_push_sample_##x##tp(handle_.get(), data, timestamp, pushthrough);                       \
    }                                                                                               \
    void push_chunk_multiplexed(const T *buffer, std::size_t buffer_elements,                       \
        double timestamp = 0.0, bool pushthrough = true) {                                          \
        lsl_push_chunk_##x##tp(handle_.get(), buffer, static_cast<unsigned long>(buffer_elements),  \
            timestamp, pushthrough);                                                                \
    }                                                                                               \
    void push_chunk_multiplexed(const T *data_buffer, const double *timestamp_buffer,               \
        std::size_t data_buffer_elements, bool pushthrough = true) {                                \
        lsl_push_chunk_##x##tnp(handle_.get(), data_buffer,                                         \
            static_cast<unsigned long>(data_buffer_elements), timestamp_buffer, pushthrough);       \
    }
    LSL_CPP_PUSH(float, f)
    LSL_CPP_PUSH(double, d)
    LSL_CPP_PUSH(int64_t, l)
    LSL_CPP_PUSH(int32_t, i)
    LSL_CPP_PUSH(int16_t, s)
    LSL_CPP_PUSH(char, c)
#undef LSL_CPP_PUSH

    void push_sample(const std::string *data, double timestamp = 0.0, bool pushthrough = true) {
        cpp_detail::borrowed_strings texts(data, channels());
        lsl_push_sample_buftp(
            handle_.get(), texts.data.data(), texts.lengths.data(), timestamp, pushthrough);
    }
    void push_chunk_multiplexed(const std::string *buffer, std::size_t buffer_elements,
        double timestamp = 0.0, bool pushthrough = true) {
        cpp_detail::borrowed_strings texts(buffer, buffer_elements);
        lsl_push_chunk_buftp(handle_.get(), texts.data.data(), texts.lengths.data(),
            static_cast<unsigned long>(buffer_elements), timestamp, pushthrough);
    }
    void push_chunk_multiplexed(const std::string *data_buffer, const double *timestamp_buffer,
        std::size_t data_buffer_elements, bool pushthrough = true) {
        cpp_detail::borrowed_strings texts(data_buffer, data_buffer_elements);
        lsl_push_chunk_buftnp(handle_.get(), texts.data.data(), texts.lengths.data(),
            static_cast<unsigned long>(data_buffer_elements), timestamp_buffer, pushthrough);
    }

    /// Pushes a structure that is a sample of the stream as it lies in memory; not for strings.
    template <class T>
    void push_numeric_struct(const T &sample, double timestamp = 0.0, bool pushthrough = true) {
        throw_unless_sample(sizeof(T));
        push_numeric_raw(&sample, timestamp, pushthrough);
    }

    /// Pushes the bytes of a sample as they lie in memory; not for strings.
    void push_numeric_raw(const void *sample, double timestamp = 0.0, bool pushthrough = true) {
        lsl_push_sample_vtp(handle_.get(), sample, timestamp, pushthrough);
    }

    /// Pushes samples, each a vector or a pointer; timestamp is that of the last.
    template <class T>
    void push_chunk(
        const std::vector<T> &samples, double timestamp = 0.0, bool pushthrough = true) {
        for (std::size_t k = 0; k < samples.size(); k++)
            push_sample(samples[k], stamp(k, samples.size(), timestamp),
                pushthrough && k + 1 == samples.size());
    }

    /// Pushes samples, each with its time stamp.
    template <class T>
    void push_chunk(const std::vector<T> &samples, const std::vector<double> &timestamps,
        bool pushthrough = true) {
        throw_unless_stamps(timestamps.size(), samples.size());
        for (std::size_t k = 0; k < samples.size(); k++)
            push_sample(samples[k], timestamps[k], pushthrough && k + 1 == samples.size());
    }

    /// Pushes structures (push_numeric_struct); timestamp is that of the last.
    template <class T>
    void push_chunk_numeric_structs(
        const std::vector<T> &samples, double timestamp = 0.0, bool pushthrough = true) {
        if (!samples.empty()) throw_unless_sample(sizeof(T));
        for (std::size_t k = 0; k < samples.size(); k++)
            push_numeric_raw(&samples[k], stamp(k, samples.size(), timestamp),
                pushthrough && k + 1 == samples.size());
    }

    /// Pushes structures, each with its time stamp.
    template <class T>
    void push_chunk_numeric_structs(const std::vector<T> &samples,
        const std::vector<double> &timestamps, bool pushthrough = true) {
        throw_unless_stamps(timestamps.size(), samples.size());
        if (!samples.empty()) throw_unless_sample(sizeof(T));
        for (std::size_t k = 0; k < samples.size(); k++)
            push_numeric_raw(&samples[k], timestamps[k], pushthrough && k + 1 == samples.size());
    }

    /// Pushes the values of samples one after the other; timestamp is that of the last sample.
    template <typename T>
    void push_chunk_multiplexed(
        const std::vector<T> &buffer, double timestamp = 0.0, bool pushthrough = true) {
        if (!buffer.empty())
            push_chunk_multiplexed(buffer.data(), buffer.size(), timestamp, pushthrough);
    }

    /// Pushes the values of samples one after the other, with a time stamp for each sample. Without
    /// any time stamp nothing is sent.
    template <typename T>
    void push_chunk_multiplexed(const std::vector<T> &buffer,
        const std::vector<double> &timestamps, bool pushthrough = true) {
        if (buffer.empty() || timestamps.empty()) return;
        if (channels() > 0) throw_unless_stamps(timestamps.size(), buffer.size() / channels());
        push_chunk_multiplexed(buffer.data(), timestamps.data(), buffer.size(), pushthrough);
    }

    /// Whether anybody reads.
    bool have_consumers() { return lsl_have_consumers(handle_.get()) != 0; }

    /// Waits until somebody reads; false if nobody came in time.
    bool wait_for_consumers(double timeout) {
        return lsl_wait_for_consumers(handle_.get(), timeout) != 0;
    }

    /// The info of the running stream.
    stream_info info() const { return stream_info(lsl_get_info(handle_.get())); }

    /// For C functions.
    std::shared_ptr<lsl_outlet_struct_> handle() { return handle_; }

private:
    std::size_t channels() const { return static_cast<std::size_t>(channel_count_); }

    static void throw_unless(bool holds, const char *what, std::size_t given, std::size_t needed) {
        if (!holds)
            throw std::runtime_error(std::string("Wrong number of ") + what + ": " +
                                     std::to_string(given) + ", not " + std::to_string(needed));
    }
    void throw_unless_values(std::size_t given) const {
        throw_unless(given == channels(), "values of a sample", given, channels());
    }
    void throw_unless_sample(std::size_t given) const {
        const std::size_t needed = static_cast<std::size_t>(info().sample_bytes());
        throw_unless(given == needed, "bytes of a sample", given, needed);
    }
    static void throw_unless_stamps(std::size_t given, std::size_t samples) {
        throw_unless(given >= samples, "time stamps", given, samples);
    }

    /// Time stamp of a sample in a chunk, the last of which has this one.
    double stamp(std::size_t index, std::size_t count, double last) const {
        if (index > 0) return DEDUCED_TIMESTAMP;
        if (last == 0.0) last = local_clock();
        const double periods = static_cast<double>(count - 1);
        return nominal_srate_ > 0.0 ? last - periods / nominal_srate_ : last;
    }

    int32_t channel_count_;
    double nominal_srate_;
    std::shared_ptr<lsl_outlet_struct_> handle_;
};

/// Receives a stream. Can be moved, not copied.
///
/// Values are of the types that stream_outlet takes, converted from the format of the stream. A pull
/// returns the time stamp on the sender's clock, or 0.0 if no sample came in time.
class stream_inlet {
public:
    /// max_buflen: seconds (hundreds of samples if the rate is irregular) that wait for pulls, unless
    /// flags name another unit. recover: find the source again if it is lost and has a source id. Of a
    /// default-constructed info: an inlet to assign another one to.
    stream_inlet(const stream_info &info, int32_t max_buflen = 360, int32_t max_chunklen = 0,
        bool recover = true, lsl_transport_options_t flags = transp_default)
        : channel_count_(info.channel_count()),
          handle_(lsl_create_inlet_ex(
                      info.handle().get(), max_buflen, max_chunklen, recover, flags),
              &lsl_destroy_inlet) {
        if (channel_count_ != 0) cpp_detail::made(handle_.get());
    }

    stream_inlet(stream_inlet &&) noexcept = default;
    stream_inlet &operator=(stream_inlet &&) noexcept = default;
    stream_inlet(const stream_inlet &) = delete;
    stream_inlet &operator=(const stream_inlet &) = delete;
    ~stream_inlet() = default;

    /// Everything about the stream, its description too.
    stream_info info(double timeout = FOREVER) {
        int32_t ec = 0;
        lsl_streaminfo full = lsl_get_fullinfo(handle_.get(), timeout, &ec);
        check_error(ec);
        return stream_info(full);
    }

    /// Connects: what is pushed from now on arrives. A pull does it, too.
    void open_stream(double timeout = FOREVER) {
        int32_t ec = 0;
        lsl_open_stream(handle_.get(), timeout, &ec);
        check_error(ec);
    }

    /// Disconnects, and drops what waits.
    void close_stream() { lsl_close_stream(handle_.get()); }

    /// Seconds to add to time stamps for the clock of this host. Only the first call takes a while.
    double time_correction(double timeout = FOREVER) {
        int32_t ec = 0;
        const double correction = lsl_time_correction(handle_.get(), timeout, &ec);
        check_error(ec);
        return correction;
    }

    /// The same, with the sender's clock at that time and the round trip of the measurement.
    double time_correction(double *remote_time, double *uncertainty, double timeout = FOREVER) {
        int32_t ec = 0;
        const double correction =
            lsl_time_correction_ex(handle_.get(), remote_time, uncertainty, timeout, &ec);
        check_error(ec);
        return correction;
    }

    /// Chooses what is done with time stamps: processing_options_t, combined.
    void set_postprocessing(uint32_t flags = post_ALL) {
        check_error(lsl_set_postprocessing(handle_.get(), flags));
    }

    /// Half-time of the smoothing in seconds.
    void smoothing_halftime(float value) {
        check_error(lsl_smoothing_halftime(handle_.get(), value));
    }

    /// Pulls a sample into an array of known length: pull_sample<float, 8>(array).
    template <class T, int N> double pull_sample(T *sample, double timeout = FOREVER) {
        return pull_sample(sample, N, timeout);
    }

    // Pull a sample into a vector, which gets a value per channel, or where there is only a pointer.
    // pull_chunk_multiplexed waits until its buffer is full or the time is up, and returns the number of
    // values; it needs room for whole samples, and for as many time stamps, unless timestamp_buffer is
    // NULL.
#define LSL_CPP_PULL(T, x)                                                                          \
    double pull_sample(std::vector<T> &sample, double timeout = FOREVER) {                          \
        return pull_sample(room(sample), channel_count_, timeout);                                  \
    }                                                                                               \
    double pull_sample(T *buffer, int32_t buffer_elements, double timeout = FOREVER) {              \
        int32_t ec = 0;                                                                             \
        const double timestamp =                                                                    \
            lsl_pull_sample_##x(handle_.get(), buffer, buffer_elements, timeout, &ec);              \
        check_error(ec);                                                                            \
        return timestamp;                                                                           \
    }                                                                                               \
    std::size_t pull_chunk_multiplexed(T *data_buffer, double *timestamp_buffer,                    \
        std::size_t data_buffer_elements, std::size_t timestamp_buffer_elements,                    \
        double timeout = 0.0) {                                                                     \
        int32_t ec = 0;                                                                             \
        const std::size_t count = lsl_pull_chunk_##x(handle_.get(), data_buffer, timestamp_buffer,  \
            static_cast<unsigned long>(data_buffer_elements),                                       \
            static_cast<unsigned long>(timestamp_buffer_elements), timeout, &ec);                   \
        check_error(ec);                                                                            \
        return count;                                                                               \
    }
    LSL_CPP_PULL(float, f)
    LSL_CPP_PULL(double, d)
    LSL_CPP_PULL(int64_t, l)
    LSL_CPP_PULL(int32_t, i)
    LSL_CPP_PULL(int16_t, s)
    LSL_CPP_PULL(char, c)
#undef LSL_CPP_PULL

    double pull_sample(std::vector<std::string> &sample, double timeout = FOREVER) {
        return pull_sample(room(sample), channel_count_, timeout);
    }
    double pull_sample(std::string *buffer, int32_t buffer_elements, double timeout = FOREVER) {
        // The C function would wait for a sample first.
        if (buffer_elements <= 0) throw std::runtime_error("No strings to pull a sample into.");
        const std::size_t count = static_cast<std::size_t>(buffer_elements);
        cpp_detail::received_strings texts(count);
        int32_t ec = 0;
        const double timestamp = lsl_pull_sample_buf(handle_.get(), texts.data.data(),
            texts.lengths.data(), buffer_elements, timeout, &ec);
        check_error(ec);
        texts.copy_to(buffer, count);
        return timestamp;
    }
    std::size_t pull_chunk_multiplexed(std::string *data_buffer, double *timestamp_buffer,
        std::size_t data_buffer_elements, std::size_t timestamp_buffer_elements,
        double timeout = 0.0) {
        cpp_detail::received_strings texts(data_buffer_elements);
        int32_t ec = 0;
        const std::size_t count = lsl_pull_chunk_buf(handle_.get(), texts.data.data(),
            texts.lengths.data(), timestamp_buffer, static_cast<unsigned long>(data_buffer_elements),
            static_cast<unsigned long>(timestamp_buffer_elements), timeout, &ec);
        check_error(ec);
        texts.copy_to(data_buffer, count);
        return count;
    }

    /// Pulls a sample into a structure as it lies in memory; not for strings.
    template <class T> double pull_numeric_struct(T &sample, double timeout = FOREVER) {
        return pull_numeric_raw(&sample, static_cast<int32_t>(sizeof(T)), timeout);
    }

    /// Pulls the bytes of a sample as they lie in memory; not for strings.
    double pull_numeric_raw(void *sample, int32_t buffer_bytes, double timeout = FOREVER) {
        int32_t ec = 0;
        const double timestamp =
            lsl_pull_sample_v(handle_.get(), sample, buffer_bytes, timeout, &ec);
        check_error(ec);
        return timestamp;
    }

    // All samples that have arrived, as vectors of values. Returns whether there were any; the time
    // stamp of the last, or 0.0; or the samples: pull_chunk<float>().
    template <class T>
    bool pull_chunk(std::vector<std::vector<T>> &chunk, std::vector<double> &timestamps) {
        return drain(chunk, &timestamps, values<T>{this}) != 0.0;
    }
    template <class T> double pull_chunk(std::vector<std::vector<T>> &chunk) {
        return drain(chunk, nullptr, values<T>{this});
    }
    template <class T> std::vector<std::vector<T>> pull_chunk() {
        std::vector<std::vector<T>> chunk;
        pull_chunk(chunk);
        return chunk;
    }

    // The same as structures (pull_numeric_struct).
    template <class T>
    bool pull_chunk_numeric_structs(std::vector<T> &chunk, std::vector<double> &timestamps) {
        return drain(chunk, &timestamps, structs<T>{this}) != 0.0;
    }
    template <class T> double pull_chunk_numeric_structs(std::vector<T> &chunk) {
        return drain(chunk, nullptr, structs<T>{this});
    }
    template <class T> std::vector<T> pull_chunk_numeric_structs() {
        std::vector<T> chunk;
        pull_chunk_numeric_structs(chunk);
        return chunk;
    }

    /// Waits for a sample, then pulls it and all that have arrived, value after value, to the end of
    /// vectors that are cleared before unless append is true. Returns whether there were any.
    template <typename T>
    bool pull_chunk_multiplexed(std::vector<T> &chunk, std::vector<double> *timestamps = nullptr,
        double timeout = 0.0, bool append = false) {
        if (!append) {
            chunk.clear();
            if (timestamps != nullptr) timestamps->clear();
        }
        bool found = false;
        std::vector<T> sample;
        for (double stamp = pull_sample(sample, timeout); stamp != 0.0;
             stamp = pull_sample(sample, 0.0)) {
            chunk.insert(chunk.end(), std::make_move_iterator(sample.begin()),
                std::make_move_iterator(sample.end()));
            if (timestamps != nullptr) timestamps->push_back(stamp);
            found = true;
        }
        return found;
    }

    /// How many samples wait for a pull.
    std::size_t samples_available() { return lsl_samples_available(handle_.get()); }

    /// Drops the samples that wait, and returns how many.
    uint32_t flush() noexcept { return lsl_inlet_flush(handle_.get()); }

    /// Whether the sender's clock may be another one than at the last call.
    bool was_clock_reset() { return lsl_was_clock_reset(handle_.get()) != 0; }

    int get_channel_count() const { return channel_count_; }

    /// For C functions.
    std::shared_ptr<lsl_inlet_struct_> handle() { return handle_; }

private:
    /// Gives a vector a value per channel.
    template <typename T> T *room(std::vector<T> &sample) const {
        sample.resize(static_cast<std::size_t>(channel_count_));
        return sample.data();
    }

    // What drain() pulls.
    template <typename T> struct values {
        stream_inlet *inlet;
        double operator()(std::vector<T> &sample) const { return inlet->pull_sample(sample, 0.0); }
    };
    template <typename T> struct structs {
        stream_inlet *inlet;
        double operator()(T &sample) const { return inlet->pull_numeric_struct(sample, 0.0); }
    };

    /// Pulls all samples that have arrived; the time stamp of the last, or 0.0.
    template <class Sample, class Pull>
    static double drain(std::vector<Sample> &chunk, std::vector<double> *timestamps, Pull pull) {
        chunk.clear();
        if (timestamps != nullptr) timestamps->clear();
        double last = 0.0;
        Sample sample = Sample();
        for (double stamp = pull(sample); stamp != 0.0; stamp = pull(sample)) {
            chunk.push_back(sample);
            if (timestamps != nullptr) timestamps->push_back(stamp);
            last = stamp;
        }
        return last;
    }

    int32_t channel_count_;
    std::shared_ptr<lsl_inlet_struct_> handle_;
};

namespace cpp_detail {

/// The infos that a C function writes into a buffer that it is given with its length.
template <typename Find> std::vector<stream_info> found(Find find) {
    const uint32_t room = 16384;
    const std::unique_ptr<lsl_streaminfo[]> buffer(new lsl_streaminfo[room]);
    const int32_t count = check_error(find(buffer.get(), room));
    return std::vector<stream_info>(buffer.get(), buffer.get() + count);
}

} // namespace cpp_detail

/// Looks for streams as long as wait_time lasts, and returns all that answered.
inline std::vector<stream_info> resolve_streams(double wait_time = 1.0) {
    return cpp_detail::found([&](lsl_streaminfo *buffer, uint32_t room) {
        return lsl_resolve_all(buffer, room, wait_time);
    });
}

/// Looks for streams with a property, such as "type", of this value, until there are minimum many or
/// the time is up, and returns those found.
inline std::vector<stream_info> resolve_stream(const std::string &prop, const std::string &value,
    int32_t minimum = 1, double timeout = FOREVER) {
    return cpp_detail::found([&](lsl_streaminfo *buffer, uint32_t room) {
        return lsl_resolve_byprop(buffer, room, prop.c_str(), value.c_str(), minimum, timeout);
    });
}

/// The same for streams for which an XPath 1.0 predicate holds: "type='EEG' and channel_count>8".
inline std::vector<stream_info> resolve_stream(
    const std::string &pred, int32_t minimum = 1, double timeout = FOREVER) {
    return cpp_detail::found([&](lsl_streaminfo *buffer, uint32_t room) {
        return lsl_resolve_bypred(buffer, room, pred.c_str(), minimum, timeout);
    });
}

/// Looks for streams all the time, and knows those of the last forget_after seconds. Can be moved.
class continuous_resolver {
public:
    continuous_resolver(double forget_after = 5.0)
        : handle_(cpp_detail::made(lsl_create_continuous_resolver(forget_after)),
              &lsl_destroy_continuous_resolver) {}

    /// Streams with a property of this value.
    continuous_resolver(
        const std::string &prop, const std::string &value, double forget_after = 5.0)
        : handle_(cpp_detail::made(lsl_create_continuous_resolver_byprop(
                      prop.c_str(), value.c_str(), forget_after)),
              &lsl_destroy_continuous_resolver) {}

    /// Streams for which an XPath 1.0 predicate holds.
    continuous_resolver(const std::string &pred, double forget_after = 5.0)
        : handle_(cpp_detail::made(
                      lsl_create_continuous_resolver_bypred(pred.c_str(), forget_after)),
              &lsl_destroy_continuous_resolver) {}

    /// The streams that are there now; does not wait.
    std::vector<stream_info> results() {
        return cpp_detail::found([this](lsl_streaminfo *buffer, uint32_t room) {
            return lsl_resolver_results(handle_.get(), buffer, room);
        });
    }

private:
    std::unique_ptr<lsl_continuous_resolver_, void (*)(lsl_continuous_resolver)> handle_;
};

} // namespace lsl

#endif
