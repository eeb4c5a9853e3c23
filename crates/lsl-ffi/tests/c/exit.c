/* A process that ends with everything alive and threads blocked in calls ends at once, and well. */
#include "host.h"

static void *pull(void *inlet)
{
    float sample[2];
    int32_t ec;
    lsl_pull_sample_f(inlet, sample, 2, LSL_FOREVER, &ec);
    return NULL;
}

static void *wait_for(void *outlet)
{
    lsl_wait_for_consumers(outlet, LSL_FOREVER);
    return NULL;
}

static void *leave(void *unused)
{
    (void)unused;
    exit(0);
}

static void *push(void *outlet)
{
    float sample[2] = {0, 0};
    for (;;)
        lsl_push_sample_f(outlet, sample);
    return NULL;
}

/* How the process ends: by returning, from another thread, without destructors, under load. */
static void end(int how)
{
    char source_id[64], other_id[64];
    lsl_outlet outlet = announce("exit", source_id, sizeof source_id);
    lsl_outlet lonely = announce("lonely", other_id, sizeof other_id);
    lsl_inlet inlet = listen_to(source_id, 1);
    lsl_create_continuous_resolver(5.0);
    exchange(outlet, inlet, 1);
    lsl_time_correction(inlet, PATIENCE, NULL);
    start(pull, inlet);
    start(wait_for, lonely);
    if (how == 3)
        start(push, outlet);
    pause_for(0.2);
    if (how == 1) {
        start(leave, NULL);
        for (;;)
            pause_for(1.0);
    }
    if (how == 2)
        _exit(0);
    exit(0);
}

#ifdef _WIN32
/* Nothing forks there: this program again, told how to end. */
static int ends_well(int how, const char *program)
{
    char command[1024];
    STARTUPINFOA startup = {.cb = sizeof startup};
    PROCESS_INFORMATION child;
    DWORD status = 1;
    snprintf(command, sizeof command, "\"%s\" %d", program, how);
    CHECK(CreateProcessA(NULL, command, NULL, NULL, FALSE, 0, NULL, NULL, &startup, &child));
    CHECK(WaitForSingleObject(child.hProcess, (DWORD)(1000 * (PATIENCE + PROMPT))) == WAIT_OBJECT_0);
    CHECK(GetExitCodeProcess(child.hProcess, &status));
    return status == 0;
}
#else
static int ends_well(int how, const char *program)
{
    int status = 0;
    double begin;
    pid_t child = fork();
    (void)program;
    CHECK(child >= 0);
    if (child == 0)
        end(how);
    begin = now();
    while (waitpid(child, &status, WNOHANG) == 0) {
        CHECK(now() - begin < PATIENCE + PROMPT);
        pause_for(0.01);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
#endif

int main(int count, char **arguments)
{
    if (count > 1)
        end(atoi(arguments[1]));
    for (int how = 0; how < 4; how++)
        CHECK(ends_well(how, arguments[0]));
    return 0;
}
