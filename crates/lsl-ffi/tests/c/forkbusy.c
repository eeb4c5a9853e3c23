/* fork while other threads are in the middle of everything: whatever they hold at that moment, the
 * child can use the library, and the parent goes on.
 *   forkbusy CHILDREN */
#include <stdatomic.h>

#include "host.h"
#include "lslx.h"

static atomic_int over;
static void *push(void *outlet)
{
    float sample[2] = {1, 2};
    while (!over) {
        lsl_push_sample_f(outlet, sample);
        pause_for(0.0005);
    }
    return NULL;
}

static void *pull(void *inlet)
{
    float values[20];
    int32_t ec;
    while (!over)
        lsl_pull_chunk_f(inlet, values, NULL, 20, 0, 0.01, &ec);
    return NULL;
}

static void *come_and_go(void *unused)
{
    (void)unused;
    for (int i = 0; !over; i++) {
        char source_id[64];
        lsl_outlet outlet = announce("passing", source_id, sizeof source_id);
        lsl_streaminfo info = lsl_get_info(outlet);
        lsl_streaminfo found[8];
        int32_t count = lsl_resolve_bypred(found, 8, "name='nobody'", 1, 0.02);
        CHECK(count == 0);
        lsl_append_child_value(lsl_get_desc(info), "a", "b");
        lsl_destroy_string(lsl_get_xml(info));
        lsl_destroy_streaminfo(info);
        lsl_destroy_outlet(outlet);
    }
    return NULL;
}

static void ignore(int32_t level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
}

static void *measure(void *inlet)
{
    int32_t ec;
    for (int i = 0; !over; i++) {
        /* Mostly to nobody, sometimes to the standard error output. */
        lslx_set_log_callback(i % 50 == 0 ? NULL : ignore, NULL);
        lsl_time_correction(inlet, 0.01, &ec);
        lsl_samples_available(inlet);
        pause_for(0.001);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    int children = count > 1 ? atoi(arguments[1]) : 20;
    char source_id[64];
    /* The log is shared by all threads, so there must be a lot of it. */
    lsl_set_config_content("[log]\nlevel = 3\n");
    lsl_outlet outlet = announce("busy", source_id, sizeof source_id);
    lsl_inlet inlet;
    pthread_t workers[4];
    float sample[2] = {0, 0};
    int32_t ec;
    inlet = listen_to(source_id, 1);
    workers[0] = start(push, outlet);
    workers[1] = start(pull, inlet);
    workers[2] = start(come_and_go, NULL);
    workers[3] = start(measure, inlet);
    for (int i = 0; i < children; i++) {
        double begin;
        int status = 0;
        pid_t child;
        /* At another moment each time. */
        pause_for(0.0137 * (i % 7) + 0.0003 * i);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char own_id[64];
            lsl_outlet own;
            lsl_inlet listener;
            own = announce("busy child", own_id, sizeof own_id);
            listener = listen_to(own_id, 1);
            for (int value = 1; value <= 5; value++)
                exchange(own, listener, (float)value);
            CHECK(lsl_pull_sample_f(inlet, sample, 2, 0.0, &ec) == 0.0);
            lsl_destroy_inlet(listener);
            lsl_destroy_inlet(inlet);
            lsl_destroy_outlet(own);
            lsl_destroy_outlet(outlet);
            exit(0);
        }
        begin = now();
        while (waitpid(child, &status, WNOHANG) == 0) {
            if (now() - begin > 2 * PATIENCE)
                kill(child, SIGABRT);
            pause_for(0.005);
        }
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    over = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(workers[i], NULL);
    /* Behind what is still under way. */
    sample[0] = 77;
    CHECK(lsl_push_sample_ft(outlet, sample, 77.5) == 0);
    do
        CHECK(lsl_pull_sample_f(inlet, sample, 2, PATIENCE, &ec) != 0.0);
    while (sample[0] != 77);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    return 0;
}
