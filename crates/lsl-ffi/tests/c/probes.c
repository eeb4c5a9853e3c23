/* A stream from this process to itself, one sample at a time, for a debugger to look at. */
#include "host.h"

int main(void)
{
    char source_id[64];
    lsl_outlet outlet = announce("probes", source_id, sizeof source_id);
    lsl_inlet inlet = listen_to(source_id, 0);
    for (int i = 1; i <= 3; i++)
        exchange(outlet, inlet, (float)i);
    lsl_destroy_inlet(inlet);
    /* So that the outlet sees its session end. */
    while (lsl_have_consumers(outlet))
        pause_for(0.01);
    lsl_destroy_outlet(outlet);
    return 0;
}
