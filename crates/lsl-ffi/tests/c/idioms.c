/* Idioms of programs in the wild, to be run with liblsl and with our library:
 *   idioms NAME        plays one; what it says is the lines that start with "> "
 *   idioms             lists them */
#include "idioms.h"

#include "idioms_lifetimes.h"
#include "idioms_orders.h"
#include "idioms_values.h"

static const struct idiom *const all[] = {lifetimes, orders, values};

int main(int count, char **arguments)
{
    /* Were this allocated, it would lie in what liblsl has freed and the idioms read. */
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (const struct idiom *idiom = all[i]; idiom->name != NULL; idiom++) {
            if (count < 2)
                puts(idiom->name);
            else if (strcmp(arguments[1], idiom->name) == 0) {
                idiom->play();
                SAY("end");
                fflush(stdout);
                /* liblsl may crash at the end of a process whose attempts are still under way. */
                _exit(0);
            }
        }
    return count < 2 ? 0 : 2;
}
