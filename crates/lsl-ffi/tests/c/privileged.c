/* A program that runs with the rights of somebody else must not take its keys, or the lack of keys, from
 * whoever started it.
 *   privileged WHETHER POLICY   whether it has them, and what lslx_security_policy must say */
#include <sys/auxv.h>

#include "host.h"
#include "lslx.h"

int main(int count, char **arguments)
{
    CHECK(count == 3);
    CHECK((int)getauxval(AT_SECURE) == atoi(arguments[1]));
    CHECK(lslx_security_policy() == atoi(arguments[2]));
    return 0;
}
