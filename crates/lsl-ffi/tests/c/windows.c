/* What only Windows has: C libraries of programs that are not the library's own, whose `free` takes its
 * texts, and another liblsl in the same process, whose clock is ours.
 *   windows LIBLSL */
#include "host.h"

typedef void (*free_t)(void *);
typedef double (*local_clock_t)(void);

static void *symbol(const char *library, const char *name)
{
    HMODULE module = LoadLibraryA(library);
    void *address = module == NULL ? NULL : (void *)GetProcAddress(module, name);
    if (address == NULL) {
        fprintf(stderr, "%s has no %s: error %lu\n", library, name, GetLastError());
        _exit(1);
    }
    return address;
}

/* The C library of Python and MSVC's programs; this program has an older one. */
static void texts_are_freed(void)
{
    free_t ucrt_free = (free_t)symbol("ucrtbase.dll", "free");
    lsl_streaminfo info = lsl_create_streaminfo("freed", "host", 2, 0.0, cft_float32, "freed");
    long before = 0;
    for (int i = 0; i < 20000; i++) {
        char *xml = lsl_get_xml(info);
        CHECK(xml != NULL && strstr(xml, "freed") != NULL);
        ucrt_free(xml);
        if (i == 1000)
            before = resident();
    }
    /* A page for every eight of them would be 9 MB. */
    CHECK(resident() < before + 4096);
    lsl_destroy_streaminfo(info);
}

/* One clock, read by both libraries in turn. */
static void clocks_agree(const char *liblsl)
{
    local_clock_t theirs = (local_clock_t)symbol(liblsl, "lsl_local_clock");
    int violations = 0;
    for (int i = 0; i < 1000000; i++) {
        double before = lsl_local_clock(), between = theirs(), after = lsl_local_clock();
        violations += !(before <= between && between <= after);
    }
    printf("%d of 1000000 readings of both clocks are out of order\n", violations);
    CHECK(violations == 0);
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    texts_are_freed();
    clocks_agree(arguments[1]);
    return 0;
}
