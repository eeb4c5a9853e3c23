/* What bindings do: they destroy an info and then use the nodes and texts that they got from it. Both
 * live on for a while, and end without harm. */
#include "host.h"

#include "lslx.h"

static lsl_streaminfo described(const char *maker)
{
    lsl_streaminfo info =
        lsl_create_streaminfo("temporaries", "host", 2, 100.0, cft_float32, "a source that is described");
    lsl_xml_ptr channels = lsl_append_child(lsl_get_desc(info), "channels");
    lsl_append_child_value(lsl_append_child(channels, "channel"), "label", "the label of the left one");
    lsl_append_child_value(lsl_append_child(channels, "channel"), "label", "the label of the right one");
    lsl_append_child_value(lsl_get_desc(info), "maker", maker);
    return info;
}

static void answers(lsl_xml_ptr desc, const char *maker)
{
    lsl_xml_ptr channel = lsl_child(lsl_child(desc, "channels"), "channel");
    CHECK(strcmp(lsl_child_value_n(channel, "label"), "the label of the left one") == 0);
    channel = lsl_next_sibling(channel);
    CHECK(strcmp(lsl_child_value_n(channel, "label"), "the label of the right one") == 0);
    CHECK(lsl_empty(lsl_next_sibling(channel)));
    CHECK(strcmp(lsl_child_value_n(desc, "maker"), maker) == 0);
}

#define MANY 4000

int main(void)
{
    static lsl_xml_ptr descs[MANY];
    char maker[32];
    const char *source_id;
    lsl_streaminfo info, copy;
    lsl_xml_ptr removed, label;
    char *xml;

    for (int i = 0; i < MANY; i++) {
        snprintf(maker, sizeof maker, "maker %d", i);
        info = described(maker);
        descs[i] = lsl_get_desc(info);
        lsl_destroy_streaminfo(info);
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(maker, sizeof maker, "maker %d", i);
        answers(descs[i], maker);
    }

    /* Edited, copied into a living info, and read by the text it gave before. */
    info = described("nobody");
    source_id = lsl_get_source_id(info);
    descs[0] = lsl_get_desc(info);
    lsl_destroy_streaminfo(info);
    lsl_append_child_value(descs[0], "more", "that came late");
    CHECK(lsl_set_child_value(descs[0], "maker", "somebody") == 1);
    answers(descs[0], "somebody");
    copy = lsl_create_streaminfo("copy", "host", 2, 100.0, cft_float32, "copy");
    lsl_append_copy(lsl_get_desc(copy), lsl_child(descs[0], "more"));
    xml = lsl_get_xml(copy);
    CHECK(strstr(xml, "<more>that came late</more>") != NULL);
    lsl_destroy_string(xml);
    CHECK(strcmp(source_id, "a source that is described") == 0);
    CHECK(lsl_get_source_id(info) == source_id && lsl_get_channel_count(info) == 2);

    /* A removed node, and what is below it. */
    removed = lsl_child(lsl_get_desc(copy), "more");
    label = lsl_first_child(removed);
    lsl_remove_child(lsl_get_desc(copy), removed);
    CHECK(strcmp(lsl_name(removed), "more") == 0);
    CHECK(strcmp(lsl_value(label), "that came late") == 0 && lsl_parent(label) == removed);
    CHECK(lsl_parent(removed) == NULL && lsl_next_sibling(removed) == NULL);
    lsl_destroy_streaminfo(copy);

    /* All of them end, and say so. */
    CHECK(lslx_dropped_reads() == 0);
    outlive_the_past();
    CHECK(lsl_empty(descs[0]) == 1 && lsl_empty(removed) == 1 && lsl_empty(label) == 1);
    CHECK(strcmp(lsl_get_source_id(info), "") == 0);
    CHECK(lslx_dropped_reads() == 4);
    return 0;
}
