/* Objects come and go by the thousand; memory, threads and descriptors stay what they were.
 *   churn CYCLES */
#include "host.h"

/* Everything once: an info with a description, an outlet, sometimes somebody who reads it. */
static void cycle(int number, int with_reader)
{
    char source_id[64];
    float sample[2] = {1, 2};
    lsl_streaminfo info, copy;
    lsl_outlet outlet;
    lsl_inlet inlet;
    char *xml;
    snprintf(source_id, sizeof source_id, "churn-%ld-%d", (long)getpid(), number);
    info = lsl_create_streaminfo("churn", "host", 2, 100.0, cft_float32, source_id);
    CHECK(info != NULL);
    lsl_append_child_value(lsl_get_desc(info), "maker", "nobody");
    copy = lsl_copy_streaminfo(info);
    xml = lsl_get_xml(copy);
    CHECK(xml != NULL);
    lsl_destroy_string(xml);
    outlet = lsl_create_outlet(copy, 0, 60);
    CHECK(outlet != NULL);
    inlet = lsl_create_inlet(info, 60, 0, 1);
    CHECK(inlet != NULL);
    CHECK(lsl_push_sample_f(outlet, sample) == 0);
    if (with_reader) {
        lsl_inlet reader = listen_to(source_id, 1);
        exchange(outlet, reader, 3);
        lsl_destroy_inlet(reader);
    }
    lsl_destroy_streaminfo(copy);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    lsl_destroy_streaminfo(info);
}

/* Waits until nothing of the past is under way, then says what the process holds. */
static void settle(int *threads_now, int *descriptors_now)
{
    double quiet = now();
    *threads_now = threads();
    *descriptors_now = descriptors();
    while (now() - quiet < 1.0) {
        pause_for(0.05);
        if (threads() < *threads_now || descriptors() < *descriptors_now) {
            quiet = now();
            *threads_now = threads();
            *descriptors_now = descriptors();
        }
    }
}

int main(int count, char **arguments)
{
    int cycles = count > 1 ? atoi(arguments[1]) : 300;
    /* Caches and arenas fill in the first part; only later growth is a leak. */
    int warm = cycles / 4;
    int threads_warm, descriptors_warm, threads_end, descriptors_end;
    long memory_warm, memory_end;
    /* From here on each info that is destroyed makes the library drop another one. */
    outlive_the_past();
    for (int i = 0; i < warm; i++)
        cycle(i, i % 20 == 0);
    settle(&threads_warm, &descriptors_warm);
    memory_warm = resident();
    for (int i = warm; i < cycles; i++)
        cycle(i, i % 20 == 0);
    settle(&threads_end, &descriptors_end);
    memory_end = resident();
    /* Threads that did handshakes and looked at files stay for ten seconds in case there are more. */
    for (double end = now() + 2 * PROMPT; threads_end > threads_warm && now() < end; pause_for(0.05))
        threads_end = threads();
    printf("%d cycles: threads %d then %d, descriptors %d then %d, memory %ld then %ld kB\n", cycles,
        threads_warm, threads_end, descriptors_warm, descriptors_end, memory_warm, memory_end);
    CHECK(threads_end <= threads_warm);
    CHECK(descriptors_end <= descriptors_warm);
    /* Less than a leaked info per two cycles. */
    CHECK(memory_end - memory_warm < 2048 + (long)(cycles - warm) / 4);
    return 0;
}
