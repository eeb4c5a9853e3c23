/* fork while streams are encrypted: a child that seals anything with inherited keys would repeat nonces,
 * and its parent's readers would see records that do not open. A reader in a process of its own, and one
 * in this process, must get every sample over one connection whatever the children do. */
#include <stdatomic.h>
#include <sys/syscall.h>

#include "host.h"
#include "lslx.h"

#define NAME "securefork"

static int is_child;
static atomic_int over;

/* As in fork.c. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

/* Every number from 1 on, in order, until a negative one comes. */
static void read_all(lsl_inlet inlet)
{
    lslx_inlet_stats_t stats = {.size = sizeof stats};
    float sample[2], next = 1;
    int32_t ec = 1;
    char *text;
    for (;;) {
        CHECK(lsl_pull_sample_f(inlet, sample, 2, PATIENCE, &ec) != 0.0);
        CHECK(ec == 0);
        if (sample[0] < 0)
            break;
        if (sample[0] != next)
            fprintf(stderr, "%g instead of %g\n", sample[0], next);
        CHECK(sample[0] == next && sample[1] == -next);
        next++;
    }
    CHECK(next > 20);
    CHECK(lslx_inlet_stats(inlet, &stats) == 0 && stats.reconnects == 0 && stats.dropped == 0);
    CHECK(lslx_is_encrypted(inlet) == 1);
    text = lslx_last_security_error(inlet);
    CHECK(text != NULL && text[0] == '\0');
    lsl_destroy_string(text);
}

static void *read_here(void *inlet)
{
    read_all(inlet);
    return NULL;
}

/* Begun before this process used the library. */
static pid_t begin_reader(void)
{
    char source_id[64];
    lsl_inlet inlet;
    pid_t reader = fork();
    CHECK(reader >= 0);
    if (reader > 0)
        return reader;
    snprintf(source_id, sizeof source_id, NAME "-%ld", (long)getppid());
    inlet = listen_to(source_id, 1);
    read_all(inlet);
    lsl_destroy_inlet(inlet);
    exit(0);
}

static void push_number(lsl_outlet outlet, float number)
{
    float sample[2] = {number, -number};
    CHECK(lsl_push_sample_f(outlet, sample) == 0);
}

static float pushed;

static void *push(void *outlet)
{
    while (!over) {
        push_number(outlet, ++pushed);
        pause_for(0.005);
    }
    return NULL;
}

static void in_child(int round, lsl_outlet outlet, lsl_inlet inlet)
{
    float sample[2] = {77777, 0};
    lslx_consumer_t consumers[2];
    int32_t ec = 1;
    double begin = now();
    is_child = 1;
    if (round % 4 == 1)
        exit(0);
    CHECK(lsl_push_sample_f(outlet, sample) == lsl_internal_error);
    if (round % 4 == 3)
        _exit(0);
    CHECK(lslx_outlet_flush(outlet, 0.2) < 0);
    CHECK(lslx_outlet_consumers(outlet, consumers, 2) < 0);
    CHECK(lsl_pull_sample_f(inlet, sample, 2, 0.2, &ec) == 0.0 && ec == lsl_lost_error);
    lsl_open_stream(inlet, 0.2, &ec);
    CHECK(ec == lsl_lost_error);
    CHECK(lsl_time_correction(inlet, 0.2, &ec) == 0.0 && ec == lsl_lost_error);
    CHECK(lsl_get_fullinfo(inlet, 0.2, &ec) == NULL && ec == lsl_lost_error);
    CHECK(lslx_is_encrypted(inlet) < 0 && lslx_peer_name(inlet) == NULL);
    CHECK(now() - begin < PROMPT);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    if (round % 4 == 2) {
        /* With the same key, but sessions of its own. */
        char own_id[64];
        lsl_outlet own = announce("own", own_id, sizeof own_id);
        lsl_inlet listener = listen_to(own_id, 1);
        CHECK(lslx_security_policy() == lslx_policy_required);
        for (int i = 1; i <= 10; i++)
            exchange(own, listener, (float)i);
        CHECK(lslx_is_encrypted(listener) == 1);
        lsl_destroy_outlet(own);
        lsl_destroy_inlet(listener);
    }
    exit(0);
}

/* Without the handlers that a library has for forks: only the keys themselves can refuse. */
static void behind_the_back(lsl_outlet outlet)
{
#ifdef SYS_fork
    int status;
    pid_t child = (pid_t)syscall(SYS_fork);
    CHECK(child >= 0);
    if (child == 0) {
        float sample[2] = {88888, 0};
        lsl_push_sample_f(outlet, sample);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#else
    (void)outlet;
#endif
}

int main(void)
{
    char source_id[64];
    lsl_outlet outlet;
    lsl_inlet inlet;
    pthread_t pusher, listener;
    pid_t reader = begin_reader();
    int status;
    CHECK(lslx_security_policy() == lslx_policy_required);
    outlet = announce(NAME, source_id, sizeof source_id);
    inlet = listen_to(source_id, 1);
    for (double end = now() + PATIENCE; lslx_outlet_consumers(outlet, NULL, 0) < 2;) {
        CHECK(now() < end);
        pause_for(0.01);
    }
    pusher = start(push, outlet);
    listener = start(read_here, inlet);
    for (int round = 0; round < 8; round++) {
        pid_t child;
        pause_for(0.05);
        child = fork();
        CHECK(child >= 0);
        if (child == 0)
            in_child(round, outlet, inlet);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    over = 1;
    pthread_join(pusher, NULL);
    behind_the_back(outlet);
    for (int i = 0; i < 10; i++)
        push_number(outlet, ++pushed);
    push_number(outlet, -1);
    pthread_join(listener, NULL);
    CHECK(waitpid(reader, &status, 0) == reader);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    lsl_destroy_outlet(outlet);
    lsl_destroy_inlet(inlet);
    return 0;
}
