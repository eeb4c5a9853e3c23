/* What `cargo xtask instructions` counts on the C library: a stream of 64 float32 channels as a program
 * in C sends or receives it, over loopback.
 *
 *   stream LIBRARY outlet|inlet BATCH SAMPLES
 *
 * The process is one side; it starts the other one itself, in a process that valgrind does not follow.
 * BATCH samples are pushed together, 1 with lsl_push_sample_ftp and more with lsl_push_chunk_ftp, and
 * pulled alike. Between two pushes the outlet rests, so that the reader has caught up: the usual case.
 * The cost of a sample is the difference of two runs that differ in SAMPLES alone, so set-up cancels out.
 * Works on any library with liblsl's ABI. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHANNELS = 64, MAX_BATCH = 1024, FLOAT32 = 1, WARM_UP = 64 };

/* Nominal; only sizes buffers. */
static const double RATE = 1000.0;

/* Under valgrind a push takes some hundred microseconds. */
static const long REST_NS = 2000000;

typedef void *(*create_info)(const char *, const char *, int32_t, double, int32_t, const char *);
typedef void *(*create_outlet)(void *, int32_t, int32_t);
typedef int32_t (*wait_for_consumers)(void *, double);
typedef int32_t (*push_sample)(void *, const float *, double, int32_t);
typedef int32_t (*push_chunk)(void *, const float *, unsigned long, double, int32_t);
typedef int32_t (*resolve)(void **, uint32_t, const char *, const char *, int32_t, double);
typedef void *(*create_inlet)(void *, int32_t, int32_t, int32_t);
typedef void (*open_stream)(void *, double, int32_t *);
typedef double (*pull_sample)(void *, float *, int32_t, double, int32_t *);
typedef unsigned long (*pull_chunk)(void *, float *, double *, unsigned long, unsigned long, double,
                                    int32_t *);

static void *library;
static float values[CHANNELS * MAX_BATCH];
static double stamps[MAX_BATCH];

static void fail(const char *why)
{
    fprintf(stderr, "stream: %s\n", why);
    exit(EXIT_FAILURE);
}

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail(dlerror());
    return found;
}

/* Sends until `samples` are sent, then waits for the other side, which says that it has them all. */
static void run_outlet(const char *name, unsigned long batch, unsigned long samples, FILE *peer)
{
    void *info = ((create_info)symbol("lsl_create_streaminfo"))(name, "Counts", CHANNELS, RATE, FLOAT32,
                                                                name);
    void *outlet = info ? ((create_outlet)symbol("lsl_create_outlet"))(info, 0, 360) : NULL;
    push_sample one = (push_sample)symbol("lsl_push_sample_ftp");
    push_chunk many = (push_chunk)symbol("lsl_push_chunk_ftp");
    struct timespec rest = {0, REST_NS};
    unsigned long sent;
    if (!outlet)
        fail("no outlet");
    if (!((wait_for_consumers)symbol("lsl_wait_for_consumers"))(outlet, 60.0))
        fail("nobody came");
    for (sent = 0; sent < samples; sent += batch) {
        int32_t error = batch == 1 ? one(outlet, values, 1.0 + (double)sent, 1)
                                   : many(outlet, values, batch * CHANNELS, 1.0 + (double)sent, 1);
        if (error)
            fail("a push failed");
        nanosleep(&rest, NULL);
    }
    /* End of input or end of the other side. */
    while (fgetc(peer) != EOF)
        ;
}

/* Receives until `samples` are there. */
static void run_inlet(const char *name, unsigned long batch, unsigned long samples)
{
    void *info = NULL;
    void *inlet;
    int32_t error = 0;
    unsigned long received = 0;
    pull_sample one = (pull_sample)symbol("lsl_pull_sample_f");
    pull_chunk many = (pull_chunk)symbol("lsl_pull_chunk_f");
    if (((resolve)symbol("lsl_resolve_byprop"))(&info, 1, "name", name, 1, 60.0) != 1)
        fail("the stream was not found");
    inlet = ((create_inlet)symbol("lsl_create_inlet"))(info, 360, 0, 1);
    if (!inlet)
        fail("no inlet");
    ((open_stream)symbol("lsl_open_stream"))(inlet, 60.0, &error);
    if (error)
        fail("the stream did not open");
    while (received < samples) {
        if (batch == 1) {
            if (one(inlet, values, CHANNELS, 60.0, &error) == 0.0 || error)
                fail("a pull failed");
            received += 1;
        } else {
            received += many(inlet, values, stamps, batch * CHANNELS, batch, 60.0, &error) / CHANNELS;
            if (error)
                fail("a pull failed");
        }
    }
}

int main(int count, char **words)
{
    char name[64];
    char command[4096];
    const char *given = getenv("COUNTS_STREAM");
    unsigned long batch;
    unsigned long samples;
    if (count != 5)
        fail("stream LIBRARY outlet|inlet BATCH SAMPLES");
    batch = strtoul(words[3], NULL, 10);
    samples = strtoul(words[4], NULL, 10);
    if (batch < 1 || batch > MAX_BATCH || samples < WARM_UP || samples % batch)
        fail("which batch, how many samples?");
    library = dlopen(words[1], RTLD_NOW);
    if (!library)
        fail(dlerror());
    if (given) {
        /* The other side, started by the counted one, which it must not outlive. */
        if (strcmp(words[2], "outlet") == 0)
            run_outlet(given, batch, samples, stdin);
        else
            run_inlet(given, batch, samples);
    } else {
        int is_outlet = strcmp(words[2], "outlet") == 0;
        FILE *peer;
        snprintf(name, sizeof name, "counts-%ld", (long)getpid());
        snprintf(command, sizeof command, "COUNTS_STREAM=%s exec '%s' '%s' %s %lu %lu", name, words[0],
                 words[1], is_outlet ? "inlet" : "outlet", batch, samples);
        /* The outlet reads what its inlet does not write, and the inlet's outlet what it does not. */
        peer = popen(command, is_outlet ? "r" : "w");
        if (!peer)
            fail("the other side did not start");
        if (is_outlet)
            run_outlet(name, batch, samples, peer);
        else
            run_inlet(name, batch, samples);
        if (pclose(peer) != 0)
            fail("the other side failed");
    }
    /* Nothing is destroyed: ending is not what is counted, and a library's threads may still run. */
    fflush(NULL);
    _exit(EXIT_SUCCESS);
}
