/* fork after use: the child uses the library afresh, inherited objects are dead but harmless there, and
 * the parent goes on as if nothing had happened. */
#include "host.h"

static int is_child;

/* Asked by AddressSanitizer before it looks for leaks. What the threads of the parent refer to seems
 * leaked in a child, where these threads are not. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

static void in_child(lsl_outlet outlet, lsl_inlet inlet, lsl_continuous_resolver resolver)
{
    char source_id[64];
    float sample[2] = {1, 2};
    int32_t ec = 1;
    double begin = now();
    lsl_streaminfo infos[4];
    lsl_outlet own;
    lsl_inlet listener;
    /* Whatever these answer, they answer, and they neither crash nor hang. */
    lsl_push_sample_f(outlet, sample);
    lsl_have_consumers(outlet);
    CHECK(lsl_wait_for_consumers(outlet, 0.2) == 0);
    CHECK(lsl_pull_sample_f(inlet, sample, 2, 0.2, &ec) == 0.0);
    CHECK(ec == lsl_lost_error || ec == 0);
    CHECK(lsl_time_correction(inlet, 0.2, &ec) == 0.0 && ec != 1);
    lsl_samples_available(inlet);
    CHECK(lsl_resolver_results(resolver, infos, 4) == 0);
    CHECK(now() - begin < PROMPT);

    own = announce("child", source_id, sizeof source_id);
    listener = listen_to(source_id, 1);
    for (int i = 1; i <= 20; i++)
        exchange(own, listener, (float)i);
    lsl_destroy_inlet(listener);
    lsl_destroy_outlet(own);

    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    lsl_destroy_continuous_resolver(resolver);
}

int main(void)
{
    char source_id[64];
    lsl_outlet outlet = announce("parent", source_id, sizeof source_id);
    lsl_inlet inlet = listen_to(source_id, 1);
    lsl_continuous_resolver resolver = lsl_create_continuous_resolver(5.0);
    lsl_streaminfo found;
    int status;
    exchange(outlet, inlet, 1);
    for (double begin = now(); lsl_resolver_results(resolver, &found, 1) < 1; pause_for(0.01))
        CHECK(now() - begin < PATIENCE);
    lsl_destroy_streaminfo(found);
    /* The first child also forks, and one ends without destroying anything. */
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            is_child = 1;
            in_child(outlet, inlet, resolver);
            if (round == 0) {
                pid_t grandchild = fork();
                CHECK(grandchild >= 0);
                if (grandchild == 0) {
                    char own_id[64];
                    lsl_outlet own = announce("grandchild", own_id, sizeof own_id);
                    exchange(own, listen_to(own_id, 1), 7);
                    exit(0);
                }
                CHECK(waitpid(grandchild, &status, 0) == grandchild);
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            }
            exit(0);
        }
        /* Both at the same time. */
        for (int i = 0; i < 20; i++)
            exchange(outlet, inlet, (float)(10 * round + i));
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        exchange(outlet, inlet, (float)(100 + round));
    }
    lsl_destroy_continuous_resolver(resolver);
    lsl_destroy_outlet(outlet);
    lsl_destroy_inlet(inlet);
    return 0;
}
