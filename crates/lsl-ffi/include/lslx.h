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

/**
 * Gets a message of the log: its level as in log.level (-2 errors, -1 warnings, 0 information, 1 and
 * above details), its text, which is good during the call only, and what was given with the callback.
 */
typedef void (*lslx_log_callback)(int32_t level, const char *message, void *user);

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
