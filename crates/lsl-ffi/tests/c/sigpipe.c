/* A host that leaves SIGPIPE alone, whose reader vanishes while it sends, must live on. */
#include "host.h"

#define CHANNELS 20000

/* Reads one sample and is killed with the connection open and data under way. */
static void reader(const char *source_id, int ready)
{
    static float sample[CHANNELS];
    int32_t ec = 1;
    lsl_inlet inlet = listen_to(source_id, 0);
    CHECK(write(ready, "o", 1) == 1);
    lsl_pull_sample_f(inlet, sample, CHANNELS, PATIENCE, &ec);
    CHECK(ec == 0);
    CHECK(write(ready, "r", 1) == 1);
    pause();
}

static void vanishing_reader(const char *source_id, int32_t flags)
{
    static float sample[CHANNELS];
    int ready[2], pushed;
    char byte;
    struct sigaction action;
    pid_t child;
    CHECK(pipe(ready) == 0);
    /* Before this process uses the library, so that the child is a process like any other. */
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        reader(source_id, ready[1]);
        _exit(0);
    }
    close(ready[1]);

    lsl_streaminfo info =
        lsl_create_streaminfo("pipe", "host", CHANNELS, 0.0, cft_float32, source_id);
    lsl_outlet outlet = lsl_create_outlet_ex(
        info, 0, 1, (lsl_transport_options_t)(flags));
    CHECK(outlet != NULL);
    lsl_destroy_streaminfo(info);
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    CHECK(lsl_push_sample_f(outlet, sample) == 0);
    CHECK(read(ready[0], &byte, 1) == 1);
    for (pushed = 0; pushed < 300; pushed++) {
        if (pushed == 20)
            CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        CHECK(lsl_push_sample_f(outlet, sample) == 0);
    }
    for (double end = now() + PATIENCE; lsl_have_consumers(outlet) != 0; pause_for(0.01)) {
        CHECK(now() < end);
        CHECK(lsl_push_sample_f(outlet, sample) == 0);
    }
    lsl_destroy_outlet(outlet);
    close(ready[0]);

    CHECK(sigaction(SIGPIPE, NULL, &action) == 0);
    CHECK(action.sa_handler == SIG_DFL);
}

int main(void)
{
    int status;
    /* Each in a process of its own, since the reader must be forked before the library is used. */
    for (int32_t flags = 0; flags <= transp_sync_blocking; flags += transp_sync_blocking) {
        pid_t child;
        char source_id[64];
        snprintf(source_id, sizeof source_id, "pipe-%d-%ld", flags, (long)getpid());
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            signal(SIGPIPE, SIG_DFL);
            vanishing_reader(source_id, flags);
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        /* 128 + SIGPIPE is what the shell would call 141. */
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}
