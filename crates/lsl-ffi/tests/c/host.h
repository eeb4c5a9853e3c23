/* What every host needs: checks that say where they failed, a clock, counts of what a process holds. The
 * counts are the system's matter, and in a header for each. */
#ifndef HOST_H
#define HOST_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef _WIN32
#include "host_windows.h"
#else
#include "host_posix.h"
#endif
#include "lsl_c.h"

/* Seconds within which a call that was told to end must return, also under valgrind. */
#define PROMPT 10.0

/* Seconds for what needs the network; nothing waits that long when all is well. */
#define PATIENCE 30.0

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,            \
                #condition, lsl_last_error());                                                     \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline void pause_for(double seconds)
{
    struct timespec time;
    time.tv_sec = (time_t)seconds;
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

/* An outlet of two float channels whose source id is its name and this process. */
static inline lsl_outlet announce(const char *name, char *source_id, size_t room)
{
    snprintf(source_id, room, "%s-%ld", name, (long)getpid());
    lsl_streaminfo info =
        lsl_create_streaminfo(name, "host", 2, LSL_IRREGULAR_RATE, cft_float32, source_id);
    CHECK(info != NULL);
    lsl_outlet outlet = lsl_create_outlet(info, 0, 60);
    CHECK(outlet != NULL);
    lsl_destroy_streaminfo(info);
    return outlet;
}

/* The info of the only stream with this source id. */
static inline lsl_streaminfo find(const char *source_id)
{
    lsl_streaminfo info = NULL;
    CHECK(lsl_resolve_byprop(&info, 1, "source_id", source_id, 1, PATIENCE) == 1);
    return info;
}

/* An open inlet on the only stream with this source id. */
static inline lsl_inlet listen_to(const char *source_id, int32_t recover)
{
    lsl_streaminfo info = find(source_id);
    lsl_inlet inlet = lsl_create_inlet(info, 60, 0, recover);
    int32_t ec = 1;
    CHECK(inlet != NULL);
    lsl_destroy_streaminfo(info);
    lsl_open_stream(inlet, PATIENCE, &ec);
    CHECK(ec == 0);
    return inlet;
}

/* Sends a sample through and sees it come out. */
static inline void exchange(lsl_outlet outlet, lsl_inlet inlet, float value)
{
    float sample[2] = {value, -value}, got[2] = {0, 0};
    int32_t ec = 1;
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    CHECK(lsl_push_sample_ft(outlet, sample, 1000.0 + value) == 0);
    CHECK(lsl_pull_sample_f(inlet, got, 2, PATIENCE, &ec) == 1000.0 + value);
    CHECK(ec == 0);
    CHECK(got[0] == value && got[1] == -value);
}

/* Destroys so many infos that the library drops whatever was destroyed before; it keeps 8,192. */
static inline void outlive_the_past(void)
{
    for (int i = 0; i < 8192; i++) {
        lsl_streaminfo info = lsl_create_streaminfo("later", "host", 2, 100.0, cft_float32, "later");
        CHECK(lsl_append_child_value(lsl_get_desc(info), "maker", "nobody") != NULL);
        lsl_destroy_streaminfo(info);
    }
}

static inline pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    return thread;
}

#endif
