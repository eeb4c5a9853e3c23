/* What a process holds, as Linux counts it. */
#ifndef HOST_POSIX_H
#define HOST_POSIX_H

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

static inline int entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int count = 0;
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

static inline int threads(void) { return entries("/proc/self/task"); }

static inline int descriptors(void) { return entries("/proc/self/fd"); }

/* Kilobytes of memory that the process really uses. */
static inline long resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long total = 0, pages = 0;
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &total, &pages) != 2)
            pages = 0;
        fclose(file);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

#endif
