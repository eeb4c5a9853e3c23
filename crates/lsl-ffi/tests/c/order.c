/* Objects that know each other, destroyed in every order, each from another thread than the last. What
 * is left works until its own turn comes. */
#include "host.h"

#define OBJECTS 5

enum object { INFO, OUTLET, INLET, FULL, RESOLVER };

static void *objects[OBJECTS];

static void *destroy(void *which)
{
    void *object = objects[(intptr_t)which];
    switch ((enum object)(intptr_t)which) {
    case INFO:
    case FULL:
        lsl_destroy_streaminfo(object);
        break;
    case OUTLET:
        lsl_destroy_outlet(object);
        break;
    case INLET:
        lsl_destroy_inlet(object);
        break;
    case RESOLVER:
        lsl_destroy_continuous_resolver(object);
        break;
    }
    objects[(intptr_t)which] = NULL;
    return NULL;
}

/* Whatever is still there answers; what is not is NULL and answers, too. */
static void use(void)
{
    float sample[2] = {1, 2};
    int32_t ec = 1, code;
    lsl_streaminfo found[4];
    CHECK(lsl_get_channel_count(objects[INFO]) == (objects[INFO] ? 2 : 0));
    CHECK(strcmp(lsl_child_value_n(lsl_get_desc(objects[FULL]), "maker"),
              objects[FULL] ? "nobody" : "") == 0);
    CHECK((lsl_push_sample_f(objects[OUTLET], sample) == 0) == (objects[OUTLET] != NULL));
    lsl_pull_sample_f(objects[INLET], sample, 2, 0.0, &ec);
    CHECK((ec == 0) == (objects[INLET] != NULL));
    code = lsl_resolver_results(objects[RESOLVER], found, 4);
    CHECK(code >= 0 || objects[RESOLVER] == NULL);
    while (code > 0)
        lsl_destroy_streaminfo(found[--code]);
}

static void set_up(int round)
{
    char source_id[64];
    lsl_streaminfo found;
    int32_t ec = 1;
    snprintf(source_id, sizeof source_id, "order-%ld-%d", (long)getpid(), round);
    objects[INFO] = lsl_create_streaminfo("order", "host", 2, 0.0, cft_float32, source_id);
    lsl_append_child_value(lsl_get_desc(objects[INFO]), "maker", "nobody");
    objects[OUTLET] = lsl_create_outlet(objects[INFO], 0, 10);
    found = find(source_id);
    objects[INLET] = lsl_create_inlet(found, 10, 0, 1);
    lsl_destroy_streaminfo(found);
    lsl_open_stream(objects[INLET], PATIENCE, &ec);
    CHECK(ec == 0);
    objects[FULL] = lsl_get_fullinfo(objects[INLET], PATIENCE, &ec);
    objects[RESOLVER] = lsl_create_continuous_resolver_byprop("source_id", source_id, 5.0);
    for (int i = 0; i < OBJECTS; i++)
        CHECK(objects[i] != NULL);
}

int main(void)
{
    int round = 0;
    /* Every number of five different digits from 0 to 4 is an order. */
    for (int number = 0; number < 5 * 5 * 5 * 5 * 5; number++) {
        int digits[OBJECTS], seen = 0;
        for (int i = 0, rest = number; i < OBJECTS; i++, rest /= OBJECTS) {
            digits[i] = rest % OBJECTS;
            seen |= 1 << digits[i];
        }
        if (seen != (1 << OBJECTS) - 1)
            continue;
        set_up(round++);
        for (int i = 0; i < OBJECTS; i++) {
            use();
            pthread_join(start(destroy, (void *)(intptr_t)digits[i]), NULL);
        }
        use();
    }
    CHECK(round == 120);
    return 0;
}
