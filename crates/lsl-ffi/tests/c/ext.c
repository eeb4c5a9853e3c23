/* Our additions: what an event loop waits for, counters, readers, flushing, the log callback. */
#include <stdatomic.h>
#include <stddef.h>

#include "host.h"
#include "lslx.h"

/* What the library was compiled with. */
_Static_assert(sizeof(lslx_inlet_stats_t) == 104, "lslx_inlet_stats_t");
_Static_assert(offsetof(lslx_inlet_stats_t, idle_seconds) == 56, "idle_seconds");
_Static_assert(sizeof(lslx_outlet_stats_t) == 96, "lslx_outlet_stats_t");
_Static_assert(sizeof(lslx_inlet_health_t) == 32, "lslx_inlet_health_t");
_Static_assert(sizeof(lslx_discovery_stats_t) == 80, "lslx_discovery_stats_t");
_Static_assert(sizeof(lslx_consumer_t) == 112, "lslx_consumer_t");
_Static_assert(offsetof(lslx_consumer_t, sent) == 64, "sent");
_Static_assert(offsetof(lslx_consumer_t, encrypted) == 88, "encrypted");
_Static_assert(sizeof(lslx_gap_t) == 32, "lslx_gap_t");

static atomic_int messages;

static void listen_in(int32_t level, const char *message, void *user)
{
    if (level >= -2 && message[0] != '\0' && user == &messages)
        messages++;
}

/* What an event loop waits for: a descriptor, or an event of Windows; the other is refused. */
#ifdef _WIN32
typedef HANDLE awaited_t;

static awaited_t awaited(lsl_inlet inlet)
{
    HANDLE event = lslx_inlet_handle(inlet);
    CHECK(event != NULL && lslx_inlet_fd(inlet) == lsl_internal_error);
    CHECK(strstr(lsl_last_error(), "lslx_inlet_handle") != NULL);
    return event;
}

static int readable(awaited_t event, int milliseconds)
{
    /* As programs do, which wait for more than one. */
    HANDLE both[] = {CreateEvent(NULL, TRUE, FALSE, NULL), event};
    DWORD woken = WaitForMultipleObjects(2, both, FALSE, (DWORD)milliseconds);
    CHECK(woken == WAIT_TIMEOUT || woken == WAIT_OBJECT_0 + 1);
    CloseHandle(both[0]);
    return woken != WAIT_TIMEOUT;
}
#else
#include <poll.h>

typedef int awaited_t;

static awaited_t awaited(lsl_inlet inlet)
{
    int descriptor = lslx_inlet_fd(inlet);
    CHECK(descriptor >= 0 && lslx_inlet_handle(inlet) == NULL);
    CHECK(strstr(lsl_last_error(), "lslx_inlet_fd") != NULL);
    return descriptor;
}

static int readable(awaited_t descriptor, int milliseconds)
{
    struct pollfd entry = {descriptor, POLLIN, 0};
    return poll(&entry, 1, milliseconds);
}
#endif

static void *push_hundred(void *outlet)
{
    for (int i = 1; i <= 100; i++) {
        float sample[2] = {(float)i, 0};
        CHECK(lsl_push_sample_f(outlet, sample) == 0);
        pause_for(0.002);
    }
    return NULL;
}

/* Every sample is got by that wait alone, and none is got late. */
static void event_loop(lsl_outlet outlet, lsl_inlet inlet)
{
    awaited_t descriptor = awaited(inlet);
    int got = 0;
    pthread_t pusher;
    CHECK(awaited(inlet) == descriptor);
    CHECK(readable(descriptor, 50) == 0);
    pusher = start(push_hundred, outlet);
    while (got < 100) {
        float values[20];
        unsigned long count;
        int32_t ec = 1;
        CHECK(readable(descriptor, (int)(PATIENCE * 1000)) == 1);
        while ((count = lsl_pull_chunk_f(inlet, values, NULL, 20, 0, 0.0, &ec)) > 0) {
            CHECK(values[0] == (float)(got + 1));
            got += (int)count / 2;
        }
        CHECK(ec == 0);
        CHECK(lslx_inlet_fd_clear(inlet) >= 0);
    }
    pthread_join(pusher, NULL);
    CHECK(readable(descriptor, 50) == 0);
    CHECK(descriptors() > 0);
}

static void counters(lsl_outlet outlet, lsl_inlet inlet)
{
    lslx_inlet_stats_t in = {.size = sizeof in};
    lslx_outlet_stats_t out = {.size = sizeof out};
    lslx_consumer_t consumers[3];
    /* A program that knows only the first field. */
    struct {
        uint32_t size, reserved;
        uint64_t samples, guard;
    } old = {16, 0, 0, 7};
    float sample[2] = {5, 6};
    int32_t ec = 1;
    CHECK(lslx_inlet_stats(inlet, &in) == 0 && lslx_outlet_stats(outlet, &out) == 0);
    CHECK(in.samples == 100 && in.available == 0 && in.dropped == 0 && in.idle_seconds >= 0);
    CHECK(out.samples == 100 && out.consumers_seen == 1 && out.dropped == 0 && out.bytes > 0);
    CHECK(lslx_inlet_stats(inlet, (lslx_inlet_stats_t *)&old) == 0);
    CHECK(old.samples == 100 && old.guard == 7 && old.size == 16);
    old.size = 4;
    CHECK(lslx_inlet_stats(inlet, (lslx_inlet_stats_t *)&old) == lsl_argument_error);
    lslx_inlet_health_t health = {.size = sizeof health};
    lslx_discovery_stats_t searches = {.size = sizeof searches};
    CHECK(lslx_inlet_health(inlet, &health) == 0 && lslx_discovery_stats(&searches) == 0);
    CHECK(health.state == lslx_inlet_connected && health.clock == lslx_clock_good);
    CHECK(health.size == sizeof health && health.silent_seconds >= 0);
    CHECK(searches.size == sizeof searches && searches.conflicts == 0);
    CHECK(lslx_outlet_consumers(outlet, NULL, 0) == 1);
    CHECK(lslx_outlet_consumers(outlet, consumers, 3) == 1);
    CHECK(consumers[0].sent == 100 && strchr(consumers[0].address, ':') != NULL);
    /* What was not pushed through leaves when flushed. */
    CHECK(lsl_push_sample_ftp(outlet, sample, 9.5, 0) == 0);
    CHECK(lsl_pull_sample_f(inlet, sample, 2, 0.1, &ec) == 0.0);
    CHECK(lslx_outlet_flush(outlet, PATIENCE) == 1);
    CHECK(lsl_pull_sample_f(inlet, sample, 2, PATIENCE, &ec) == 9.5);
}

/* A text that the library gave away. */
static int is_text(char *text, const char *beginning, int is_longer)
{
    size_t length = strlen(beginning);
    int is = text != NULL && strncmp(text, beginning, length) == 0 &&
        (strlen(text) > length) == is_longer;
    if (!is)
        fprintf(stderr, "'%s', not '%s'\n", text == NULL ? "NULL" : text, beginning);
    lsl_destroy_string(text);
    return is;
}

/* With a security configuration the same program is encrypted, and can tell. */
static void encryption(lsl_outlet outlet, lsl_inlet inlet, const char *source_id)
{
    int policy = lslx_security_policy(), is_secure = policy == lslx_policy_required;
    const char *fingerprint = is_secure ? "SHA256:" : "";
    const char *name = policy == lslx_policy_off ? "off" : "required";
    lsl_streaminfo found = find(source_id), own = lsl_get_info(outlet);
    lslx_consumer_t consumer;
    char wanted[64];
    CHECK(policy == lslx_policy_off || is_secure);
    CHECK(is_secure == (getenv("LSL_SECURE_CONFIG") != NULL));
    snprintf(wanted, sizeof wanted, "/lsl-secure:LSS1;policy:%s", name);
    CHECK(strstr(lsl_library_info(), wanted) != NULL);
    snprintf(wanted, sizeof wanted, "policy %s, ", name);
    CHECK(is_text(lslx_security_text(), wanted, 1));

    CHECK(lslx_info_encryption(found) == policy);
    CHECK(is_text(lslx_info_fingerprint(found), fingerprint, is_secure));
    CHECK(lslx_info_encryption(own) == policy);
    lsl_destroy_streaminfo(found);
    lsl_destroy_streaminfo(own);

    CHECK(lslx_is_encrypted(inlet) == is_secure);
    CHECK(is_text(lslx_peer_fingerprint(inlet), fingerprint, is_secure));
    CHECK(is_text(lslx_peer_name(inlet), is_secure ? "host" : "", 0));
    CHECK(is_text(lslx_cipher(inlet), "", is_secure));
    CHECK(is_text(lslx_last_security_error(inlet), "", 0));
    CHECK(lslx_outlet_consumers(outlet, &consumer, 1) == 1);
    CHECK((int)consumer.encrypted == is_secure && consumer.reserved[0] == 0);
    CHECK(is_text(lslx_consumer_fingerprint(outlet, consumer.address), fingerprint, is_secure));
    CHECK(is_text(lslx_consumer_name(outlet, consumer.address), is_secure ? "host" : "", 0));
    CHECK(lslx_consumer_name(outlet, "10.0.0.1:1") == NULL);
    CHECK(lslx_consumer_fingerprint(outlet, NULL) == NULL);
}

static void bad_handles(lsl_outlet outlet, lsl_inlet inlet)
{
    void *bad[] = {NULL, (void *)42, &messages};
    lslx_inlet_stats_t in = {.size = sizeof in};
    lslx_outlet_stats_t out = {.size = sizeof out};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(lslx_inlet_fd(bad[i]) < 0 && lslx_inlet_fd_clear(bad[i]) < 0);
        CHECK(lslx_inlet_handle(bad[i]) == NULL);
        CHECK(lslx_inlet_stats(bad[i], &in) < 0 && lslx_outlet_stats(bad[i], &out) < 0);
        CHECK(lslx_outlet_consumers(bad[i], NULL, 0) < 0 && lslx_outlet_flush(bad[i], 0) < 0);
        CHECK(lslx_info_encryption(bad[i]) < 0 && lslx_info_fingerprint(bad[i]) == NULL);
        CHECK(lslx_is_encrypted(bad[i]) < 0 && lslx_peer_fingerprint(bad[i]) == NULL);
        CHECK(lslx_peer_name(bad[i]) == NULL && lslx_cipher(bad[i]) == NULL);
        CHECK(lslx_last_security_error(bad[i]) == NULL);
        CHECK(lslx_consumer_fingerprint(bad[i], "") == NULL);
        CHECK(lslx_consumer_name(bad[i], NULL) == NULL);
    }
    CHECK(lslx_inlet_stats(inlet, NULL) < 0 && lslx_outlet_stats(outlet, NULL) < 0);
    CHECK(lslx_add_known_peer(NULL) == lsl_argument_error);
    CHECK(lslx_add_known_peer("10.0.0.0/99") == lsl_argument_error && *lsl_last_error());
    CHECK(lslx_add_known_peer("amp-\xe9") == lsl_argument_error);
    CHECK(strstr(lsl_last_error(), "UTF-8") != NULL);
    CHECK(lslx_add_known_peer("127.0.0.1:16572") == 0);
    CHECK(lslx_outlet_consumers(outlet, NULL, 1) < 0);
}

int main(void)
{
    char source_id[64];
    int before;
    awaited_t descriptor;
    lsl_outlet outlet;
    lsl_inlet inlet;
    lslx_set_log_callback(listen_in, &messages);
    outlet = announce("ext", source_id, sizeof source_id);
    /* The line about the configuration. */
    CHECK(messages > 0);
    inlet = listen_to(source_id, 0);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    event_loop(outlet, inlet);
    counters(outlet, inlet);
    encryption(outlet, inlet, source_id);
    bad_handles(outlet, inlet);
    /* The loss of a stream wakes an event loop. */
    descriptor = awaited(inlet);
    CHECK(lslx_inlet_fd_clear(inlet) == 0);
    lsl_destroy_outlet(outlet);
    /* It may be readable once more for samples that were pulled before they were announced. */
    do
        CHECK(readable(descriptor, (int)(PATIENCE * 1000)) == 1);
    while (lslx_inlet_fd_clear(inlet) == 0);
    before = descriptors();
    lsl_destroy_inlet(inlet);
    for (double end = now() + PROMPT; descriptors() >= before; pause_for(0.01))
        CHECK(now() < end);
    CHECK(lslx_inlet_fd(inlet) < 0);
    lslx_set_log_callback(NULL, NULL);
    return 0;
}
