/* What a process holds, as Windows counts it. */
#ifndef HOST_WINDOWS_H
#define HOST_WINDOWS_H

#include <stdlib.h>
#include <windows.h>

#include <psapi.h>
#include <tlhelp32.h>
#include <winternl.h>

static inline int threads(void)
{
    HANDLE list = CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0);
    THREADENTRY32 entry = {.dwSize = sizeof entry};
    int count = 0;
    for (BOOL more = Thread32First(list, &entry); more; more = Thread32Next(list, &entry))
        count += entry.th32OwnerProcessID == GetCurrentProcessId();
    CloseHandle(list);
    return count;
}

/* Handles are what a process has in place of descriptors. Wine counts none, but lists everybody's. */
static inline int descriptors(void)
{
    const SYSTEM_INFORMATION_CLASS all_handles = (SYSTEM_INFORMATION_CLASS)16;
    const ULONG room = 1 << 24;
    struct {
        ULONG count;
        struct {
            USHORT process, trace;
            UCHAR type, flags;
            USHORT handle;
            void *object;
            ULONG access;
        } entries[];
    } *list = malloc(room);
    int count = 0;
    if (list != NULL && NtQuerySystemInformation(all_handles, list, room, NULL) == 0)
        for (ULONG i = 0; i < list->count; i++)
            count += list->entries[i].process == (USHORT)GetCurrentProcessId();
    free(list);
    return count;
}

/* Kilobytes of memory that the process really uses. */
static inline long resident(void)
{
    PROCESS_MEMORY_COUNTERS counters = {.cb = sizeof counters};
    GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters);
    return (long)(counters.WorkingSetSize / 1024);
}

#endif
