/* What the parent has made and not used yet works in a forked child: inlets, infos, results of a search.
 * Parent and children then read the same stream, each for itself. */
#include "host.h"

#define CHILDREN 3
#define SAMPLES 20

static int is_child;

/* Asked by AddressSanitizer before it looks for leaks: what is inherited is never given back. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

static lsl_inlet inlet;

static void receive(int first)
{
    for (int i = 0; i < SAMPLES; i++) {
        float got[2] = {0, 0};
        int32_t ec = 1;
        CHECK(lsl_pull_sample_f(inlet, got, 2, PATIENCE, &ec) == 1000.0 + first + i && ec == 0);
        CHECK(got[0] == (float)(first + i));
    }
}

/* The first use of one inlet by several threads at once must make one inlet of it. */
static void *open_it(void *unused)
{
    int32_t ec = 1;
    (void)unused;
    lsl_open_stream(inlet, PATIENCE, &ec);
    CHECK(ec == 0);
    return NULL;
}

static void in_child(lsl_streaminfo found, lsl_inlet used, int ready, int go)
{
    pthread_t threads[4];
    float sample[2];
    int32_t ec = 0;
    char word;
    lsl_inlet own;
    for (int i = 0; i < 4; i++)
        threads[i] = start(open_it, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    own = lsl_create_inlet(found, 60, 0, 1);
    CHECK(own != NULL);
    lsl_open_stream(own, PATIENCE, &ec);
    CHECK(ec == 0);
    CHECK(write(ready, "r", 1) == 1 && read(go, &word, 1) == 1);
    receive(0);
    CHECK(lsl_pull_sample_f(own, sample, 2, PATIENCE, &ec) == 1000.0 && ec == 0);
    lsl_time_correction(inlet, PATIENCE, &ec);
    CHECK(ec == 0);
    lsl_destroy_streaminfo(lsl_get_fullinfo(inlet, PATIENCE, &ec));
    CHECK(ec == 0);
    /* What the parent had used stays dead. */
    CHECK(lsl_pull_sample_f(used, sample, 2, 0.2, &ec) == 0.0 && ec == lsl_lost_error);
    lsl_destroy_inlet(own);
    lsl_destroy_inlet(inlet);
    lsl_destroy_inlet(used);
    CHECK(lsl_pull_sample_f(inlet, sample, 2, 0.0, &ec) == 0.0 && ec == lsl_argument_error);
    lsl_destroy_streaminfo(found);
    exit(0);
}

int main(void)
{
    char source_id[64], word;
    int status, ready[2], go[2];
    pid_t children[CHILDREN];
    lsl_outlet outlet = announce("forkfresh", source_id, sizeof source_id);
    lsl_inlet used = listen_to(source_id, 1);
    lsl_streaminfo found = find(source_id);
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    inlet = lsl_create_inlet(found, 60, 0, 1);
    CHECK(inlet != NULL);
    /* Goes with it. Samples are stamped in the same clock, so nothing else changes. */
    CHECK(lsl_set_postprocessing(inlet, proc_monotonize) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            is_child = 1;
            /* One is a grandchild, whose parent did not use the inlet either. */
            if (i == 1 && fork() != 0) {
                CHECK(wait(&status) > 0);
                _exit(WEXITSTATUS(status));
            }
            in_child(found, used, ready[1], go[0]);
        }
    }
    open_it(NULL);
    /* A child that fails ends the wait. */
    close(ready[1]);
    for (int i = 0; i < CHILDREN; i++)
        CHECK(read(ready[0], &word, 1) == 1);
    for (int i = 0; i < SAMPLES; i++) {
        float sample[2] = {(float)i, 0};
        CHECK(lsl_push_sample_ft(outlet, sample, 1000.0 + i) == 0);
    }
    CHECK(write(go[1], "ggg", CHILDREN) == CHILDREN);
    receive(0);
    for (int i = 0; i < CHILDREN; i++) {
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    /* The parent's go on, whatever the children destroyed. */
    for (int i = 0; i < SAMPLES; i++) {
        float sample[2] = {(float)(SAMPLES + i), 0};
        CHECK(lsl_push_sample_ft(outlet, sample, 1000.0 + SAMPLES + i) == 0);
    }
    receive(SAMPLES);
    lsl_destroy_streaminfo(found);
    lsl_destroy_inlet(inlet);
    lsl_destroy_inlet(used);
    lsl_destroy_outlet(outlet);
    return 0;
}
