/* fork of a process that reads and pushes a stream whose samples are retained: the child neither asks for the
 * past nor sends it, and the parent goes on with its connection and with what it retains. */
#include "host.h"
#include "lslx.h"

static int is_child;

/* As in fork.c. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

/* Samples that were exchanged, from 1 on. */
static int count;

static void exchange_some(lsl_outlet outlet, lsl_inlet inlet, int samples)
{
    for (int i = 0; i < samples; i++)
        exchange(outlet, inlet, (float)++count);
}

/* All that was ever pushed, for whoever comes late. */
static void check_past(lsl_outlet outlet, const char *source_id)
{
    lsl_streaminfo info = find(source_id);
    lsl_inlet late = lsl_create_inlet(info, 60, 0, 1);
    float sample[2];
    int32_t ec = 1;
    lsl_destroy_streaminfo(info);
    CHECK(late != NULL && lslx_inlet_history(late, -1.0) == 0);
    for (int i = 1; i <= count; i++) {
        CHECK(lsl_pull_sample_f(late, sample, 2, PATIENCE, &ec) == 1000.0 + i);
        CHECK(ec == 0 && sample[0] == (float)i && sample[1] == -(float)i);
    }
    lsl_destroy_inlet(late);
    for (double begin = now(); lslx_outlet_consumers(outlet, NULL, 0) > 1; pause_for(0.01))
        CHECK(now() - begin < PATIENCE);
}

static void in_child(lsl_outlet outlet, lsl_inlet inlet)
{
    char source_id[64], generation[65];
    uint64_t next;
    lslx_gap_t gaps[4];
    lslx_outlet_stats_t out = {.size = sizeof out};
    float sample[2] = {-1, -2};
    int32_t ec = 1;
    lsl_outlet own;
    lsl_inlet listener;
    for (int i = 0; i < 50; i++)
        lsl_push_sample_f(outlet, sample);
    lslx_outlet_skip(outlet, 7);
    CHECK(lsl_pull_sample_f(inlet, sample, 2, 0.5, &ec) == 0.0);
    CHECK(ec == lsl_lost_error || ec == 0);
    lslx_inlet_position(inlet, generation, &next);
    CHECK(lslx_inlet_gaps(inlet, gaps, 4) <= 0);
    if (lslx_outlet_stats(outlet, &out) == 0)
        CHECK(out.consumers_seen == 0 || out.replayed == 0);

    count = 0;
    own = announce("resumechild", source_id, sizeof source_id);
    listener = listen_to(source_id, 1);
    exchange_some(own, listener, 10);
    check_past(own, source_id);
    lsl_destroy_inlet(listener);
    lsl_destroy_outlet(own);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

int main(void)
{
    char source_id[64], first[65], generation[65];
    uint64_t next = 0;
    lsl_outlet outlet;
    lsl_inlet inlet;
    lsl_set_config_content("[tuning]\nRetainSeconds = 60\n");
    outlet = announce("resumefork", source_id, sizeof source_id);
    inlet = listen_to(source_id, 1);
    exchange_some(outlet, inlet, 10);
    CHECK(lslx_inlet_position(inlet, first, &next) == 1 && next == 10);
    for (int round = 0; round < 3; round++) {
        lslx_inlet_stats_t in = {.size = sizeof in};
        lslx_outlet_stats_t out = {.size = sizeof out};
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            is_child = 1;
            in_child(outlet, inlet);
            exit(0);
        }
        exchange_some(outlet, inlet, 20);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        exchange_some(outlet, inlet, 5);
        CHECK(lslx_inlet_stats(inlet, &in) == 0 && lslx_outlet_stats(outlet, &out) == 0);
        CHECK(in.samples == (uint64_t)count && out.samples == (uint64_t)count);
        CHECK(in.reconnects == 0 && in.resumed == 0 && in.replayed == 0);
        CHECK(in.lost_exact == 0 && in.lost_unknown == 0 && in.generations == 1);
        CHECK(out.consumers_seen == 1 && out.resumed == 0 && out.replayed == 0);
        CHECK(out.skipped == 0 && out.replay_refused == 0);
        CHECK(lslx_inlet_position(inlet, generation, &next) == 1);
        CHECK(next == (uint64_t)count && strcmp(generation, first) == 0);
    }
    check_past(outlet, source_id);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    return 0;
}
