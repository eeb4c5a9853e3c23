/* Says which library programs here load, in the words of the program of this name that liblsl brings. */
#include <lsl_c.h>
#include <stdio.h>

int main(void)
{
    const int version = lsl_library_version();
    printf("LSL version: %d\n%s\n%f\n", version, lsl_library_info(), lsl_local_clock());
    return 0;
}
