/* A push from a signal handler returns, whatever it interrupts: it sends (0), or says that it cannot (-4)
 * because it interrupted the library at work. In a call that waits it sends. */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "host.h"

static lsl_outlet outlet;
static volatile sig_atomic_t sent, refused, others;

static void push_now(int signal)
{
    int before = errno;
    float sample[2] = {1, 2};
    (void)signal;
    switch (lsl_push_sample_f(outlet, sample)) {
    case 0: sent++; break;
    case lsl_internal_error: refused++; break;
    default: others++;
    }
    errno = before;
}

/* A child starts outside of any call, and its parent's outlet says whose it is. */
static void fork_once(void)
{
    float sample[2] = {1, 2};
    int status = -1;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(lsl_push_sample_f(outlet, sample) == lsl_internal_error);
        CHECK(strstr(lsl_last_error(), "parent process") != NULL);
        _exit(0);
    }
    while (waitpid(child, &status, 0) != child)
        CHECK(errno == EINTR);
    CHECK(status == 0);
}

static void every(long microseconds)
{
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* Drains what is pushed, in a thread that the signals do not meet. */
static void *drain(void *inlet)
{
    float sample[2];
    int32_t ec;
    for (;;)
        lsl_pull_sample_f(inlet, sample, 2, LSL_FOREVER, &ec);
    return NULL;
}

static volatile int stop;

/* Readers that come and go, in a thread that the signals do not meet. */
static void *come_and_go(void *info)
{
    int32_t ec;
    while (!stop) {
        lsl_inlet inlet = lsl_create_inlet(info, 60, 0, 0);
        lsl_open_stream(inlet, PATIENCE, &ec);
        lsl_destroy_inlet(inlet);
    }
    return NULL;
}

/* The interrupted call waits for the very outlet, whose pushes wait for readers that go. */
static void wait_for_a_synchronous_outlet(const sigset_t *alarms)
{
    lsl_outlet other = outlet;
    char id[64];
    double end;
    pthread_t readers;
    snprintf(id, sizeof id, "synchronous-%ld", (long)getpid());
    lsl_streaminfo info = lsl_create_streaminfo("synchronous", "host", 2, 0.0, cft_float32, id), known;
    outlet = lsl_create_outlet_ex(info, 0, 60, transp_sync_blocking);
    CHECK(outlet != NULL);
    known = find(id);
    CHECK(pthread_sigmask(SIG_BLOCK, alarms, NULL) == 0);
    readers = start(come_and_go, known);
    CHECK(pthread_sigmask(SIG_UNBLOCK, alarms, NULL) == 0);
    every(100);
    sent = refused = 0;
    for (end = now() + 3.0; now() < end;)
        lsl_wait_for_consumers(outlet, 0.0005);
    CHECK(sent > 0 && others == 0);
    every(10000);
    stop = 1;
    pthread_join(readers, NULL);
    every(0);
    lsl_destroy_streaminfo(known);
    lsl_destroy_streaminfo(info);
    outlet = other;
}

/* Reads nothing for a second, in a thread that the signals do not meet. */
static void *read_late(void *descriptor)
{
    static char bytes[1 << 16];
    pause_for(1.0);
    while (read(*(int *)descriptor, bytes, sizeof bytes) > 0)
        ;
    return NULL;
}

/* The interrupted call waits for a reader's socket, with locks that the handler's push needs. */
static void push_to_a_synchronous_outlet(const sigset_t *alarms)
{
    /* Far more than sockets take. */
    static float chunk[1 << 23];
    static const char request[] = "LSL:streamfeed/110 \r\nMax-Buffer-Length: 1000\r\n\r\n";
    lsl_outlet other = outlet;
    struct sockaddr_in address = {.sin_family = AF_INET};
    char id[64], status[11], *xml, *port;
    pthread_t late;
    int reader = socket(AF_INET, SOCK_STREAM, 0);
    snprintf(id, sizeof id, "full-%ld", (long)getpid());
    lsl_streaminfo info = lsl_create_streaminfo("full", "host", 2, 0.0, cft_float32, id), known;
    outlet = lsl_create_outlet_ex(info, 0, 60, transp_sync_blocking);
    CHECK(outlet != NULL);
    known = find(id);
    xml = lsl_get_xml(known);
    port = strstr(xml, "<v4data_port>");
    CHECK(port != NULL);
    address.sin_port = htons((uint16_t)atoi(port + strlen("<v4data_port>")));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(reader, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(write(reader, request, strlen(request)) == (ssize_t)strlen(request));
    CHECK(read(reader, status, sizeof status) == (ssize_t)sizeof status);
    if (memcmp(status, "LSL/110 403", sizeof status) == 0) {
        printf("interrupting: not tried with a security policy, which refuses the reader\n");
        return;
    }
    CHECK(memcmp(status, "LSL/110 200", sizeof status) == 0);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    CHECK(pthread_sigmask(SIG_BLOCK, alarms, NULL) == 0);
    late = start(read_late, &reader);
    CHECK(pthread_sigmask(SIG_UNBLOCK, alarms, NULL) == 0);
    sent = refused = 0;
    every(10000);
    CHECK(lsl_push_chunk_f(outlet, chunk, sizeof chunk / sizeof *chunk) == 0);
    CHECK(refused > 0 && others == 0);
    every(0);
    CHECK(lsl_have_consumers(outlet) == 1);
    lsl_destroy_outlet(outlet);
    pthread_join(late, NULL);
    close(reader);
    lsl_destroy_string(xml);
    lsl_destroy_streaminfo(known);
    lsl_destroy_streaminfo(info);
    outlet = other;
}

int main(void)
{
    char source_id[64], other_id[64];
    struct sigaction action;
    sigset_t alarms;
    lsl_inlet reader, describes, silent;
    lsl_outlet other;
    float sample[2];
    int32_t ec;
    double end;
    outlet = announce("interrupting", source_id, sizeof source_id);
    other = announce("silent", other_id, sizeof other_id);
    reader = listen_to(source_id, 1);
    describes = listen_to(source_id, 1);
    silent = listen_to(other_id, 1);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    CHECK(pthread_sigmask(SIG_BLOCK, &alarms, NULL) == 0);
    start(drain, reader);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL) == 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = push_now;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);

    /* Calls that work: handles and memory come and go, samples are pushed and pulled. */
    every(500);
    for (end = now() + 3.0; now() < end;) {
        lsl_destroy_streaminfo(lsl_get_fullinfo(describes, PATIENCE, &ec));
        CHECK(ec == 0);
        lsl_push_sample_f(outlet, sample);
        lsl_samples_available(describes);
        lsl_inlet_flush(describes);
    }
    CHECK(sent > 0 && others == 0);

    /* Forks, for which the library holds its locks. */
    sent = refused = 0;
    for (end = now() + 2.0; now() < end;)
        fork_once();
    CHECK(sent > 0 && others == 0);

    /* Calls that wait. */
    every(10000);
    sent = refused = 0;
    for (end = now() + PATIENCE; sent <= 10;) {
        CHECK(now() < end);
        CHECK(lsl_pull_sample_f(silent, sample, 2, 1.0, &ec) == 0.0 && ec == 0);
    }
    CHECK(sent > refused);
    sent = refused = 0;
    lsl_destroy_outlet(other);
    for (end = now() + PATIENCE; sent <= 10;) {
        CHECK(now() < end);
        CHECK(lsl_pull_sample_f(silent, sample, 2, 1.0, &ec) == 0.0);
    }
    CHECK(sent > refused && others == 0);
    every(0);
    wait_for_a_synchronous_outlet(&alarms);
    push_to_a_synchronous_outlet(&alarms);
    _exit(0);
}
