/* dlopen, use, dlclose, again and again: nothing crashes and nothing piles up.
 *   unload LIBRARY */
#include "host.h"

#ifdef _WIN32
#define dlopen(path, flags) ((void *)LoadLibraryA(path))
#define dlsym(library, name) ((void *)GetProcAddress(library, name))
#define dlerror() "LoadLibrary failed"
#define dlclose(library) stays(library, FreeLibrary(library))

/* Its threads would go on in code that is gone. */
static void stays(HMODULE library, BOOL is_given_back)
{
    char path[MAX_PATH];
    if (is_given_back && GetModuleFileNameA(library, path, sizeof path) > 0)
        return;
    fprintf(stderr, "the library is gone\n");
    _exit(1);
}
#else
#include <dlfcn.h>
#endif

typedef lsl_streaminfo (*create_info_t)(
    const char *, const char *, int32_t, double, lsl_channel_format_t, const char *);
typedef lsl_outlet (*create_outlet_t)(lsl_streaminfo, int32_t, int32_t);
typedef int32_t (*push_t)(lsl_outlet, const float *);
typedef void (*destroy_t)(void *);

static void *symbol(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "no %s\n", name);
        _exit(1);
    }
    return address;
}

static void use(const char *path)
{
    float sample = 1;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
    create_info_t create_info = (create_info_t)symbol(library, "lsl_create_streaminfo");
    create_outlet_t create_outlet = (create_outlet_t)symbol(library, "lsl_create_outlet");
    push_t push = (push_t)symbol(library, "lsl_push_sample_f");
    destroy_t destroy_outlet = (destroy_t)symbol(library, "lsl_destroy_outlet");
    destroy_t destroy_info = (destroy_t)symbol(library, "lsl_destroy_streaminfo");
    lsl_streaminfo info = create_info("unload", "host", 1, 0.0, cft_float32, "unload");
    lsl_outlet outlet = create_outlet(info, 0, 60);
    if (outlet == NULL || push(outlet, &sample) != 0)
        _exit(1);
    destroy_outlet(outlet);
    destroy_info(info);
    dlclose(library);
}

static int most(int one, int other)
{
    return one > other ? one : other;
}

int main(int count, char **arguments)
{
    int threads_before = 0, descriptors_before = 0;
    if (count != 2)
        return 2;
    for (int round = 0; round < 30; round++) {
        use(arguments[1]);
        /* In some rounds what the one before held is closed already. */
        if (round < 10) {
            threads_before = most(threads_before, threads());
            descriptors_before = most(descriptors_before, descriptors());
        }
    }
    /* What a destroyed outlet held may take a moment to be closed. */
    for (double end = now() + PROMPT;
         threads() > threads_before || descriptors() > descriptors_before; pause_for(0.05)) {
        if (now() > end) {
            fprintf(stderr, "threads %d then %d, descriptors %d then %d\n", threads_before,
                threads(), descriptors_before, descriptors());
            return 1;
        }
    }
    return 0;
}
