/* Calls in orders that nobody planned. */
#include "idioms.h"

static int32_t ec;

/* Says the next sample that comes within the time. */
static void say_pull(lsl_inlet inlet, double timeout)
{
    float got[3] = {0, 0, 0};
    ec = 77;
    double stamp = lsl_pull_sample_f(inlet, got, 3, timeout, &ec);
    SAY("pull: %g at %g, ec %d", (double)got[0], stamp, ec);
}

static void push(lsl_outlet outlet, float value)
{
    float sample[3] = {value, value, value};
    CHECK(lsl_push_sample_ft(outlet, sample, 1000.0 + (double)value) == 0);
}

/* The same until one comes through: a reader that has just come may miss some with liblsl. */
static void push_until_received(lsl_outlet outlet, lsl_inlet inlet, float value)
{
    for (double end = now() + PATIENCE; lsl_samples_available(inlet) < 1 && now() < end;) {
        push(outlet, value);
        pause_for(0.02);
    }
}

/* The description as both ends give it. */
static void say_both(lsl_outlet outlet, lsl_inlet inlet)
{
    lsl_streaminfo info = lsl_get_info(outlet);
    SAY("outlet: '%s' of '%s'", lsl_child_value_n(lsl_get_desc(info), "late"),
        lsl_child_value_n(lsl_get_desc(info), "maker"));
    lsl_destroy_streaminfo(info);
    info = lsl_get_fullinfo(inlet, PATIENCE, &ec);
    SAY("inlet: '%s' of '%s'", lsl_child_value_n(lsl_get_desc(info), "late"),
        lsl_child_value_n(lsl_get_desc(info), "maker"));
    lsl_destroy_streaminfo(info);
}

/* Whatever is edited after the outlet was made, the stream is described as before. */
static void desc_edited_after_the_outlet(void)
{
    lsl_streaminfo info = described("edited", cft_float32), seen;
    lsl_outlet outlet = lsl_create_outlet(info, 0, 60);
    lsl_inlet inlet = inlet_of("edited", 1);
    lsl_append_child_value(lsl_get_desc(info), "late", "by the info");
    lsl_set_child_value(lsl_get_desc(info), "maker", "somebody");
    say_both(outlet, inlet);
    seen = lsl_get_info(outlet);
    lsl_append_child_value(lsl_get_desc(seen), "late", "by the outlet's info");
    say_both(outlet, inlet);
    lsl_destroy_streaminfo(seen);
    seen = lsl_get_fullinfo(inlet, PATIENCE, &ec);
    lsl_append_child_value(lsl_get_desc(seen), "late", "by the inlet's info");
    lsl_destroy_streaminfo(seen);
    say_both(outlet, inlet);
    SAY("info: '%s'", lsl_child_value_n(lsl_get_desc(info), "late"));
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    lsl_destroy_streaminfo(info);
}

/* What the outlet fills in is seen in its own info only. */
static void identity_before_and_after_the_outlet(void)
{
    lsl_streaminfo info = described("identity", cft_float32), seen, found;
    lsl_outlet outlet = lsl_create_outlet(info, 0, 60);
    SAY("info: uid %zu, host %d, session '%s', made %d", strlen(lsl_get_uid(info)),
        lsl_get_hostname(info)[0] != 0, lsl_get_session_id(info), lsl_get_created_at(info) > 0);
    seen = lsl_get_info(outlet);
    SAY("outlet: uid %zu, host %d, session %d, made %d", strlen(lsl_get_uid(seen)),
        lsl_get_hostname(seen)[0] != 0, lsl_get_session_id(seen)[0] != 0,
        lsl_get_created_at(seen) > 0);
    found = find(source("identity"));
    SAY("found: same uid %d, host %d, session %d, made %d",
        strcmp(lsl_get_uid(found), lsl_get_uid(seen)) == 0,
        strcmp(lsl_get_hostname(found), lsl_get_hostname(seen)) == 0,
        strcmp(lsl_get_session_id(found), lsl_get_session_id(seen)) == 0,
        lsl_get_created_at(found) == lsl_get_created_at(seen));
    SAY("matches %d %d", lsl_stream_info_matches_query(found, "name='identity' and type='EEG'"),
        lsl_stream_info_matches_query(found, "desc/maker='nobody'"));
    lsl_destroy_streaminfo(found);
    lsl_destroy_streaminfo(seen);
    lsl_destroy_streaminfo(info);
    lsl_destroy_outlet(outlet);
}

/* The info first, the inlet before the info it was made of, results after copies of them. */
static void infos_destroyed_first(void)
{
    lsl_outlet outlet = outlet_of("first", cft_float32);
    lsl_streaminfo results[4] = {NULL, NULL, NULL, NULL}, kept;
    lsl_inlet inlet;
    SAY("found %d", lsl_resolve_byprop(results, 4, "source_id", source("first"), 1, PATIENCE));
    kept = lsl_copy_streaminfo(results[0]);
    inlet = lsl_create_inlet(results[0], 60, 0, 1);
    lsl_destroy_streaminfo(results[0]);
    lsl_open_stream(inlet, PATIENCE, &ec);
    SAY("open %d", ec);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    push(outlet, 1);
    say_pull(inlet, PATIENCE);
    lsl_destroy_inlet(inlet);
    SAY("%s %d", lsl_get_name(kept), lsl_get_channel_count(kept));
    inlet = lsl_create_inlet(kept, 60, 0, 1);
    lsl_open_stream(inlet, PATIENCE, &ec);
    SAY("open %d", ec);
    push_until_received(outlet, inlet, 2);
    say_pull(inlet, PATIENCE);
    lsl_destroy_inlet(inlet);
    lsl_destroy_streaminfo(kept);
    lsl_destroy_outlet(outlet);
}

/* What was received stays after the outlet's end if the inlet may recover; then it is silent. */
static void outlet_destroyed_first(void)
{
    lsl_outlet outlet = outlet_of("gone", cft_float32);
    lsl_inlet inlet = open_inlet_of("gone", outlet, 1);
    double deadline = now() + PATIENCE;
    push(outlet, 1);
    push(outlet, 2);
    while (lsl_samples_available(inlet) < 2 && now() < deadline)
        pause_for(0.01);
    SAY("available %u", lsl_samples_available(inlet));
    lsl_destroy_outlet(outlet);
    say_pull(inlet, 1.0);
    say_pull(inlet, 1.0);
    say_pull(inlet, 0.2);
    lsl_destroy_inlet(inlet);
}

/* Without recovery the stream is lost, and what was received with it, as soon as that is noticed. */
static void outlet_destroyed_without_recovery(void)
{
    lsl_outlet outlet = outlet_of("lost", cft_float32);
    lsl_inlet inlet = open_inlet_of("lost", outlet, 0);
    double deadline = now() + PATIENCE;
    float got[3];
    push(outlet, 1);
    push(outlet, 2);
    while (lsl_samples_available(inlet) < 2 && now() < deadline)
        pause_for(0.01);
    lsl_destroy_outlet(outlet);
    do
        lsl_pull_sample_f(inlet, got, 3, 0.1, &ec);
    while (ec == 0 && now() < deadline);
    SAY("then %d", ec);
    say_pull(inlet, 0.0);
    ec = 77;
    lsl_open_stream(inlet, 1.0, &ec);
    SAY("open %d", ec);
    lsl_destroy_inlet(inlet);
}

/* A pull opens the stream; what was pushed before is not in it. */
static void pull_without_open(void)
{
    lsl_outlet outlet = outlet_of("unopened", cft_float32);
    lsl_inlet inlet = inlet_of("unopened", 1);
    push(outlet, 1);
    SAY("consumers %d", lsl_have_consumers(outlet));
    SAY("available %u", lsl_samples_available(inlet));
    say_pull(inlet, 0.0);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    push_until_received(outlet, inlet, 2);
    say_pull(inlet, PATIENCE);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

/* Closed, samples are gone; the next pull opens again. Closing and opening twice is nothing. */
static void closed_and_opened_again(void)
{
    lsl_outlet outlet = outlet_of("again", cft_float32);
    lsl_inlet inlet = open_inlet_of("again", outlet, 1);
    double deadline = now() + PATIENCE;
    lsl_open_stream(inlet, PATIENCE, &ec);
    SAY("opened twice %d", ec);
    push(outlet, 1);
    say_pull(inlet, PATIENCE);
    lsl_close_stream(inlet);
    lsl_close_stream(inlet);
    while (lsl_have_consumers(outlet) && now() < deadline) {
        push(outlet, 9);
        pause_for(0.02);
    }
    SAY("consumers %d", lsl_have_consumers(outlet));
    lsl_open_stream(inlet, PATIENCE, &ec);
    SAY("open %d", ec);
    push_until_received(outlet, inlet, 2);
    say_pull(inlet, PATIENCE);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

/* A call of another thread on an inlet. */
struct waiting {
    lsl_inlet inlet;
    volatile int done;
    float got[3];
    double stamp;
    int32_t ec;
};

static void *wait_in_open(void *argument)
{
    struct waiting *call = argument;
    lsl_open_stream(call->inlet, PATIENCE, &call->ec);
    call->done = 1;
    return NULL;
}

static void *wait_in_pull(void *argument)
{
    struct waiting *call = argument;
    call->stamp = lsl_pull_sample_f(call->inlet, call->got, 3, 3.0, &call->ec);
    call->done = 1;
    return NULL;
}

/* Closed by another thread, an open ends. The stream can be opened again at once. */
static void closed_while_it_opens(void)
{
    lsl_streaminfo info = described("opening", cft_float32);
    struct waiting call = {lsl_create_inlet(info, 60, 0, 1), 0, {0, 0, 0}, 0, 77};
    pthread_t thread = start(wait_in_open, &call);
    lsl_outlet outlet;
    double closed;
    pause_for(1.5);
    SAY("opening: %d", !call.done);
    closed = now();
    lsl_close_stream(call.inlet);
    pthread_join(thread, NULL);
    SAY("ended: %d, ec %d", now() - closed < PROMPT, call.ec);
    outlet = lsl_create_outlet(info, 0, 60);
    lsl_open_stream(call.inlet, PATIENCE, &ec);
    SAY("open %d", ec);
    push_until_received(outlet, call.inlet, 1);
    say_pull(call.inlet, PATIENCE);
    lsl_destroy_inlet(call.inlet);
    lsl_destroy_outlet(outlet);
    lsl_destroy_streaminfo(info);
}

/* Closed by another thread, a pull waits until its own time is up, and the stream stays closed. */
static void closed_while_it_is_pulled(void)
{
    lsl_outlet outlet = outlet_of("pulled", cft_float32);
    lsl_inlet inlet = open_inlet_of("pulled", outlet, 1);
    struct waiting call = {inlet, 0, {0, 0, 0}, 77, 77};
    double begun = now();
    pthread_t thread = start(wait_in_pull, &call);
    pause_for(0.5);
    lsl_close_stream(inlet);
    while (!call.done) {
        push(outlet, 9);
        pause_for(0.02);
    }
    SAY("waited %d, consumers %d", now() - begun > 2.9, lsl_have_consumers(outlet));
    pthread_join(thread, NULL);
    SAY("pull: %g at %g, ec %d", (double)call.got[0], call.stamp, call.ec);
    say_pull(inlet, 0.0);
    SAY("opened again %d", lsl_wait_for_consumers(outlet, PATIENCE));
    push_until_received(outlet, inlet, 2);
    say_pull(inlet, PATIENCE);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

/* All that can be asked of an inlet before it is open. */
static void asked_before_open(void)
{
    lsl_outlet outlet = outlet_of("asked", cft_float32);
    lsl_inlet inlet = inlet_of("asked", 1);
    lsl_streaminfo info;
    double offset;
    SAY("flushed %u, available %u, reset %u", lsl_inlet_flush(inlet),
        lsl_samples_available(inlet), lsl_was_clock_reset(inlet));
    SAY("processing %d %d", lsl_set_postprocessing(inlet, proc_ALL),
        lsl_smoothing_halftime(inlet, 30));
    SAY("undone %d", lsl_set_postprocessing(inlet, proc_none));
    lsl_close_stream(inlet);
    /* 1.17.7 leaves the code as it was when all goes well. */
    ec = 0;
    info = lsl_get_fullinfo(inlet, PATIENCE, &ec);
    SAY("info %s, ec %d", lsl_get_name(info), ec);
    lsl_destroy_streaminfo(info);
    ec = 77;
    offset = lsl_time_correction(inlet, PATIENCE, &ec);
    SAY("offset below 10 ms: %d, ec %d", offset > -0.01 && offset < 0.01, ec);
    SAY("consumers %d", lsl_have_consumers(outlet));
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

/* A program restarts under the inlet, and the old one ends only later. */
static void outlet_made_again_while_read(void)
{
    lsl_outlet first = outlet_of("made again", cft_float32), second;
    lsl_inlet inlet = open_inlet_of("made again", first, 1);
    lsl_streaminfo found[4];
    int count;
    push(first, 1);
    say_pull(inlet, PATIENCE);
    second = outlet_of("made again", cft_float32);
    count = lsl_resolve_byprop(found, 4, "source_id", source("made again"), 2, PATIENCE);
    SAY("found %d, of different uid: %d", count,
        count == 2 && strcmp(lsl_get_uid(found[0]), lsl_get_uid(found[1])) != 0);
    while (count > 0)
        lsl_destroy_streaminfo(found[--count]);
    push(second, 9);
    push(first, 2);
    say_pull(inlet, PATIENCE);
    SAY("consumers %d %d", lsl_have_consumers(first), lsl_have_consumers(second));
    lsl_destroy_outlet(first);
    /* It comes over by itself, or when somebody pulls. */
    say_pull(inlet, 0.0);
    SAY("came over %d", lsl_wait_for_consumers(second, PATIENCE));
    push_until_received(second, inlet, 3);
    say_pull(inlet, PATIENCE);
    lsl_destroy_outlet(second);
    lsl_destroy_inlet(inlet);
}

/* The same where the old outlet ends first, twice. */
static void outlet_made_again_after_its_end(void)
{
    lsl_outlet outlet = outlet_of("after", cft_float32);
    lsl_inlet inlet = open_inlet_of("after", outlet, 1);
    push(outlet, 1);
    say_pull(inlet, PATIENCE);
    for (int round = 2; round < 4; round++) {
        lsl_destroy_outlet(outlet);
        outlet = outlet_of("after", cft_float32);
        say_pull(inlet, 0.0);
        SAY("came over %d", lsl_wait_for_consumers(outlet, PATIENCE));
        push_until_received(outlet, inlet, (float)round);
        say_pull(inlet, PATIENCE);
        /* The others of them. */
        lsl_inlet_flush(inlet);
    }
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

static const struct idiom orders[] = {
    {"desc edited after the outlet", desc_edited_after_the_outlet},
    {"identity before and after the outlet", identity_before_and_after_the_outlet},
    {"infos destroyed first", infos_destroyed_first},
    {"outlet destroyed first", outlet_destroyed_first},
    {"outlet destroyed without recovery", outlet_destroyed_without_recovery},
    {"pull without open", pull_without_open},
    {"closed and opened again", closed_and_opened_again},
    {"closed while it opens", closed_while_it_opens},
    {"closed while it is pulled", closed_while_it_is_pulled},
    {"asked before open", asked_before_open},
    {"outlet made again while read", outlet_made_again_while_read},
    {"outlet made again after its end", outlet_made_again_after_its_end},
    {NULL, NULL},
};
