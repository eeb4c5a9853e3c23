/* Hundreds or thousands of outlets in one process and as many inlets in another: everything is found,
 * opened and delivered, with one thread of the library's in each, few descriptors, and a limit on these
 * that was too low at the start.
 *   scale CYCLES    a stream for every five cycles that other hosts are asked for */
#include <sys/resource.h>

#include "host.h"

/* Threads that the library may have, on machines with many cores. */
enum { THREADS = 2, CHANNELS = 8 };

/* Descriptors that do not depend on the number of streams. */
enum { SHARED = 24, LOW_LIMIT = 256 };

/* What one process measured; seconds and kilobytes. */
struct measured {
    int threads, descriptors;
    long memory_kb;
    double made, resolved, listed, opened, clocks, destroyed;
};

static char type[32];

static void tell(int to, char word) { CHECK(write(to, &word, 1) == 1); }

static void hear(int from, char expected)
{
    char word = 0;
    CHECK(read(from, &word, 1) == 1 && word == expected);
}

/* The lowest of a few counts: what only lives while it has work does not count. */
static int settled(int (*counted)(void))
{
    int lowest = counted();
    for (int i = 0; i < 10; i++) {
        int count;
        pause_for(0.1);
        count = counted();
        lowest = count < lowest ? count : lowest;
    }
    return lowest;
}

static void lower_the_limit(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = LOW_LIMIT;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static struct measured offer(int streams, int from, int to)
{
    lsl_outlet *outlets = calloc((size_t)streams, sizeof *outlets);
    struct measured seen = {0};
    float sample[CHANNELS] = {1, 2, 3};
    int threads_before = threads(), descriptors_before = descriptors();
    long memory_before = resident();
    double start = now();
    CHECK(outlets != NULL);
    for (int i = 0; i < streams; i++) {
        char name[32];
        lsl_streaminfo info;
        snprintf(name, sizeof name, "scale-%d", i);
        info = lsl_create_streaminfo(name, type, CHANNELS, 100, cft_float32, name);
        outlets[i] = lsl_create_outlet(info, 0, 60);
        CHECK(outlets[i] != NULL);
        lsl_destroy_streaminfo(info);
    }
    seen.made = now() - start;
    tell(to, 'o');
    hear(from, 'c');
    for (int i = 0; i < streams; i++) {
        CHECK(lsl_have_consumers(outlets[i]));
        CHECK(lsl_push_sample_ft(outlets[i], sample, 1000.0 + i) == 0);
    }
    tell(to, 'p');
    hear(from, 'd');
    seen.threads = settled(threads) - threads_before;
    seen.descriptors = descriptors() - descriptors_before;
    seen.memory_kb = resident() - memory_before;
    start = now();
    for (int i = 0; i < streams; i++)
        lsl_destroy_outlet(outlets[i]);
    seen.destroyed = now() - start;
    free(outlets);
    return seen;
}

static struct measured read_all(int streams, int from, int to)
{
    lsl_streaminfo *found = calloc((size_t)streams + 1, sizeof *found);
    lsl_inlet *inlets = calloc((size_t)streams, sizeof *inlets);
    struct measured seen = {0};
    float sample[CHANNELS];
    int threads_before = threads(), descriptors_before = descriptors();
    long memory_before = resident();
    int32_t ec = 0;
    double start = now();
    int listed;
    CHECK(found != NULL && inlets != NULL);
    CHECK(lsl_resolve_byprop(found, (uint32_t)streams + 1, "type", type, streams, PATIENCE) == streams);
    seen.resolved = now() - start;
    for (int i = 0; i < streams; i++)
        lsl_destroy_streaminfo(found[i]);
    listed = lsl_resolve_byprop(found, (uint32_t)streams + 1, "type", type, 0, 1.0);
    /* A second is long for hundreds, even where other tests run at the same time. */
    CHECK(listed == streams || (streams > 500 && listed > 0));
    seen.listed = listed;
    for (int i = 0; i < listed; i++)
        lsl_destroy_streaminfo(found[i]);
    CHECK(lsl_resolve_byprop(found, (uint32_t)streams + 1, "type", type, streams, PATIENCE) == streams);
    start = now();
    for (int i = 0; i < streams; i++) {
        inlets[i] = lsl_create_inlet(found[i], 60, 0, 1);
        CHECK(inlets[i] != NULL);
        lsl_destroy_streaminfo(found[i]);
    }
    for (int i = 0; i < streams; i++) {
        lsl_open_stream(inlets[i], PATIENCE, &ec);
        CHECK(ec == 0);
    }
    seen.opened = now() - start;
    tell(to, 'c');
    hear(from, 'p');
    for (int i = 0; i < streams; i++) {
        double stamp = lsl_pull_sample_f(inlets[i], sample, CHANNELS, PATIENCE, &ec);
        CHECK(ec == 0 && stamp >= 1000.0 && sample[1] == 2);
    }
    start = now();
    /* All at the same time. */
    for (int i = 0; i < streams; i++)
        lsl_time_correction(inlets[i], 0.0, &ec);
    for (int i = 0; i < streams; i++) {
        double offset = lsl_time_correction(inlets[i], PATIENCE, &ec);
        CHECK(ec == 0 && offset < 1 && offset > -1);
    }
    seen.clocks = now() - start;
    seen.threads = settled(threads) - threads_before;
    seen.descriptors = descriptors() - descriptors_before;
    seen.memory_kb = resident() - memory_before;
    start = now();
    for (int i = 0; i < streams; i++)
        lsl_destroy_inlet(inlets[i]);
    seen.destroyed = now() - start;
    tell(to, 'd');
    free(found);
    free(inlets);
    return seen;
}

int main(int count, char **arguments)
{
    int streams = (count > 1 ? atoi(arguments[1]) : 1000) / 5;
    int there[2], back[2], results[2], status;
    struct measured out, in;
    pid_t outlets, inlets;
    snprintf(type, sizeof type, "scale-%ld", (long)getpid());
    CHECK(pipe(there) == 0 && pipe(back) == 0 && pipe(results) == 0);
    lower_the_limit();
    outlets = fork();
    CHECK(outlets >= 0);
    if (outlets == 0) {
        out = offer(streams, back[0], there[1]);
        CHECK(write(results[1], &out, sizeof out) == (ssize_t)sizeof out);
        exit(0);
    }
    inlets = fork();
    CHECK(inlets >= 0);
    if (inlets == 0) {
        hear(there[0], 'o');
        in = read_all(streams, there[0], back[1]);
        CHECK(write(results[1], &in, sizeof in) == (ssize_t)sizeof in);
        exit(0);
    }
    /* The inlets end first, but either may fail, and then the other waits in vain. */
    for (int i = 0; i < 2; i++) {
        pid_t ended = wait(&status);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            kill(ended == outlets ? inlets : outlets, SIGKILL);
            return 1;
        }
    }
    close(results[1]);
    CHECK(read(results[0], &in, sizeof in) == (ssize_t)sizeof in);
    CHECK(read(results[0], &out, sizeof out) == (ssize_t)sizeof out);
    if (in.resolved == 0) {
        struct measured swap = in;
        in = out;
        out = swap;
    }
    printf("%d streams: made in %.3f s; found in %.3f s, %.0f of them by looking for 1 s; opened in %.3f s; "
           "clocks in %.3f s; destroyed in %.3f and %.3f s; per outlet %.2f descriptors and %.1f kB, per "
           "inlet %.2f and %.1f; threads %d and %d\n",
        streams, out.made, in.resolved, in.listed, in.opened, in.clocks, out.destroyed, in.destroyed,
        (double)out.descriptors / streams, (double)out.memory_kb / streams,
        (double)in.descriptors / streams, (double)in.memory_kb / streams, out.threads, in.threads);
    CHECK(out.threads <= THREADS && in.threads <= THREADS);
    CHECK(out.descriptors <= SHARED + 4 * streams);
    CHECK(in.descriptors <= SHARED + 2 * streams);
    return 0;
}
