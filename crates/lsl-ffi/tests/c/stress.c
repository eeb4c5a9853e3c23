/* Eight threads create, push, pull, look around and destroy at random, also each other's objects.
 *   stress SECONDS [SEED] */
#include <stdatomic.h>

#include "host.h"

#define THREADS 8
#define PLACES 12

/* Handles that any thread may use or take out at any time. A stale one must be harmless, so they are
 * read without a lock on purpose; the word itself is atomic. */
static _Atomic(void *) outlets[PLACES], inlets[PLACES], infos[PLACES], resolvers[PLACES];
static _Atomic long counts[8];
static double deadline;

static unsigned draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void make_outlet(unsigned *random, int place)
{
    static const lsl_channel_format_t formats[] = {cft_float32, cft_double64, cft_string,
        cft_int32, cft_int16, cft_int8, cft_int64};
    lsl_channel_format_t format = formats[draw(random) % 7];
    int sync = format != cft_string && draw(random) % 4 == 0;
    char source_id[64];
    lsl_streaminfo info;
    snprintf(source_id, sizeof source_id, "stress-%ld-%d", (long)getpid(), place);
    info = lsl_create_streaminfo(
        "stress", "host", 2, draw(random) % 2 ? 100.0 : LSL_IRREGULAR_RATE, format, source_id);
    CHECK(info != NULL);
    lsl_append_child_value(lsl_append_child(lsl_get_desc(info), "setup"), "place", source_id);
    lsl_destroy_outlet(atomic_exchange(&outlets[place],
        lsl_create_outlet_ex(info, 0, 10, sync ? transp_sync_blocking : transp_default)));
    lsl_destroy_streaminfo(atomic_exchange(&infos[place], info));
}

static void make_inlet(unsigned *random, int place)
{
    lsl_streaminfo found[4];
    char predicate[64];
    int32_t count;
    snprintf(predicate, sizeof predicate, "source_id='stress-%ld-%d'", (long)getpid(), place);
    count = lsl_resolve_bypred(found, 4, predicate, 1, 0.3);
    CHECK(count >= 0);
    for (int i = 0; i < count; i++) {
        if (i == 0) {
            lsl_inlet inlet = lsl_create_inlet(found[0], 10, 0, draw(random) % 2);
            lsl_set_postprocessing(inlet, draw(random) % 3 == 0 ? 14 : 0);
            lsl_destroy_inlet(atomic_exchange(&inlets[place], inlet));
        }
        lsl_destroy_streaminfo(found[i]);
    }
}

static void push(unsigned *random, lsl_outlet outlet)
{
    static const char *texts[20] = {"a", "bc", "", "d", "e", "f", "g", "h", "i", "j", "a", "bc", "",
        "d", "e", "f", "g", "h", "i", "j"};
    double values[20] = {1, 2, 3};
    int32_t code = draw(random) % 2 ? lsl_push_chunk_d(outlet, values, 20)
                                    : lsl_push_chunk_str(outlet, texts, 20);
    /* The outlet may be gone. */
    CHECK(code <= 0 && code >= -4);
    if (code == 0)
        counts[0]++;
}

static void pull(unsigned *random, lsl_inlet inlet)
{
    double values[20], stamps[10];
    char *texts[20];
    unsigned long count;
    int32_t ec = 1;
    double timeout = draw(random) % 4 == 0 ? 0.05 : 0.0;
    if (draw(random) % 2) {
        count = lsl_pull_chunk_d(inlet, values, stamps, 20, 10, timeout, &ec);
        CHECK(count <= 20);
    } else {
        memset(texts, 0, sizeof texts);
        count = lsl_pull_chunk_str(inlet, texts, stamps, 20, 10, timeout, &ec);
        CHECK(count <= 20);
        lsl_destroy_string_array(texts, 20);
    }
    CHECK(ec <= 0 && ec >= -4);
    counts[1] += (long)count / 2;
}

static void *play(void *seed)
{
    unsigned random = (unsigned)(uintptr_t)seed * 2654435761u + 1;
    while (now() < deadline) {
        int place = (int)(draw(&random) % PLACES);
        lsl_streaminfo some[4];
        int32_t ec = 1, found;
        char *xml;
        switch (draw(&random) % 24) {
        case 0:
            make_outlet(&random, place);
            counts[2]++;
            break;
        case 1:
            make_inlet(&random, place);
            counts[3]++;
            break;
        case 2:
            if (draw(&random) % 4 == 0) {
                lsl_destroy_outlet(atomic_exchange(&outlets[place], NULL));
                counts[4]++;
            }
            break;
        case 3:
            /* Without taking the handle out: others go on with a stale one. */
            if (draw(&random) % 4 == 0) {
                lsl_destroy_inlet(inlets[place]);
                counts[5]++;
            }
            break;
        case 4:
            lsl_open_stream(inlets[place], 0.1, &ec);
            CHECK(ec <= 0);
            break;
        case 5:
            if (draw(&random) % 8 == 0)
                lsl_close_stream(inlets[place]);
            break;
        case 6:
            lsl_time_correction(inlets[place], 0.1, &ec);
            CHECK(ec <= 0);
            break;
        case 7:
            lsl_destroy_streaminfo(lsl_get_fullinfo(inlets[place], 0.2, &ec));
            CHECK(ec <= 0);
            break;
        case 8:
            lsl_wait_for_consumers(outlets[place], 0.05);
            break;
        case 9:
            xml = lsl_get_xml(infos[place]);
            lsl_destroy_string(xml);
            lsl_destroy_streaminfo(lsl_copy_streaminfo(infos[place]));
            break;
        case 10:
            if (draw(&random) % 4 == 0)
                lsl_destroy_continuous_resolver(
                    atomic_exchange(&resolvers[place], lsl_create_continuous_resolver(5.0)));
            break;
        case 11:
            found = lsl_resolver_results(resolvers[place], some, 4);
            CHECK(found <= 4);
            for (int i = 0; i < found; i++)
                lsl_destroy_streaminfo(some[i]);
            break;
        case 12:
            lsl_inlet_flush(inlets[place]);
            lsl_was_clock_reset(inlets[place]);
            lsl_have_consumers(outlets[place]);
            break;
        default:
            if (draw(&random) % 2)
                push(&random, outlets[place]);
            else
                pull(&random, inlets[place]);
        }
    }
    return NULL;
}

int main(int count, char **arguments)
{
    double seconds = count > 1 ? atof(arguments[1]) : 10.0;
    unsigned seed = count > 2 ? (unsigned)atoi(arguments[2]) : 1;
    pthread_t players[THREADS];
    char source_id[64];
    /* Something to play with from the start, however slow the machine. */
    for (int place = 0; place < PLACES; place++) {
        make_outlet(&seed, place);
        make_inlet(&seed, place);
    }
    deadline = now() + seconds;
    for (unsigned i = 0; i < THREADS; i++)
        players[i] = start(play, (void *)(uintptr_t)(seed * THREADS + i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(players[i], NULL);
    CHECK(now() < deadline + PATIENCE);
    for (int i = 0; i < PLACES; i++) {
        lsl_destroy_outlet(outlets[i]);
        lsl_destroy_inlet(inlets[i]);
        lsl_destroy_streaminfo(infos[i]);
        lsl_destroy_continuous_resolver(resolvers[i]);
    }
    printf("%ld chunks pushed, %ld samples pulled, %ld outlets and %ld inlets made, %ld and %ld "
           "destroyed\n",
        counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]);
    /* Otherwise nothing was stressed. Under valgrind an inlet may not live long enough to open. */
    CHECK(counts[0] > 0 && counts[2] > 0 && counts[3] > 0);
    /* Whatever was done to it, the library still works. */
    lsl_outlet outlet = announce("after", source_id, sizeof source_id);
    lsl_inlet inlet = listen_to(source_id, 0);
    exchange(outlet, inlet, 7);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    return 0;
}
