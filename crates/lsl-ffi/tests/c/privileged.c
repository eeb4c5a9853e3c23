/* A program that runs with the rights of somebody else must not take its keys, or the lack of keys, from
 * whoever started it.
 *   privileged WHETHER POLICY SESSION   whether it has them, what lslx_security_policy must say, and the
 *                                       session that lsl_api.cfg gives its outlets */
#include <sys/auxv.h>

#include "host.h"
#include "lslx.h"

int main(int count, char **arguments)
{
    lsl_streaminfo info, announced;
    lsl_outlet outlet;
    CHECK(count == 4);
    CHECK((int)getauxval(AT_SECURE) == atoi(arguments[1]));
    CHECK(lslx_security_policy() == atoi(arguments[2]));
    info = lsl_create_streaminfo("privileged", "host", 1, 100, cft_float32, "privileged");
    outlet = lsl_create_outlet(info, 0, 360);
    CHECK(outlet != NULL);
    announced = lsl_get_info(outlet);
    CHECK(strcmp(lsl_get_session_id(announced), arguments[3]) == 0);
    lsl_destroy_streaminfo(announced);
    lsl_destroy_outlet(outlet);
    lsl_destroy_streaminfo(info);
    return 0;
}
