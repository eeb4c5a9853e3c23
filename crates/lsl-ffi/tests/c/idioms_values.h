/* Values of the wrong type or number, and time-outs of zero and of years. */
#include "idioms.h"

#define PULL(inlet, suffix, type, count, timeout, print)                                           \
    do {                                                                                           \
        type got[3] = {0, 0, 0};                                                                   \
        int32_t code = 77;                                                                         \
        double stamp = lsl_pull_sample_##suffix(inlet, got, count, timeout, &code);                \
        SAY(#suffix ": " print " " print " " print ", at %g, ec %d", got[0], got[1], got[2],       \
            stamp, code);                                                                          \
    } while (0)

static void pull_texts(lsl_inlet inlet)
{
    char *got[3] = {NULL, NULL, NULL};
    int32_t code = 77;
    double stamp = lsl_pull_sample_str(inlet, got, 3, PATIENCE, &code);
    SAY("str: '%s' '%s' '%s', at %g, ec %d", got[0], got[1], got[2], stamp, code);
    lsl_destroy_string(got[0]);
    lsl_destroy_string(got[1]);
    lsl_destroy_string(got[2]);
}

static void doubles_into_integers(void)
{
    lsl_outlet outlet = outlet_of("int16", cft_int16);
    lsl_inlet inlet = open_inlet_of("int16", outlet, 1);
    double sample[3] = {1.5, -2.5, 32767.0}, fine[3] = {0.49, 0.51, -0.51};
    float single[3] = {2.5f, 3.5f, -3.5f};
    int64_t large[3] = {70000, -70000, 1};
    SAY("push %d", lsl_push_sample_dt(outlet, sample, 1));
    PULL(inlet, s, int16_t, 3, PATIENCE, "%d");
    SAY("push %d", lsl_push_sample_dt(outlet, fine, 2));
    PULL(inlet, d, double, 3, PATIENCE, "%g");
    SAY("push %d", lsl_push_sample_ft(outlet, single, 3));
    PULL(inlet, i, int32_t, 3, PATIENCE, "%d");
    SAY("push %d", lsl_push_sample_lt(outlet, large, 4));
    pull_texts(inlet);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

static void texts_into_numbers(void)
{
    lsl_outlet outlet = outlet_of("float32", cft_float32);
    lsl_inlet inlet = open_inlet_of("float32", outlet, 1);
    const char *sample[3] = {"1.5", "-2e3", "7"};
    float single[3] = {0.1f, 1e10f, -3};
    SAY("push %d", lsl_push_sample_strt(outlet, sample, 1));
    PULL(inlet, f, float, 3, PATIENCE, "%g");
    SAY("push %d", lsl_push_sample_ft(outlet, single, 2));
    pull_texts(inlet);
    SAY("push %d", lsl_push_sample_strt(outlet, sample, 3));
    PULL(inlet, s, int16_t, 3, PATIENCE, "%d");
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

static void numbers_into_texts(void)
{
    lsl_outlet outlet = outlet_of("string", cft_string);
    lsl_inlet inlet = open_inlet_of("string", outlet, 1);
    const char *words[3] = {"12", "-7.5", ""};
    double sample[3] = {1.5, 0.1, 1e300};
    int32_t whole[3] = {1, -2, 3};
    SAY("push %d", lsl_push_sample_dt(outlet, sample, 1));
    pull_texts(inlet);
    SAY("push %d", lsl_push_sample_it(outlet, whole, 2));
    PULL(inlet, d, double, 3, PATIENCE, "%g");
    SAY("push %d", lsl_push_sample_strt(outlet, words, 3));
    pull_texts(inlet);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

/* Buffers that are not a sample, chunks that are no whole number of samples. */
static void wrong_lengths(void)
{
    lsl_outlet outlet = outlet_of("lengths", cft_float32);
    lsl_inlet inlet = open_inlet_of("lengths", outlet, 1);
    float chunk[7] = {1, 2, 3, 4, 5, 6, 7}, got[9];
    double stamps[3];
    int32_t code = 77;
    unsigned long pulled;
    SAY("push of 7 values %d", lsl_push_chunk_f(outlet, chunk, 7));
    SAY("push of none %d", lsl_push_chunk_f(outlet, chunk, 0));
    SAY("push of 6 %d", lsl_push_chunk_ft(outlet, chunk, 6, 5.0));
    PULL(inlet, f, float, 2, PATIENCE, "%g");
    PULL(inlet, f, float, 3, PATIENCE, "%g");
    pulled = lsl_pull_chunk_f(inlet, got, stamps, 7, 3, 0.0, &code);
    SAY("pull into 7: %lu, ec %d", pulled, code);
    code = 77;
    pulled = lsl_pull_chunk_f(inlet, got, stamps, 9, 2, 0.0, &code);
    SAY("pull of 9 with 2 stamps: %lu, ec %d", pulled, code);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

/* Nothing waits with a time-out of zero; what was begun goes on. */
static void zero_timeouts(void)
{
    lsl_outlet outlet = outlet_of("zero", cft_float32);
    lsl_inlet inlet = inlet_of("zero", 1);
    lsl_streaminfo info, found[2];
    float got[3], sample[3] = {1, 2, 3};
    int32_t code = 77;
    double begin = now(), offset;
    PULL(inlet, f, float, 3, 0.0, "%g");
    SAY("chunk %lu", lsl_pull_chunk_f(inlet, got, NULL, 3, 0, 0.0, &code));
    SAY("ec %d", code);
    SAY("absent %d", lsl_resolve_byprop(found, 2, "name", "no such stream", 1, 0.0));
    code = 77;
    offset = lsl_time_correction(inlet, 0.0, &code);
    SAY("offset %g, ec %d", offset, code);
    /* These two may be there already, with liblsl in one of ten runs. 1.17.7 then leaves the code. */
    code = 0;
    info = lsl_get_fullinfo(inlet, 0.0, &code);
    SAY("info or -1: %d", info != NULL ? code == 0 : code == -1);
    lsl_destroy_streaminfo(info);
    code = 77;
    lsl_open_stream(inlet, 0.0, &code);
    SAY("open or -1: %d", code == 0 || code == -1);
    SAY("prompt %d", now() - begin < PROMPT);

    /* Were the inlet destroyed now, liblsl would crash in one of ten runs. */
    lsl_open_stream(inlet, PATIENCE, &code);
    SAY("open %d", code);
    info = lsl_get_fullinfo(inlet, PATIENCE, &code);
    SAY("info %s", lsl_get_name(info));
    lsl_destroy_streaminfo(info);
    offset = lsl_time_correction(inlet, PATIENCE, &code);
    SAY("offset below 10 ms: %d, ec %d", offset > -0.01 && offset < 0.01, code);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    lsl_push_sample_ft(outlet, sample, 4.0);
    while (lsl_samples_available(inlet) < 1 && now() - begin < PATIENCE)
        pause_for(0.01);
    PULL(inlet, f, float, 3, 0.0, "%g");
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

/* Time-outs of years and for ever return as soon as there is something. */
static void huge_timeouts(void)
{
    lsl_outlet outlet = outlet_of("huge", cft_float32);
    lsl_inlet inlet;
    lsl_streaminfo info;
    float sample[6] = {1, 2, 3, 4, 5, 6}, got[6];
    double stamps[2], offset;
    int32_t code = 77;
    SAY("found %d", lsl_resolve_byprop(&info, 1, "source_id", source("huge"), 1, LSL_FOREVER));
    inlet = lsl_create_inlet(info, 60, 0, 1);
    lsl_destroy_streaminfo(info);
    lsl_open_stream(inlet, LSL_FOREVER, &code);
    SAY("open %d", code);
    SAY("consumers %d", lsl_wait_for_consumers(outlet, 1e7));
    lsl_push_sample_ft(outlet, sample, 1.0);
    PULL(inlet, f, float, 3, LSL_FOREVER, "%g");
    lsl_push_chunk_ftn(outlet, sample, 6, (double[]){2, 3});
    code = 77;
    SAY("chunk %lu", lsl_pull_chunk_f(inlet, got, stamps, 6, 2, LSL_FOREVER, &code));
    SAY("%g at %g, %g at %g, ec %d", (double)got[0], stamps[0], (double)got[3], stamps[1], code);
    /* 1.17.7 leaves the code as it was when all goes well. */
    code = 0;
    info = lsl_get_fullinfo(inlet, LSL_FOREVER, &code);
    SAY("info %s, ec %d", lsl_get_name(info), code);
    lsl_destroy_streaminfo(info);
    code = 77;
    offset = lsl_time_correction(inlet, LSL_FOREVER, &code);
    SAY("offset below 10 ms: %d, ec %d", offset > -0.01 && offset < 0.01, code);
    lsl_push_sample_ft(outlet, sample, 4.0);
    PULL(inlet, f, float, 3, 1e7, "%g");
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

/* Less than nothing is nothing. */
static void negative_timeouts(void)
{
    lsl_outlet outlet = outlet_of("negative", cft_float32);
    lsl_inlet inlet = open_inlet_of("negative", outlet, 1);
    float got[3];
    int32_t code = 77;
    double begin = now();
    PULL(inlet, f, float, 3, -1.0, "%g");
    SAY("chunk %lu", lsl_pull_chunk_f(inlet, got, NULL, 3, 0, -1.0, &code));
    SAY("ec %d", code);
    SAY("prompt %d", now() - begin < PROMPT);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

static const struct idiom values[] = {
    {"doubles into integers", doubles_into_integers},
    {"texts into numbers", texts_into_numbers},
    {"numbers into texts", numbers_into_texts},
    {"wrong lengths", wrong_lengths},
    {"zero time-outs", zero_timeouts},
    {"huge time-outs", huge_timeouts},
    {"negative time-outs", negative_timeouts},
    {NULL, NULL},
};
