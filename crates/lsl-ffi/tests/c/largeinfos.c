/* Large infos come and go by the thousand. What the library keeps of destroyed ones has a limit. */
#include "host.h"

#include <malloc.h>

#define INFOS 10000
#define LARGE (100 * 1024)
#define HUGE_TEXT (24 * 1024 * 1024)

/* The limit of what is kept is 128 MiB; a quarter more for the allocator. */
#define LIMIT_KB (128 * 1024 * 5 / 4)

static char text[HUGE_TEXT + 1];

static lsl_xml_ptr destroyed(size_t length)
{
    lsl_streaminfo info = lsl_create_streaminfo("large", "host", 2, 100.0, cft_float32, "large");
    lsl_xml_ptr desc = lsl_get_desc(info);
    text[length] = 0;
    CHECK(lsl_append_child_value(desc, "blob", text) != NULL);
    text[length] = 'x';
    lsl_destroy_streaminfo(info);
    return desc;
}

int main(void)
{
    lsl_xml_ptr last[16], removed;
    lsl_streaminfo info;
    long before, grown, most = 0;
    /* What is freed shows. */
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    memset(text, 'x', sizeof text - 1);
    destroyed(1);
    before = resident();
    for (int i = 0; i < INFOS; i++) {
        lsl_xml_ptr desc = destroyed(LARGE);
        CHECK(strlen(lsl_child_value(lsl_first_child(desc))) == LARGE);
        grown = resident() - before;
        most = grown > most ? grown : most;
    }
    CHECK(most < LIMIT_KB);

    /* The same for nodes that are removed from an info that lives. */
    info = lsl_create_streaminfo("large", "host", 2, 100.0, cft_float32, "large");
    text[LARGE] = 0;
    for (int i = 0; i < INFOS; i++) {
        lsl_append_child_value(lsl_get_desc(info), "blob", text);
        removed = lsl_child(lsl_get_desc(info), "blob");
        lsl_remove_child(lsl_get_desc(info), removed);
        CHECK(lsl_empty(lsl_first_child(removed)) == 0);
        grown = resident() - before;
        most = grown > most ? grown : most;
    }
    text[LARGE] = 'x';
    printf("%d infos and nodes of %d bytes: at most %ld kB more\n", 2 * INFOS, LARGE, most);
    CHECK(most < LIMIT_KB);
    lsl_destroy_streaminfo(info);

    /* Far larger ones stay until sixteen others are destroyed, and then go. */
    for (int i = 0; i < 16; i++)
        last[i] = destroyed(HUGE_TEXT);
    for (int i = 0; i < 16; i++)
        CHECK(lsl_empty(last[i]) == 0);
    for (int i = 0; i < 16; i++)
        destroyed(1);
    CHECK(lsl_empty(last[0]) == 1);
    grown = resident() - before;
    CHECK(grown < LIMIT_KB);
    return 0;
}
