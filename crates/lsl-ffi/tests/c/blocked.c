/* An object is destroyed while another thread is blocked in a call on it: the call returns at once. */
#include "host.h"

enum call { PULL, PULL_CHUNK, PULL_TEXT, OPEN, FULLINFO, CORRECTION, WAIT, CALLS };

struct task {
    enum call call;
    void *object;
    volatile int begun, done;
    int32_t ec;
};

static void *block(void *argument)
{
    struct task *task = argument;
    float values[20];
    char *texts[2] = {NULL, NULL};
    double stamps[10], stamp = 0.0;
    unsigned long count = 0;
    task->ec = 1;
    task->begun = 1;
    switch (task->call) {
    case PULL:
        stamp = lsl_pull_sample_f(task->object, values, 2, LSL_FOREVER, &task->ec);
        break;
    case PULL_CHUNK:
        count = lsl_pull_chunk_f(task->object, values, stamps, 20, 10, LSL_FOREVER, &task->ec);
        break;
    case PULL_TEXT:
        stamp = lsl_pull_sample_str(task->object, texts, 2, LSL_FOREVER, &task->ec);
        break;
    case OPEN:
        lsl_open_stream(task->object, LSL_FOREVER, &task->ec);
        break;
    case FULLINFO:
        CHECK(lsl_get_fullinfo(task->object, LSL_FOREVER, &task->ec) == NULL);
        break;
    case CORRECTION:
        stamp = lsl_time_correction(task->object, LSL_FOREVER, &task->ec);
        break;
    case WAIT:
        task->ec = lsl_wait_for_consumers(task->object, LSL_FOREVER) == 0 ? lsl_lost_error : 0;
        break;
    case CALLS:
        break;
    }
    CHECK(stamp == 0.0 && count == 0 && texts[0] == NULL && texts[1] == NULL);
    task->done = 1;
    return NULL;
}

/* Two threads blocked in one call on one object. */
static void interrupted(enum call call, void *object, void (*destroy)(void *), double settle)
{
    struct task tasks[2];
    pthread_t threads[2];
    double begin;
    memset(tasks, 0, sizeof tasks);
    for (int i = 0; i < 2; i++) {
        tasks[i].call = call;
        tasks[i].object = object;
        threads[i] = start(block, &tasks[i]);
    }
    while (!tasks[0].begun || !tasks[1].begun)
        pause_for(0.001);
    pause_for(settle);
    CHECK(!tasks[0].done && !tasks[1].done);
    begin = now();
    destroy(object);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        /* An error, and not one that says "no data yet". */
        CHECK(tasks[i].ec < 0 && tasks[i].ec != lsl_timeout_error);
    }
    CHECK(now() - begin < PROMPT);
    /* Once more is no harm. */
    destroy(object);
}

static void destroy_inlet(void *object) { lsl_destroy_inlet(object); }

static void destroy_outlet(void *object) { lsl_destroy_outlet(object); }

/* An inlet on a stream that nobody offers. */
static lsl_inlet searching(lsl_channel_format_t format)
{
    lsl_streaminfo info =
        lsl_create_streaminfo("nowhere", "host", 2, 0.0, format, "blocked-nowhere");
    lsl_inlet inlet = lsl_create_inlet(info, 60, 0, 1);
    CHECK(inlet != NULL);
    lsl_destroy_streaminfo(info);
    return inlet;
}

static volatile int found;

static void *resolve(void *unused)
{
    lsl_streaminfo info;
    (void)unused;
    found = lsl_resolve_byprop(&info, 1, "source_id", "blocked-nowhere", 1, 3.0);
    return NULL;
}

int main(void)
{
    char source_id[64];
    lsl_outlet outlet = announce("blocked", source_id, sizeof source_id);
    pthread_t resolving = start(resolve, NULL);

    /* Connected and silent, then not even connected. */
    interrupted(PULL, listen_to(source_id, 1), destroy_inlet, 0.3);
    interrupted(PULL_CHUNK, listen_to(source_id, 0), destroy_inlet, 0.3);
    for (int call = PULL; call <= CORRECTION; call++) {
        lsl_channel_format_t format = call == PULL_TEXT ? cft_string : cft_float32;
        interrupted((enum call)call, searching(format), destroy_inlet, 0.2);
    }
    interrupted(WAIT, outlet, destroy_outlet, 0.5);

    pthread_join(resolving, NULL);
    CHECK(found == 0);
    return 0;
}
