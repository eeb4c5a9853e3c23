/* A thread that is cancelled in a call that waits ends soon, its clean-up runs, and what it waited for can be
 * used and destroyed by others. Calls that do not wait are done to their end. */
#define _GNU_SOURCE
#include "host.h"

enum call { PULL, PULL_CHUNK, PULL_TEXT, PULL_TEXTS, OPEN, FULLINFO, CORRECTION, WAIT, RESOLVE };

struct task {
    enum call call;
    void *object;
    volatile int begun, returned, cleaned;
};

static void clean(void *task) { ((struct task *)task)->cleaned = 1; }

static void *wait_in(void *argument)
{
    struct task *task = argument;
    float values[20];
    double stamps[10];
    char *texts[20];
    lsl_streaminfo info;
    int32_t ec;
    pthread_cleanup_push(clean, task);
    task->begun = 1;
    switch (task->call) {
    case PULL:
        /* Also while samples come. */
        do
            lsl_pull_sample_f(task->object, values, 2, LSL_FOREVER, &ec);
        while (ec == 0);
        break;
    case PULL_CHUNK:
        lsl_pull_chunk_f(task->object, values, stamps, 20, 10, LSL_FOREVER, &ec);
        break;
    case PULL_TEXT:
        lsl_pull_sample_str(task->object, texts, 2, LSL_FOREVER, &ec);
        break;
    case PULL_TEXTS:
        lsl_pull_chunk_str(task->object, texts, stamps, 20, 10, LSL_FOREVER, &ec);
        break;
    case OPEN:
        lsl_open_stream(task->object, LSL_FOREVER, &ec);
        break;
    case FULLINFO:
        lsl_get_fullinfo(task->object, LSL_FOREVER, &ec);
        break;
    case CORRECTION:
        lsl_time_correction(task->object, LSL_FOREVER, &ec);
        break;
    case WAIT:
        lsl_wait_for_consumers(task->object, LSL_FOREVER);
        break;
    case RESOLVE:
        lsl_resolve_byprop(&info, 1, "source_id", "cancel-nowhere", 1, LSL_FOREVER);
        break;
    }
    task->returned = 1;
    pthread_cleanup_pop(0);
    return NULL;
}

static void must_end(pthread_t thread, const struct task *task)
{
    struct timespec limit;
    void *result = NULL;
    CHECK(clock_gettime(CLOCK_REALTIME, &limit) == 0);
    limit.tv_sec += (time_t)PROMPT;
    CHECK(pthread_timedjoin_np(thread, &result, &limit) == 0);
    CHECK(result == PTHREAD_CANCELED && task->cleaned && !task->returned);
}

/* Cancels a thread in a call that does not return. */
static void cancelled_in(enum call call, void *object)
{
    struct task task = {call, object, 0, 0, 0};
    pthread_t thread = start(wait_in, &task);
    while (!task.begun)
        pause_for(0.001);
    pause_for(0.3);
    CHECK(!task.returned);
    CHECK(pthread_cancel(thread) == 0);
    must_end(thread, &task);
}

/* An inlet on a stream that nobody offers. */
static lsl_inlet searching(lsl_channel_format_t format)
{
    lsl_streaminfo info = lsl_create_streaminfo("nowhere", "host", 2, 0.0, format, "cancel-nowhere");
    lsl_inlet inlet = lsl_create_inlet(info, 60, 0, 1);
    CHECK(inlet != NULL);
    lsl_destroy_streaminfo(info);
    return inlet;
}

static volatile int stop;

static void *push(void *outlet)
{
    float sample[2] = {1, 2};
    while (!stop) {
        lsl_push_sample_f(outlet, sample);
        pause_for(0.002);
    }
    return NULL;
}

/* What a cancelled thread may do before it ends, with all that closes, writes and reads files. */
static void *work(void *argument)
{
    struct task *task = argument;
    char source_id[64];
    float sample[2] = {1, 2};
    int32_t ec;
    pthread_cleanup_push(clean, task);
    CHECK(pthread_cancel(pthread_self()) == 0);
    lsl_outlet outlet = announce("work", source_id, sizeof source_id);
    lsl_inlet inlet = searching(cft_float32);
    CHECK(lsl_pull_sample_f(inlet, sample, 2, 0.0, &ec) == 0.0 && ec == 0);
    CHECK(lsl_push_sample_f(outlet, sample) == 0);
    lsl_continuous_resolver resolver = lsl_create_continuous_resolver(5.0);
    CHECK(resolver != NULL);
    lsl_destroy_continuous_resolver(resolver);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    task->begun = 1;
    lsl_wait_for_consumers(task->object, 0.1);
    task->returned = 1;
    pthread_cleanup_pop(0);
    return NULL;
}

static void *push_late(void *outlet)
{
    float two[4] = {5, 6, 7, 8};
    pause_for(1.5);
    CHECK(lsl_push_chunk_ft(outlet, two, 4, 1001.0) == 0);
    return NULL;
}

/* A long call goes on where it was when it began, for numbers and texts. */
static void chunks_come_whole(lsl_outlet outlet, lsl_inlet inlet)
{
    float two[4] = {1, 2, 3, 4}, values[8] = {0};
    double stamps[4] = {0};
    char *texts[8] = {NULL};
    int32_t ec = 1;
    for (int as_text = 0; as_text <= 1; as_text++) {
        pthread_t late;
        CHECK(lsl_push_chunk_ft(outlet, two, 4, 1000.0) == 0);
        late = start(push_late, outlet);
        if (as_text)
            CHECK(lsl_pull_chunk_str(inlet, texts, stamps, 8, 4, PATIENCE, &ec) == 8);
        else
            CHECK(lsl_pull_chunk_f(inlet, values, stamps, 8, 4, PATIENCE, &ec) == 8);
        CHECK(ec == 0 && stamps[1] == 1000.0 && stamps[3] == 1001.0);
        for (int i = 0; i < 8; i++) {
            CHECK((as_text ? strtod(texts[i], NULL) : values[i]) == i + 1);
            free(texts[i]);
        }
        pthread_join(late, NULL);
    }
}

static volatile int found;

static void *resolve(void *source_id)
{
    lsl_streaminfo info;
    found = lsl_resolve_byprop(&info, 1, "source_id", source_id, 1, LSL_FOREVER);
    lsl_destroy_streaminfo(info);
    return NULL;
}

int main(void)
{
    char source_id[64], late_id[64];
    lsl_outlet outlet, late;
    lsl_inlet inlet;
    pthread_t pushing, resolving;
    struct task task = {WAIT, NULL, 0, 0, 0};

    /* The first call of the process, which reads the configuration. */
    pthread_t working = start(work, &task);
    must_end(working, &task);
    CHECK(task.begun);

    /* Connected, silent, and in the middle of a chunk. */
    outlet = announce("cancel", source_id, sizeof source_id);
    inlet = listen_to(source_id, 1);
    cancelled_in(PULL, inlet);
    exchange(outlet, inlet, 1);
    cancelled_in(PULL_CHUNK, inlet);
    exchange(outlet, inlet, 2);
    CHECK(lsl_push_sample_f(outlet, (float[]){1, 2}) == 0);
    cancelled_in(PULL_CHUNK, inlet);
    exchange(outlet, inlet, 3);
    chunks_come_whole(outlet, inlet);
    pushing = start(push, outlet);
    cancelled_in(PULL, inlet);
    stop = 1;
    pthread_join(pushing, NULL);
    lsl_inlet_flush(inlet);
    lsl_destroy_inlet(inlet);
    while (lsl_have_consumers(outlet))
        pause_for(0.01);
    cancelled_in(WAIT, outlet);

    /* Not even connected. */
    for (int call = PULL; call <= CORRECTION; call++) {
        lsl_inlet nowhere = searching(call == PULL_TEXT || call == PULL_TEXTS ? cft_string : cft_float32);
        cancelled_in((enum call)call, nowhere);
        lsl_destroy_inlet(nowhere);
    }

    /* A search ends with its thread, and others find what comes late. */
    cancelled_in(RESOLVE, NULL);
    snprintf(late_id, sizeof late_id, "late-%ld", (long)getpid());
    resolving = start(resolve, late_id);
    pause_for(1.5);
    late = announce("late", late_id, sizeof late_id);
    pthread_join(resolving, NULL);
    CHECK(found == 1);
    lsl_destroy_outlet(late);
    lsl_destroy_outlet(outlet);
    return 0;
}
