/* Streams work as long as the process lives: made before or in an atexit handler or a destructor, whether
 * the library was used before exit or not. */
#include "host.h"

static int uses_before, registers_before, registers_after;
static lsl_outlet early;
static lsl_inlet early_reader;

static void exchange_late(const char *name)
{
    char source_id[64];
    lsl_outlet outlet;
    lsl_inlet inlet;
    if (early != NULL)
        exchange(early, early_reader, 2);
    outlet = announce(name, source_id, sizeof source_id);
    inlet = listen_to(source_id, 1);
    for (int i = 1; i <= 20; i++)
        exchange(outlet, inlet, (float)i);
    CHECK(lsl_time_correction(inlet, PATIENCE, NULL) != 0.0);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

static void handler(void) { exchange_late("atexit"); }

static int is_child;

__attribute__((destructor)) static void destructor(void)
{
    if (is_child)
        exchange_late("destructor");
}

static void live(void)
{
    if (registers_before)
        CHECK(atexit(handler) == 0);
    if (uses_before) {
        char source_id[64];
        early = announce("early", source_id, sizeof source_id);
        early_reader = listen_to(source_id, 1);
        exchange(early, early_reader, 1);
    }
    if (registers_after)
        CHECK(atexit(handler) == 0);
    exit(0);
}

int main(void)
{
    for (int how = 0; how < 8; how++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            is_child = 1;
            uses_before = how & 1;
            registers_before = how & 2;
            registers_after = how & 4;
            live();
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}
