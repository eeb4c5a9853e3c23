/*
 * What lsl-rs has beyond liblsl. A program that uses it runs with lsl-rs only; to run with liblsl, too,
 * look the functions up by name (dlsym).
 *
 * Made by `cargo xtask headers`, not by hand.
 */
#ifndef LSLX_H
#define LSLX_H

#include "lsl_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What an inlet has done so far. Later versions add fields at the end. */
typedef struct {
    uint32_t size;            /**< Set it to sizeof(lslx_inlet_stats_t); becomes what was filled. */
    uint32_t reserved;
    uint64_t samples;         /**< Received. */
    uint64_t bytes;           /**< Received on the data connection. */
    uint64_t dropped;         /**< Samples that nobody pulled in time. */
    uint64_t reconnects;      /**< Times the connection was made again after a loss. */
    uint64_t available;       /**< Samples that wait to be pulled. */
    uint64_t available_bytes; /**< The memory of their values. */
    double idle_seconds;      /**< Since the last sample; -1.0 before the first. */
} lslx_inlet_stats_t;

/** What an outlet has done so far. Later versions add fields at the end. */
typedef struct {
    uint32_t size;           /**< Set it to sizeof(lslx_outlet_stats_t); becomes what was filled. */
    uint32_t reserved;
    uint64_t samples;        /**< Pushed, whether or not anybody read them. */
    uint64_t bytes;          /**< Handed to the sockets of readers. */
    uint64_t dropped;        /**< Samples for which a reader was too slow. */
    uint64_t consumers_seen; /**< Readers that ever connected. */
    uint64_t refused;        /**< Connections ended for what the peer did or wanted. */
    uint64_t backlog_bytes;  /**< What waits for slow readers. */
} lslx_outlet_stats_t;

/** A reader of an outlet. */
typedef struct {
    char address[64];  /**< Where it connects from: address:port. */
    uint64_t sent;     /**< Samples handed to its socket. */
    uint64_t dropped;  /**< Samples for which it was too slow. */
    uint64_t behind;   /**< Samples that wait for it. */
    uint64_t reserved[3];
} lslx_consumer_t;

/**
 * Gets a message of the log: its level as in log.level (-2 errors, -1 warnings, 0 information, 1 and
 * above details), its text, which is good during the call only, and what was given with the callback.
 */
typedef void (*lslx_log_callback)(int32_t level, const char *message, void *user);

/* ---- Streams ---- */

/**
 * A file descriptor that is readable while samples wait in the inlet or its stream is lost,
 * for poll and event loops; the same on every call. When it is readable pull until nothing is
 * left, then call lslx_inlet_fd_clear. Do not read, write or close it; it ends with the inlet.
 * Starts to connect, as a pull does. Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_inlet_fd(lsl_inlet in);

/**
 * Makes the descriptor unreadable until there is news: 0. If samples wait or the stream is
 * lost it stays readable: 1. Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_inlet_fd_clear(lsl_inlet in);

/** Fills what stats->size has room for; set that first. 0 or an error code. */
LIBLSL_C_API int32_t lslx_inlet_stats(lsl_inlet in, lslx_inlet_stats_t *stats);
LIBLSL_C_API int32_t lslx_outlet_stats(lsl_outlet out, lslx_outlet_stats_t *stats);

/**
 * Fills in at most capacity readers and returns how many there are, which may be more.
 * Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_outlet_consumers(
    lsl_outlet out, lslx_consumer_t *buffer, uint32_t capacity);

/**
 * Sends everything pushed so far, also what waits for a pushthrough, until it was handed to
 * every reader's socket: 1, or 0 after timeout seconds. Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_outlet_flush(lsl_outlet out, double timeout);

/* ---- The log ---- */

/**
 * Gives every message to the callback instead of writing it; NULL writes again. Set before the
 * first other call, it gets the messages about the configuration, too. Any thread of the
 * library calls it, several at once. It may call the library, but not unwind or jump out.
 */
LIBLSL_C_API void lslx_set_log_callback(lslx_log_callback callback, void *user);

#ifdef __cplusplus
}
#endif

#endif
