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
    double idle_seconds;      /**< Since the last sample or later connection; -1.0 before either. */
    uint64_t resumed;         /**< Connections that lost nothing since the one before broke. */
    uint64_t replayed;        /**< Samples pushed before their connection was made. */
    uint64_t lost_exact;      /**< Samples known to be missing. */
    uint64_t lost_unknown;    /**< Interruptions whose loss cannot be told. */
    uint64_t generations;     /**< Numberings met, the first included; 0 if there are none. */
} lslx_inlet_stats_t;

/** State of the data connection of an inlet. */
typedef enum {
    lslx_inlet_connecting = 0, /**< There is none yet, or nobody asked for samples. */
    lslx_inlet_connected = 1,  /**< It flows, or its outlet is there and pauses. */
    lslx_inlet_suspect = 2,    /**< Silent for longer than ever; its outlet is asked. */
    lslx_inlet_searching = 3,  /**< The outlet is gone; it or its successor is looked for. */
    lslx_inlet_ambiguous = 4,  /**< Several could be that one; waits until one is left. */
    lslx_inlet_lost = 5        /**< For good. */
} lslx_inlet_state_t;

/** What is wrong with the timestamps of a stream. */
typedef enum {
    lslx_clock_good = 0,    /**< Nothing, as far as its clock is known (lsl_time_correction). */
    lslx_clock_unix = 1,    /**< They are seconds since 1970. */
    lslx_clock_foreign = 2, /**< They are of another clock. */
    lslx_clock_future = 3,  /**< They lie ahead of the time at which they come. */
    lslx_clock_drifting = 4 /**< They are of a clock that is too fast or too slow. */
} lslx_clock_suspect_t;

/** How an inlet is doing. Later versions add fields at the end, and states. */
typedef struct {
    uint32_t size;           /**< Set it to sizeof(lslx_inlet_health_t); becomes what was filled. */
    uint32_t state;          /**< One of lslx_inlet_state_t. */
    double silent_seconds;   /**< As idle_seconds above, but -1.0 before the first sample. */
    double expected_seconds; /**< So long it may be silent, by its pauses; -1.0 if unknown. */
    uint32_t clock;          /**< One of lslx_clock_suspect_t. */
    uint32_t reserved;
} lslx_inlet_health_t;

/** What the searches of this process have done so far. Later versions add fields at the end. */
typedef struct {
    uint32_t size;              /**< Set it to sizeof(lslx_discovery_stats_t); becomes what was filled. */
    uint32_t reserved;
    uint64_t waves;             /**< Waves of queries that began. */
    uint64_t queries;           /**< Datagrams with a query that left. */
    uint64_t answers;           /**< Answers that counted. */
    uint64_t overruns;          /**< Datagrams that the system dropped for lack of room. */
    uint64_t tcp_probes;        /**< Ports that were asked over TCP. */
    uint64_t tcp_found;         /**< Answers of streams over TCP. */
    uint64_t interface_changes; /**< Times that interfaces or addresses changed. */
    uint64_t rescued;           /**< Outlets that were gone and were found, or their successors. */
    uint64_t conflicts;         /**< Streams of which two are there that cannot be told apart. */
} lslx_discovery_stats_t;

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
    uint64_t resumed;        /**< Connections that went on where the one before broke. */
    uint64_t replayed;       /**< Samples sent to readers that asked for the past. */
    uint64_t replay_refused; /**< Readers that had asked for too much of it, and began live. */
    uint64_t retained_bytes; /**< Memory of the samples that are retained. */
    uint64_t skipped;        /**< Samples given to lslx_outlet_skip. */
} lslx_outlet_stats_t;

/** A reader of an outlet. */
typedef struct {
    char address[64];  /**< Where it connects from: address:port. */
    uint64_t sent;     /**< Samples handed to its socket. */
    uint64_t dropped;  /**< Samples for which it was too slow. */
    uint64_t behind;   /**< Samples that wait for it. */
    uint32_t encrypted; /**< 1 if its connection is encrypted, else 0. */
    uint32_t reserved[5];
} lslx_consumer_t;

/** Samples that are missing between two others. */
typedef struct {
    uint64_t sequence;   /**< Number of the first; of the next sample if lost is 0. */
    uint64_t lost;       /**< How many; 0 if nobody knows. */
    double stamp_before; /**< Raw timestamp of the sample before; 0.0 if there was none. */
    uint32_t reason;     /**< 1 reader too slow, 2 lost before the relay, 3 lost by the device,
                              4 not retained any more, else unknown. */
    uint32_t reserved;
} lslx_gap_t;

/** Which connections a program makes and accepts, or a stream announces. */
typedef enum {
    lslx_policy_off = 0,      /**< Plaintext only. */
    lslx_policy_migrate = 1,  /**< Both, for a time. */
    lslx_policy_required = 2  /**< Encrypted only. */
} lslx_policy_t;

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
 * Starts to connect, as a pull does. Negative: an error code, and always on Windows.
 */
LIBLSL_C_API int32_t lslx_inlet_fd(lsl_inlet in);

/**
 * The same on Windows, and NULL elsewhere or on failure: a manual-reset event, set while
 * samples wait in the inlet or its stream is lost, for WaitForMultipleObjects and its like. Do
 * not set, reset or close it; end all waits for it before lsl_destroy_inlet.
 */
LIBLSL_C_API void *lslx_inlet_handle(lsl_inlet in);

/**
 * Makes the descriptor unreadable, or resets the event, until there is news: 0. If samples
 * wait or the stream is lost it stays as it is: 1. Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_inlet_fd_clear(lsl_inlet in);

/** Fills what stats->size has room for; set that first. 0 or an error code. */
LIBLSL_C_API int32_t lslx_inlet_stats(lsl_inlet in, lslx_inlet_stats_t *stats);
LIBLSL_C_API int32_t lslx_outlet_stats(lsl_outlet out, lslx_outlet_stats_t *stats);

/**
 * How an inlet is doing, filled in the same way: whether its outlet is there, and what is
 * wrong with its timestamps. Asks nobody.
 */
LIBLSL_C_API int32_t lslx_inlet_health(lsl_inlet in, lslx_inlet_health_t *health);

/** What all searches of this process did, filled in the same way. */
LIBLSL_C_API int32_t lslx_discovery_stats(lslx_discovery_stats_t *stats);

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

/**
 * Has the inlet begin with the samples of so many seconds before it is opened, as far as its
 * outlet retains them (RetainSeconds in its lsl_api.cfg); -1.0: with all of them. Before the
 * first call that needs data. 0 or an error code.
 */
LIBLSL_C_API int32_t lslx_inlet_history(lsl_inlet in, double seconds);

/**
 * Has the inlet begin where another one of the same stream ended, perhaps of another process:
 * at what lslx_inlet_position said. Before the first call that needs data. 0 or an error code.
 */
LIBLSL_C_API int32_t lslx_inlet_resume_at(lsl_inlet in, const char *generation, uint64_t next);

/**
 * Stores the number of the first sample that was not received yet, and the name of the
 * numbering, for which there must be room for 65 bytes: 1, or 0 before the stream flows (see
 * lsl_open_stream) and if its samples have no numbers. Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_inlet_position(lsl_inlet in, char *generation, uint64_t *next);

/**
 * Takes the oldest losses that were not taken yet, and returns their number. The inlet keeps
 * 1,024. Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_inlet_gaps(lsl_inlet in, lslx_gap_t *buffer, uint32_t capacity);

/**
 * Says that the device lost so many samples before they could be pushed: readers of lsl-rs
 * learn how many, others nothing. 0 or an error code.
 */
LIBLSL_C_API int32_t lslx_outlet_skip(lsl_outlet out, uint64_t samples);

/**
 * Has searches ask one more host or network directly, those that run included: what KnownPeers
 * of lsl_api.cfg takes, such as amp-pc, 10.1.0.7:16575 or 10.1.2.0/24, in UTF-8. Outlets
 * answer addresses and networks also from beyond the networks of this host; names are only
 * asked. For this process only, and at most 1,024. 0 or an error code: lsl_argument_error for
 * anything else.
 */
LIBLSL_C_API int32_t lslx_add_known_peer(const char *peer);

/**
 * How often a node or a text of a destroyed info was asked for when the library had dropped it
 * already: 0 in a program that keeps its infos long enough.
 */
LIBLSL_C_API int32_t lslx_dropped_reads(void);

/* ---- Encryption ---- */

/**
 * Which connections this process makes and accepts: one of lslx_policy_t. Negative if there is
 * a security configuration that cannot be used: nothing streams then, and lsl_last_error names
 * file, line and remedy. Reads the configuration.
 */
LIBLSL_C_API int32_t lslx_security_policy(void);

/**
 * The same for people: policy, file, name and fingerprint, or what is wrong. Release the texts
 * of this section with lsl_destroy_string.
 */
LIBLSL_C_API char *lslx_security_text(void);

/**
 * What a stream announces: one of lslx_policy_t. A hint that anybody on the network can forge.
 * Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_info_encryption(lsl_streaminfo info);

/**
 * The fingerprint that a stream announces, an empty text if none; claimed, not proven. NULL
 * for anything but an info.
 */
LIBLSL_C_API char *lslx_info_fingerprint(lsl_streaminfo info);

/**
 * Whether the inlet's data connection is encrypted: 1, or 0 in plaintext or without a
 * connection. Negative: an error code.
 */
LIBLSL_C_API int32_t lslx_is_encrypted(lsl_inlet in);

/**
 * With whom the inlet speaks: the fingerprint of the outlet's key, its name in the own trust
 * file, and the cipher. Empty texts without an encrypted connection, NULL for anything but an
 * inlet.
 */
LIBLSL_C_API char *lslx_peer_fingerprint(lsl_inlet in);
LIBLSL_C_API char *lslx_peer_name(lsl_inlet in);
LIBLSL_C_API char *lslx_cipher(lsl_inlet in);

/**
 * Why the inlet has no connection if security is the reason, with what to do; an empty text if
 * all is well. Other than lsl_last_error it tells every thread the same.
 */
LIBLSL_C_API char *lslx_last_security_error(lsl_inlet in);

/**
 * Who the reader is that connects from this address of lslx_outlet_consumers: the fingerprint
 * of its key and its name in the own trust file. Empty texts for a reader in plaintext, NULL
 * if there is no such reader.
 */
LIBLSL_C_API char *lslx_consumer_fingerprint(lsl_outlet out, const char *address);
LIBLSL_C_API char *lslx_consumer_name(lsl_outlet out, const char *address);

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
