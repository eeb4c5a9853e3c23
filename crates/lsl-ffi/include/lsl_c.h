/*
 * The C API of the Lab Streaming Layer, as liblsl 1.18 has it.
 *
 * Handles may be used from several threads. Destroying an object while another thread is blocked in
 * a call on it ends that call with an error; a destroyed or made-up handle is an error, not a crash.
 *
 * Made by `cargo xtask headers`, not by hand.
 */
#ifndef LSL_C_H
#define LSL_C_H

#include <stdint.h>

#ifndef LIBLSL_C_API
#if defined(LIBLSL_STATIC) || defined(LIBLSL_FFI)
#define LIBLSL_C_API
#elif defined(_WIN32) || defined(__CYGWIN__)
#define LIBLSL_C_API __declspec(dllimport)
#if defined(_MSC_VER) && !defined(LSLNOAUTOLINK)
#pragma comment(lib, "lsl.lib")
#endif
#else
#define LIBLSL_C_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Nominal rate of a stream whose samples come when they come. */
#define LSL_IRREGULAR_RATE 0.0

/** Time stamp that stands for one sampling period after the sample before. */
#define LSL_DEDUCED_TIMESTAMP -1.0

/** Seconds; a timeout of this or more never ends. */
#define LSL_FOREVER 32000000.0

/** No wish for the chunk length. */
#define LSL_NO_PREFERENCE 0

/** Frozen; lsl_library_version() tells what one has. */
#define LIBLSL_COMPILE_HEADER_VERSION 114

/** What a channel value is. Here and below the last name only makes the type four bytes wide. */
typedef enum {
    cft_undefined = 0, /**< Cannot be sent. */
    cft_float32 = 1,
    cft_double64 = 2,
    cft_string = 3, /**< Any bytes of any length. */
    cft_int32 = 4,
    cft_int16 = 5,
    cft_int8 = 6,
    cft_int64 = 7,
    _cft_maxval = 0x7f000000
} lsl_channel_format_t;

/** What an inlet does with time stamps; may be combined. */
typedef enum {
    proc_none = 0,
    proc_clocksync = 1,  /**< Add the time correction. */
    proc_dejitter = 2,   /**< Smooth them. */
    proc_monotonize = 4, /**< Never let them go back. */
    proc_threadsafe = 8, /**< Has no effect here: it always is. */
    proc_ALL = 15,
    _proc_maxval = 0x7f000000
} lsl_processing_options_t;

/** Results of functions, or what they store in *ec. */
typedef enum {
    lsl_no_error = 0,
    lsl_timeout_error = -1,
    lsl_lost_error = -2,     /**< The source is gone for good. */
    lsl_argument_error = -3, /**< A wrong length, format or handle. */
    lsl_internal_error = -4,
    _lsl_error_code_maxval = 0x7f000000
} lsl_error_code_t;

/** Flags of lsl_create_outlet_ex and lsl_create_inlet_ex. */
typedef enum {
    transp_default = 0,
    transp_bufsize_samples = 1,     /**< The buffer size is in samples. */
    transp_bufsize_thousandths = 2, /**< The buffer size is in thousandths of the usual unit. */
    transp_sync_blocking = 4,       /**< Outlets: a push returns when it was sent. Since 1.18. */
    _lsl_transport_options_maxval = 0x7f000000
} lsl_transport_options_t;

/** Handles. Only the library knows what is behind one. */
typedef struct lsl_streaminfo_struct_ *lsl_streaminfo;
typedef struct lsl_xml_ptr_struct_ *lsl_xml_ptr;
typedef struct lsl_outlet_struct_ *lsl_outlet;
typedef struct lsl_inlet_struct_ *lsl_inlet;
typedef struct lsl_continuous_resolver_ *lsl_continuous_resolver;

/* ---- The library: versions, clock, errors, configuration ---- */

/** Protocol version in use, major * 100 + minor: 110. Loads the configuration. */
LIBLSL_C_API int32_t lsl_protocol_version(void);

/** Version of the liblsl whose behaviour this library has, major * 100 + minor: 118. */
LIBLSL_C_API int32_t lsl_library_version(void);

/**
 * Which library this is and whether it encrypts: ".../lsl-secure:LSS1;policy:P", P being off,
 * migrate, required or unusable. A static text.
 */
LIBLSL_C_API const char *lsl_library_info(void);

/** Seconds of a monotonic clock that all LSL programs on this host share. */
LIBLSL_C_API double lsl_local_clock(void);

/**
 * Text of the last failure in this thread, or an empty text. One buffer per thread, never
 * NULL.
 */
LIBLSL_C_API const char *lsl_last_error(void);

/** Releases a string that the library handed out. NULL is allowed; free() does the same. */
LIBLSL_C_API void lsl_destroy_string(char *s);

/** Releases the non-NULL strings of an array, not the array itself. Since 1.18. */
LIBLSL_C_API void lsl_destroy_string_array(char **strings, unsigned long count);

/** Names the configuration file. Only before the configuration is first needed. */
LIBLSL_C_API void lsl_set_config_filename(const char *filename);

/** Gives the configuration as text, before all files. Only before it is first needed. */
LIBLSL_C_API void lsl_set_config_content(const char *content);

/* ---- Stream infos: what a stream is ---- */

/**
 * A new description of a stream, to be destroyed by the caller. NULL if an argument is
 * refused: an empty name, a negative count or rate, an unknown format.
 */
LIBLSL_C_API lsl_streaminfo lsl_create_streaminfo(
    const char *name, const char *type, int32_t channel_count, double nominal_srate,
    lsl_channel_format_t channel_format, const char *source_id);

/** Ends an info. NULL is allowed. */
LIBLSL_C_API void lsl_destroy_streaminfo(lsl_streaminfo info);

/** A deep copy, to be destroyed by the caller. */
LIBLSL_C_API lsl_streaminfo lsl_copy_streaminfo(lsl_streaminfo info);

/** The getters below return texts that live as long as the info; never NULL. */
LIBLSL_C_API const char *lsl_get_name(lsl_streaminfo info);
LIBLSL_C_API const char *lsl_get_type(lsl_streaminfo info);
LIBLSL_C_API int32_t lsl_get_channel_count(lsl_streaminfo info);

/** Samples per second, or LSL_IRREGULAR_RATE. */
LIBLSL_C_API double lsl_get_nominal_srate(lsl_streaminfo info);
LIBLSL_C_API lsl_channel_format_t lsl_get_channel_format(lsl_streaminfo info);

/** What identifies the device across restarts; empty if the stream cannot be recovered. */
LIBLSL_C_API const char *lsl_get_source_id(lsl_streaminfo info);

/** Protocol version of the stream, as 110. */
LIBLSL_C_API int32_t lsl_get_version(lsl_streaminfo info);

/** When the outlet was made, on the clock of its host; 0.0 before that. */
LIBLSL_C_API double lsl_get_created_at(lsl_streaminfo info);

/** Identifies one outlet; empty before there is one. */
LIBLSL_C_API const char *lsl_get_uid(lsl_streaminfo info);
LIBLSL_C_API const char *lsl_get_session_id(lsl_streaminfo info);
LIBLSL_C_API const char *lsl_get_hostname(lsl_streaminfo info);

/** The <desc> element; belongs to the info. NULL if it was removed. */
LIBLSL_C_API lsl_xml_ptr lsl_get_desc(lsl_streaminfo info);

/** The info as XML. The caller releases it (lsl_destroy_string). */
LIBLSL_C_API char *lsl_get_xml(lsl_streaminfo info);

/** Bytes of a value, 0 for strings. */
LIBLSL_C_API int32_t lsl_get_channel_bytes(lsl_streaminfo info);

/** Bytes of a sample, 0 for strings. */
LIBLSL_C_API int32_t lsl_get_sample_bytes(lsl_streaminfo info);

/** Whether an XPath 1.0 predicate holds for the info; 0 also for an invalid one. */
LIBLSL_C_API int32_t lsl_stream_info_matches_query(lsl_streaminfo info, const char *query);

/**
 * An info from XML, to be destroyed by the caller. If that fails its name is "(invalid:
 * reason)".
 */
LIBLSL_C_API lsl_streaminfo lsl_streaminfo_from_xml(const char *xml);

/** Gives the info a new random uid and returns it. Since 1.18. */
LIBLSL_C_API const char *lsl_reset_uid(lsl_streaminfo info);

/* ---- XML: the description within a stream info ---- */

/** Navigation. NULL stands for "no such element" and may be passed everywhere. */
LIBLSL_C_API lsl_xml_ptr lsl_first_child(lsl_xml_ptr e);
LIBLSL_C_API lsl_xml_ptr lsl_last_child(lsl_xml_ptr e);
LIBLSL_C_API lsl_xml_ptr lsl_next_sibling(lsl_xml_ptr e);
LIBLSL_C_API lsl_xml_ptr lsl_previous_sibling(lsl_xml_ptr e);
LIBLSL_C_API lsl_xml_ptr lsl_parent(lsl_xml_ptr e);

/** The first child, next or previous sibling of this name. */
LIBLSL_C_API lsl_xml_ptr lsl_child(lsl_xml_ptr e, const char *name);
LIBLSL_C_API lsl_xml_ptr lsl_next_sibling_n(lsl_xml_ptr e, const char *name);
LIBLSL_C_API lsl_xml_ptr lsl_previous_sibling_n(lsl_xml_ptr e, const char *name);

/** Whether this is no element at all. An element without children is not empty. */
LIBLSL_C_API int32_t lsl_empty(lsl_xml_ptr e);

/** Whether this is no element but text (or NULL). */
LIBLSL_C_API int32_t lsl_is_text(lsl_xml_ptr e);

/** Texts that live until the element is changed or its info destroyed; never NULL. */
LIBLSL_C_API const char *lsl_name(lsl_xml_ptr e);
LIBLSL_C_API const char *lsl_value(lsl_xml_ptr e);

/** Text below the element, or below its first child of a name. */
LIBLSL_C_API const char *lsl_child_value(lsl_xml_ptr e);
LIBLSL_C_API const char *lsl_child_value_n(lsl_xml_ptr e, const char *name);

/** Adds a child that holds a text. Returns e itself, so that calls can be chained. */
LIBLSL_C_API lsl_xml_ptr lsl_append_child_value(lsl_xml_ptr e, const char *name, const char *value);
LIBLSL_C_API lsl_xml_ptr lsl_prepend_child_value(
    lsl_xml_ptr e, const char *name, const char *value);

/** Replaces the text of the first child of this name: 1, or 0 if there is none to replace. */
LIBLSL_C_API int32_t lsl_set_child_value(lsl_xml_ptr e, const char *name, const char *value);

/** Renames an element, changes a text: 1 if done. */
LIBLSL_C_API int32_t lsl_set_name(lsl_xml_ptr e, const char *rhs);
LIBLSL_C_API int32_t lsl_set_value(lsl_xml_ptr e, const char *rhs);

/** Adds an element and returns it. */
LIBLSL_C_API lsl_xml_ptr lsl_append_child(lsl_xml_ptr e, const char *name);
LIBLSL_C_API lsl_xml_ptr lsl_prepend_child(lsl_xml_ptr e, const char *name);

/** Adds a deep copy of another element, also of another info, and returns it. */
LIBLSL_C_API lsl_xml_ptr lsl_append_copy(lsl_xml_ptr e, lsl_xml_ptr source);
LIBLSL_C_API lsl_xml_ptr lsl_prepend_copy(lsl_xml_ptr e, lsl_xml_ptr source);

/** Removes the first child of this name, or this child. */
LIBLSL_C_API void lsl_remove_child_n(lsl_xml_ptr e, const char *name);
LIBLSL_C_API void lsl_remove_child(lsl_xml_ptr e, lsl_xml_ptr child);

/* ---- Outlets: sending ----
 *
 * Types of values: f float, d double, l int64_t, i int32_t, s int16_t, c int8_t, str and buf strings.
 * Endings: t takes a time stamp, tn one for each sample, p whether to push through.
 */

/**
 * Announces a stream. The info is copied. max_buffered: seconds (hundreds of samples if the
 * rate is irregular) kept for a slow consumer. NULL on failure.
 */
LIBLSL_C_API lsl_outlet lsl_create_outlet(
    lsl_streaminfo info, int32_t chunk_size, int32_t max_buffered);

/** As above, max_buffered in the unit that the flags name. */
LIBLSL_C_API lsl_outlet lsl_create_outlet_ex(
    lsl_streaminfo info, int32_t chunk_size, int32_t max_buffered, lsl_transport_options_t flags);

/** Ends the stream. NULL is allowed. */
LIBLSL_C_API void lsl_destroy_outlet(lsl_outlet out);

/** Whether anybody reads: 0 or 1. */
LIBLSL_C_API int32_t lsl_have_consumers(lsl_outlet out);

/** Waits up to timeout seconds until somebody reads: 1, or 0 if nobody came. */
LIBLSL_C_API int32_t lsl_wait_for_consumers(lsl_outlet out, double timeout);

/** The info of the running stream, to be destroyed by the caller. */
LIBLSL_C_API lsl_streaminfo lsl_get_info(lsl_outlet out);

/**
 * Push a sample: one value per channel, converted to the format of the stream. Time stamp 0.0
 * (or none) is now, LSL_DEDUCED_TIMESTAMP one period after the sample before. Without
 * pushthrough the sample waits for a later one. Returns 0 or an error code.
 */
LIBLSL_C_API int32_t lsl_push_sample_f(lsl_outlet out, const float *data);
LIBLSL_C_API int32_t lsl_push_sample_ft(lsl_outlet out, const float *data, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_ftp(
    lsl_outlet out, const float *data, double timestamp, int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_sample_d(lsl_outlet out, const double *data);
LIBLSL_C_API int32_t lsl_push_sample_dt(lsl_outlet out, const double *data, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_dtp(
    lsl_outlet out, const double *data, double timestamp, int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_sample_l(lsl_outlet out, const int64_t *data);
LIBLSL_C_API int32_t lsl_push_sample_lt(lsl_outlet out, const int64_t *data, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_ltp(
    lsl_outlet out, const int64_t *data, double timestamp, int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_sample_i(lsl_outlet out, const int32_t *data);
LIBLSL_C_API int32_t lsl_push_sample_it(lsl_outlet out, const int32_t *data, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_itp(
    lsl_outlet out, const int32_t *data, double timestamp, int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_sample_s(lsl_outlet out, const int16_t *data);
LIBLSL_C_API int32_t lsl_push_sample_st(lsl_outlet out, const int16_t *data, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_stp(
    lsl_outlet out, const int16_t *data, double timestamp, int32_t pushthrough);

/** Signed 8-bit numbers, not text. */
LIBLSL_C_API int32_t lsl_push_sample_c(lsl_outlet out, const char *data);
LIBLSL_C_API int32_t lsl_push_sample_ct(lsl_outlet out, const char *data, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_ctp(
    lsl_outlet out, const char *data, double timestamp, int32_t pushthrough);

/** NUL-terminated strings. */
LIBLSL_C_API int32_t lsl_push_sample_str(lsl_outlet out, const char **data);
LIBLSL_C_API int32_t lsl_push_sample_strt(lsl_outlet out, const char **data, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_strtp(
    lsl_outlet out, const char **data, double timestamp, int32_t pushthrough);

/** Strings of any bytes, each with its length. */
LIBLSL_C_API int32_t lsl_push_sample_buf(
    lsl_outlet out, const char **data, const uint32_t *lengths);
LIBLSL_C_API int32_t lsl_push_sample_buft(
    lsl_outlet out, const char **data, const uint32_t *lengths, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_buftp(
    lsl_outlet out, const char **data, const uint32_t *lengths, double timestamp,
    int32_t pushthrough);

/** A sample in the very layout of the stream, not for strings. */
LIBLSL_C_API int32_t lsl_push_sample_v(lsl_outlet out, const void *data);
LIBLSL_C_API int32_t lsl_push_sample_vt(lsl_outlet out, const void *data, double timestamp);
LIBLSL_C_API int32_t lsl_push_sample_vtp(
    lsl_outlet out, const void *data, double timestamp, int32_t pushthrough);

/**
 * Push samples one after the other; data_elements counts values, so it is samples * channels.
 * One time stamp is that of the last sample, timestamps has one per sample.
 */
LIBLSL_C_API int32_t lsl_push_chunk_f(
    lsl_outlet out, const float *data, unsigned long data_elements);
LIBLSL_C_API int32_t lsl_push_chunk_ft(
    lsl_outlet out, const float *data, unsigned long data_elements, double timestamp);
LIBLSL_C_API int32_t lsl_push_chunk_ftp(
    lsl_outlet out, const float *data, unsigned long data_elements, double timestamp,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_ftn(
    lsl_outlet out, const float *data, unsigned long data_elements, const double *timestamps);
LIBLSL_C_API int32_t lsl_push_chunk_ftnp(
    lsl_outlet out, const float *data, unsigned long data_elements, const double *timestamps,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_d(
    lsl_outlet out, const double *data, unsigned long data_elements);
LIBLSL_C_API int32_t lsl_push_chunk_dt(
    lsl_outlet out, const double *data, unsigned long data_elements, double timestamp);
LIBLSL_C_API int32_t lsl_push_chunk_dtp(
    lsl_outlet out, const double *data, unsigned long data_elements, double timestamp,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_dtn(
    lsl_outlet out, const double *data, unsigned long data_elements, const double *timestamps);
LIBLSL_C_API int32_t lsl_push_chunk_dtnp(
    lsl_outlet out, const double *data, unsigned long data_elements, const double *timestamps,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_l(
    lsl_outlet out, const int64_t *data, unsigned long data_elements);
LIBLSL_C_API int32_t lsl_push_chunk_lt(
    lsl_outlet out, const int64_t *data, unsigned long data_elements, double timestamp);
LIBLSL_C_API int32_t lsl_push_chunk_ltp(
    lsl_outlet out, const int64_t *data, unsigned long data_elements, double timestamp,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_ltn(
    lsl_outlet out, const int64_t *data, unsigned long data_elements, const double *timestamps);
LIBLSL_C_API int32_t lsl_push_chunk_ltnp(
    lsl_outlet out, const int64_t *data, unsigned long data_elements, const double *timestamps,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_i(
    lsl_outlet out, const int32_t *data, unsigned long data_elements);
LIBLSL_C_API int32_t lsl_push_chunk_it(
    lsl_outlet out, const int32_t *data, unsigned long data_elements, double timestamp);
LIBLSL_C_API int32_t lsl_push_chunk_itp(
    lsl_outlet out, const int32_t *data, unsigned long data_elements, double timestamp,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_itn(
    lsl_outlet out, const int32_t *data, unsigned long data_elements, const double *timestamps);
LIBLSL_C_API int32_t lsl_push_chunk_itnp(
    lsl_outlet out, const int32_t *data, unsigned long data_elements, const double *timestamps,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_s(
    lsl_outlet out, const int16_t *data, unsigned long data_elements);
LIBLSL_C_API int32_t lsl_push_chunk_st(
    lsl_outlet out, const int16_t *data, unsigned long data_elements, double timestamp);
LIBLSL_C_API int32_t lsl_push_chunk_stp(
    lsl_outlet out, const int16_t *data, unsigned long data_elements, double timestamp,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_stn(
    lsl_outlet out, const int16_t *data, unsigned long data_elements, const double *timestamps);
LIBLSL_C_API int32_t lsl_push_chunk_stnp(
    lsl_outlet out, const int16_t *data, unsigned long data_elements, const double *timestamps,
    int32_t pushthrough);

/** Signed 8-bit numbers, not text. */
LIBLSL_C_API int32_t lsl_push_chunk_c(
    lsl_outlet out, const char *data, unsigned long data_elements);
LIBLSL_C_API int32_t lsl_push_chunk_ct(
    lsl_outlet out, const char *data, unsigned long data_elements, double timestamp);
LIBLSL_C_API int32_t lsl_push_chunk_ctp(
    lsl_outlet out, const char *data, unsigned long data_elements, double timestamp,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_ctn(
    lsl_outlet out, const char *data, unsigned long data_elements, const double *timestamps);
LIBLSL_C_API int32_t lsl_push_chunk_ctnp(
    lsl_outlet out, const char *data, unsigned long data_elements, const double *timestamps,
    int32_t pushthrough);

/** NUL-terminated strings. */
LIBLSL_C_API int32_t lsl_push_chunk_str(
    lsl_outlet out, const char **data, unsigned long data_elements);
LIBLSL_C_API int32_t lsl_push_chunk_strt(
    lsl_outlet out, const char **data, unsigned long data_elements, double timestamp);
LIBLSL_C_API int32_t lsl_push_chunk_strtp(
    lsl_outlet out, const char **data, unsigned long data_elements, double timestamp,
    int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_strtn(
    lsl_outlet out, const char **data, unsigned long data_elements, const double *timestamps);
LIBLSL_C_API int32_t lsl_push_chunk_strtnp(
    lsl_outlet out, const char **data, unsigned long data_elements, const double *timestamps,
    int32_t pushthrough);

/** Strings of any bytes, each with its length. */
LIBLSL_C_API int32_t lsl_push_chunk_buf(
    lsl_outlet out, const char **data, const uint32_t *lengths, unsigned long data_elements);
LIBLSL_C_API int32_t lsl_push_chunk_buft(
    lsl_outlet out, const char **data, const uint32_t *lengths, unsigned long data_elements,
    double timestamp);
LIBLSL_C_API int32_t lsl_push_chunk_buftp(
    lsl_outlet out, const char **data, const uint32_t *lengths, unsigned long data_elements,
    double timestamp, int32_t pushthrough);
LIBLSL_C_API int32_t lsl_push_chunk_buftn(
    lsl_outlet out, const char **data, const uint32_t *lengths, unsigned long data_elements,
    const double *timestamps);
LIBLSL_C_API int32_t lsl_push_chunk_buftnp(
    lsl_outlet out, const char **data, const uint32_t *lengths, unsigned long data_elements,
    const double *timestamps, int32_t pushthrough);

/* ---- Inlets: receiving ----
 *
 * Wherever there is a parameter ec it gets an lsl_error_code_t, 0 on success; it may be NULL.
 */

/**
 * Prepares to read a stream; does no network I/O yet. The info is copied. max_buflen: seconds
 * (hundreds of samples if the rate is irregular) kept for a slow caller. NULL on failure.
 */
LIBLSL_C_API lsl_inlet lsl_create_inlet(
    lsl_streaminfo info, int32_t max_buflen, int32_t max_chunklen, int32_t recover);

/** As above, max_buflen in the unit that the flags name. */
LIBLSL_C_API lsl_inlet lsl_create_inlet_ex(
    lsl_streaminfo info, int32_t max_buflen, int32_t max_chunklen, int32_t recover,
    lsl_transport_options_t flags);

/** Disconnects. NULL is allowed. */
LIBLSL_C_API void lsl_destroy_inlet(lsl_inlet in);

/**
 * The whole info of the source, to be destroyed by the caller. NULL if it does not come in
 * time.
 */
LIBLSL_C_API lsl_streaminfo lsl_get_fullinfo(lsl_inlet in, double timeout, int32_t *ec);

/** What to add to the time stamps of the source to get times of lsl_local_clock. */
LIBLSL_C_API double lsl_time_correction(lsl_inlet in, double timeout, int32_t *ec);

/** Stores the time of the measurement on the remote clock and its round trip, too. */
LIBLSL_C_API double lsl_time_correction_ex(
    lsl_inlet in, double *remote_time, double *uncertainty, double timeout, int32_t *ec);

/** A combination of lsl_processing_options_t for the time stamps. */
LIBLSL_C_API int32_t lsl_set_postprocessing(lsl_inlet in, uint32_t flags);

/** Connects. Pulling does that, too, but what was sent before the first pull is missed then. */
LIBLSL_C_API void lsl_open_stream(lsl_inlet in, double timeout, int32_t *ec);

/** Disconnects and drops what is queued. */
LIBLSL_C_API void lsl_close_stream(lsl_inlet in);

/** Number of samples that can be pulled without waiting. */
LIBLSL_C_API uint32_t lsl_samples_available(lsl_inlet in);

/** Drops what is queued and tells how many samples that were. */
LIBLSL_C_API uint32_t lsl_inlet_flush(lsl_inlet in);

/** 1 if the source changed its clock since the last call. */
LIBLSL_C_API uint32_t lsl_was_clock_reset(lsl_inlet in);

/** Half-time of the smoothing of proc_dejitter, in samples. */
LIBLSL_C_API int32_t lsl_smoothing_halftime(lsl_inlet in, float value);

/**
 * Pull a sample into buffer_elements = channels values. Returns its time stamp, or 0.0 if none
 * came within timeout seconds; then ec is 0 and the buffer untouched.
 */
LIBLSL_C_API double lsl_pull_sample_f(
    lsl_inlet in, float *buffer, int32_t buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API double lsl_pull_sample_d(
    lsl_inlet in, double *buffer, int32_t buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API double lsl_pull_sample_l(
    lsl_inlet in, int64_t *buffer, int32_t buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API double lsl_pull_sample_i(
    lsl_inlet in, int32_t *buffer, int32_t buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API double lsl_pull_sample_s(
    lsl_inlet in, int16_t *buffer, int32_t buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API double lsl_pull_sample_c(
    lsl_inlet in, char *buffer, int32_t buffer_elements, double timeout, int32_t *ec);

/** The caller releases each string (lsl_destroy_string). */
LIBLSL_C_API double lsl_pull_sample_str(
    lsl_inlet in, char **buffer, int32_t buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API double lsl_pull_sample_buf(
    lsl_inlet in, char **buffer, uint32_t *buffer_lengths, int32_t buffer_elements, double timeout,
    int32_t *ec);
LIBLSL_C_API double lsl_pull_sample_v(
    lsl_inlet in, void *buffer, int32_t buffer_bytes, double timeout, int32_t *ec);

/**
 * Pull samples until the buffer is full or timeout seconds have passed; returns the number of
 * values (samples * channels). timestamp_buffer has one entry per sample, or is NULL.
 */
LIBLSL_C_API unsigned long lsl_pull_chunk_f(
    lsl_inlet in, float *data_buffer, double *timestamp_buffer, unsigned long data_buffer_elements,
    unsigned long timestamp_buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API unsigned long lsl_pull_chunk_d(
    lsl_inlet in, double *data_buffer, double *timestamp_buffer, unsigned long data_buffer_elements,
    unsigned long timestamp_buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API unsigned long lsl_pull_chunk_l(
    lsl_inlet in, int64_t *data_buffer, double *timestamp_buffer,
    unsigned long data_buffer_elements, unsigned long timestamp_buffer_elements, double timeout,
    int32_t *ec);
LIBLSL_C_API unsigned long lsl_pull_chunk_i(
    lsl_inlet in, int32_t *data_buffer, double *timestamp_buffer,
    unsigned long data_buffer_elements, unsigned long timestamp_buffer_elements, double timeout,
    int32_t *ec);
LIBLSL_C_API unsigned long lsl_pull_chunk_s(
    lsl_inlet in, int16_t *data_buffer, double *timestamp_buffer,
    unsigned long data_buffer_elements, unsigned long timestamp_buffer_elements, double timeout,
    int32_t *ec);
LIBLSL_C_API unsigned long lsl_pull_chunk_c(
    lsl_inlet in, char *data_buffer, double *timestamp_buffer, unsigned long data_buffer_elements,
    unsigned long timestamp_buffer_elements, double timeout, int32_t *ec);

/** The caller releases each string (lsl_destroy_string). Unused slots become NULL. */
LIBLSL_C_API unsigned long lsl_pull_chunk_str(
    lsl_inlet in, char **data_buffer, double *timestamp_buffer, unsigned long data_buffer_elements,
    unsigned long timestamp_buffer_elements, double timeout, int32_t *ec);
LIBLSL_C_API unsigned long lsl_pull_chunk_buf(
    lsl_inlet in, char **data_buffer, uint32_t *lengths_buffer, double *timestamp_buffer,
    unsigned long data_buffer_elements, unsigned long timestamp_buffer_elements, double timeout,
    int32_t *ec);

/* ---- Finding streams ---- */

/**
 * Looks for streams in the background until destroyed. A stream is forgotten when it was not
 * heard of for forget_after seconds. NULL if the query is invalid.
 */
LIBLSL_C_API lsl_continuous_resolver lsl_create_continuous_resolver(double forget_after);
LIBLSL_C_API lsl_continuous_resolver lsl_create_continuous_resolver_byprop(
    const char *prop, const char *value, double forget_after);
LIBLSL_C_API lsl_continuous_resolver lsl_create_continuous_resolver_bypred(
    const char *pred, double forget_after);

/** What is visible now: fills in new infos for the caller to destroy, returns how many. */
LIBLSL_C_API int32_t lsl_resolver_results(
    lsl_continuous_resolver res, lsl_streaminfo *buffer, uint32_t buffer_elements);

/** Stops looking. NULL is allowed. */
LIBLSL_C_API void lsl_destroy_continuous_resolver(lsl_continuous_resolver res);

/**
 * Looks for all streams for wait_time seconds. Fills in new infos for the caller to destroy;
 * returns how many, or an error code.
 */
LIBLSL_C_API int32_t lsl_resolve_all(
    lsl_streaminfo *buffer, uint32_t buffer_elements, double wait_time);

/**
 * As above for streams with a property or an XPath 1.0 predicate; returns as soon as there are
 * minimum (after the whole timeout if that is 0).
 */
LIBLSL_C_API int32_t lsl_resolve_byprop(
    lsl_streaminfo *buffer, uint32_t buffer_elements, const char *prop, const char *value,
    int32_t minimum, double timeout);
LIBLSL_C_API int32_t lsl_resolve_bypred(
    lsl_streaminfo *buffer, uint32_t buffer_elements, const char *pred, int32_t minimum,
    double timeout);

#ifdef __cplusplus
}
#endif

#endif
