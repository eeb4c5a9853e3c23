/* A security configuration that cannot be used: nothing streams, and everything says why.
 *   brokenkeys TEXT...   texts that the reason must have */
#include "host.h"
#include "lslx.h"

static int reasons;
static char **reason;

static void check_reason(const char *said)
{
    for (int i = 1; i < reasons; i++) {
        if (strstr(said, reason[i]) == NULL)
            fprintf(stderr, "no '%s' in '%s'\n", reason[i], said);
        CHECK(strstr(said, reason[i]) != NULL);
    }
}

/* So that an earlier reason is not taken for a new one. */
static void forget_reason(void)
{
    CHECK(lsl_create_streaminfo(NULL, "", 1, 1, cft_float32, "") == NULL);
    CHECK(strstr(lsl_last_error(), "NULL") != NULL);
}

int main(int count, char **arguments)
{
    lsl_streaminfo info, infos[4];
    char *text;
    int before;
    reasons = count;
    reason = arguments;
    CHECK(strstr(lsl_library_info(), "/lsl-secure:LSS1;policy:unusable") != NULL);
    info = lsl_create_streaminfo("broken", "host", 1, 100, cft_float32, "broken");
    CHECK(info != NULL);
    before = descriptors();

    forget_reason();
    CHECK(lsl_create_outlet(info, 0, 360) == NULL);
    check_reason(lsl_last_error());
    forget_reason();
    CHECK(lsl_create_outlet_ex(info, 0, 360, transp_sync_blocking) == NULL);
    check_reason(lsl_last_error());
    forget_reason();
    CHECK(lsl_create_inlet(info, 360, 0, 1) == NULL);
    check_reason(lsl_last_error());
    forget_reason();
    CHECK(lsl_create_inlet_ex(info, 360, 0, 0, transp_default) == NULL);
    check_reason(lsl_last_error());
    forget_reason();
    CHECK(lslx_security_policy() == lsl_internal_error);
    check_reason(lsl_last_error());
    text = lslx_security_text();
    CHECK(text != NULL);
    check_reason(text);
    lsl_destroy_string(text);

    /* Nothing of it is left, nobody listens. */
    CHECK(descriptors() == before);
    /* Looking and describing is no streaming. */
    CHECK(lsl_resolve_bypred(infos, 4, "name='broken'", 1, 0.5) == 0);
    CHECK(lslx_info_encryption(info) == lslx_policy_off);
    lsl_destroy_streaminfo(info);
    CHECK(lsl_local_clock() > 0);
    return 0;
}
