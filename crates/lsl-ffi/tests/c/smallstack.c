/* Pushes and pulls of every kind need little stack, on a thread with the least that there is and measured on
 * one whose stack was painted. smallstack BYTES: how deep they may go. */
#include "host.h"

#define CHANNELS 64
#define CHUNK 100
#define PAINTED (1 << 18)
#define PAINT 0x5a

/* What the thread and the linker need of a small stack on their own. */
#define OTHERS 1024

static lsl_outlet numbers, texts, blocking;
static lsl_inlet number_reader, text_reader, blocking_reader;
static float floats[CHUNK * CHANNELS];
static double doubles[CHANNELS], stamps[CHUNK];
static int64_t longs[CHANNELS];
static const char *strings[CHANNELS];
static uint32_t lengths[CHANNELS];
static int32_t ec;

static void got(double stamp) { CHECK(stamp != 0.0 && ec == 0); }

static void pulled_texts(char **pulled)
{
    for (int i = 0; i < CHANNELS; i++)
        lsl_destroy_string(pulled[i]);
}

static void push_sample(void) { CHECK(lsl_push_sample_f(numbers, floats) == 0); }
static void push_converted(void) { CHECK(lsl_push_sample_l(numbers, longs) == 0); }
static void push_raw(void) { CHECK(lsl_push_sample_vtp(numbers, floats, 1.0, 1) == 0); }
static void push_held(void) { CHECK(lsl_push_sample_dtp(numbers, doubles, 0.0, 0) == 0); }
static void push_chunk(void) { CHECK(lsl_push_chunk_f(numbers, floats, CHUNK * CHANNELS) == 0); }
static void push_stamped(void)
{
    CHECK(lsl_push_chunk_ftnp(numbers, floats, CHUNK * CHANNELS, stamps, 1) == 0);
}
static void push_blocking(void) { CHECK(lsl_push_sample_f(blocking, floats) == 0); }
static void push_text(void) { CHECK(lsl_push_sample_str(texts, strings) == 0); }
static void push_texts(void) { CHECK(lsl_push_chunk_strt(texts, strings, CHANNELS, 1.0) == 0); }
static void push_printed(void) { CHECK(lsl_push_sample_d(texts, doubles) == 0); }
static void push_flood(void)
{
    /* More than the socket takes, so that it is stored for a reader that lags. */
    for (int i = 0; i < 400; i++)
        push_chunk();
}
static void push_refused(void) { CHECK(lsl_push_chunk_f(numbers, floats, 3) == lsl_internal_error); }
static void pull_nothing(void)
{
    while (lsl_inlet_flush(number_reader) > 0)
        continue;
    lsl_pull_sample_f(number_reader, floats, CHANNELS, 0.0, &ec);
}
static void pull_sample(void)
{
    push_sample();
    got(lsl_pull_sample_f(number_reader, floats, CHANNELS, PATIENCE, &ec));
}
static void pull_late(void)
{
    lsl_inlet_flush(number_reader);
    lsl_pull_sample_d(number_reader, doubles, CHANNELS, 0.05, &ec);
}
static void pull_raw(void)
{
    push_sample();
    got(lsl_pull_sample_v(number_reader, floats, CHANNELS * sizeof *floats, PATIENCE, &ec));
}
static void pull_chunk(void)
{
    push_chunk();
    lsl_pull_chunk_f(number_reader, floats, stamps, CHUNK * CHANNELS, CHUNK, PATIENCE, &ec);
    CHECK(ec == 0);
}
static void pull_blocking(void)
{
    push_blocking();
    got(lsl_pull_sample_f(blocking_reader, floats, CHANNELS, PATIENCE, &ec));
}
static void pull_text(void)
{
    char *pulled[CHANNELS];
    push_text();
    got(lsl_pull_sample_str(text_reader, pulled, CHANNELS, PATIENCE, &ec));
    pulled_texts(pulled);
}
static void pull_buffers(void)
{
    char *pulled[CHANNELS];
    push_text();
    got(lsl_pull_sample_buf(text_reader, pulled, lengths, CHANNELS, PATIENCE, &ec));
    pulled_texts(pulled);
}
static void pull_numbers(void)
{
    push_text();
    got(lsl_pull_sample_d(text_reader, doubles, CHANNELS, PATIENCE, &ec));
}
static void pull_processed(void)
{
    lsl_set_postprocessing(number_reader, proc_ALL);
    pull_sample();
    lsl_set_postprocessing(number_reader, proc_none);
}
static void look(void)
{
    lsl_samples_available(number_reader);
    CHECK(lsl_have_consumers(numbers) == 1);
    CHECK(lsl_local_clock() > 0.0);
}

#define CALL(name) {#name, name}

static const struct call {
    const char *name;
    void (*body)(void);
} CALLS[] = {CALL(push_sample), CALL(push_converted), CALL(push_raw), CALL(push_held),
    CALL(push_chunk), CALL(push_stamped), CALL(push_blocking), CALL(push_text), CALL(push_texts),
    CALL(push_printed), CALL(push_flood), CALL(push_refused), CALL(pull_sample), CALL(pull_nothing),
    CALL(pull_late), CALL(pull_raw), CALL(pull_chunk), CALL(pull_blocking), CALL(pull_text),
    CALL(pull_buffers), CALL(pull_numbers), CALL(pull_processed), CALL(look)};

static long deepest;

static void *run(void *which)
{
    ((const struct call *)which)->body();
    return NULL;
}

static char *painted;

/* Twice: the first call also finds the functions, which is the linker's work. */
static void *measure(void *which)
{
    char here;
    uintptr_t top = (uintptr_t)&here, bottom = (uintptr_t)painted, lowest = bottom;
    run(which);
    memset(painted, PAINT, top - 512 - bottom);
    run(which);
    while (*(volatile char *)lowest == PAINT)
        lowest++;
    deepest = (long)(top - lowest);
    return NULL;
}

/* A stream with a reader. The first pull, which starts to receive, is made with little stack, too. */
static lsl_outlet stream(const char *name, lsl_channel_format_t format, int flags, lsl_inlet *reader)
{
    char source_id[64];
    lsl_streaminfo info;
    lsl_outlet outlet;
    snprintf(source_id, sizeof source_id, "%s-%ld", name, (long)getpid());
    info = lsl_create_streaminfo(name, "host", CHANNELS, 100, format, source_id);
    outlet = lsl_create_outlet_ex(info, 0, 1, flags);
    CHECK(outlet != NULL);
    lsl_destroy_streaminfo(info);
    info = find(source_id);
    *reader = lsl_create_inlet(info, 1, 0, 1);
    lsl_destroy_streaminfo(info);
    return outlet;
}

static void on_thread(void *(*body)(void *), const void *argument, void *stack, size_t bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    if (stack != NULL)
        CHECK(pthread_attr_setstack(&attributes, stack, bytes) == 0);
    else
        CHECK(pthread_attr_setstacksize(&attributes, bytes) == 0);
    CHECK(pthread_create(&thread, &attributes, body, (void *)argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&attributes);
}

static void *pull_first(void *inlet)
{
    lsl_pull_sample_str(inlet, (char **)strings, CHANNELS, 0.0, &ec);
    lsl_samples_available(inlet);
    return NULL;
}

int main(int count, char **words)
{
    long limit = count > 1 ? atol(words[1]) : 0;
    lsl_inlet *readers[] = {&number_reader, &text_reader, &blocking_reader};
    numbers = stream("numbers", cft_float32, transp_default, &number_reader);
    texts = stream("texts", cft_string, transp_default, &text_reader);
    blocking = stream("blocking", cft_float32, 4, &blocking_reader);
    for (int i = 0; i < 3; i++) {
        on_thread(pull_first, *readers[i], NULL, 16384);
        lsl_open_stream(*readers[i], PATIENCE, &ec);
        CHECK(ec == 0);
    }
    for (int i = 0; i < CHANNELS; i++)
        strings[i] = "7";
    painted = aligned_alloc(4096, PAINTED);
    CHECK(painted != NULL);
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        on_thread(measure, &CALLS[i], painted, PAINTED);
        fprintf(stderr, "%s: %ld bytes\n", CALLS[i].name, deepest);
        CHECK(deepest <= limit + OTHERS);
        on_thread(run, &CALLS[i], NULL, 16384);
        while (lsl_inlet_flush(number_reader) + lsl_inlet_flush(text_reader) > 0)
            continue;
    }
    return 0;
}
