/* Nodes and texts that outlive what they were got from. */
#include "idioms.h"

static lsl_xml_ptr desc_of_a_temporary(void)
{
    lsl_streaminfo info = described("temporary", cft_float32);
    lsl_xml_ptr desc = lsl_get_desc(info);
    lsl_destroy_streaminfo(info);
    return desc;
}

/* info().desc().child("channels").child("channel").child_value("label"), and the loop after it. */
static void returned_desc(void)
{
    lsl_xml_ptr desc = desc_of_a_temporary();
    say_labels(desc);
    SAY("below %s of %s", lsl_name(lsl_parent(desc)),
        lsl_child_value_n(lsl_parent(desc), "name"));
    SAY("last %s", lsl_name(lsl_last_child(desc)));
    SAY("before it %s", lsl_name(lsl_previous_sibling(lsl_last_child(desc))));
}

static void edited_desc_of_a_temporary(void)
{
    lsl_xml_ptr desc = desc_of_a_temporary(), child;
    lsl_append_child_value(desc, "serial", "0041");
    SAY("set %d", lsl_set_child_value(desc, "maker", "somebody"));
    child = lsl_prepend_child(desc, "first");
    SAY("renamed %d", lsl_set_name(child, "zeroth"));
    SAY("first %s", lsl_name(lsl_first_child(desc)));
    SAY("serial %s", lsl_child_value_n(desc, "serial"));
    lsl_remove_child_n(desc, "serial");
    SAY("serial '%s'", lsl_child_value_n(desc, "serial"));
    say_labels(desc);
}

static void copy_from_a_temporary(void)
{
    lsl_streaminfo info = lsl_create_streaminfo("copy", "EEG", 1, 0.0, cft_int8, source("copy"));
    lsl_append_copy(lsl_get_desc(info), lsl_child(desc_of_a_temporary(), "channels"));
    lsl_prepend_copy(lsl_get_desc(info), lsl_child(desc_of_a_temporary(), "maker"));
    say_labels(lsl_get_desc(info));
    lsl_destroy_streaminfo(info);
}

/* inlet.info().desc() and outlet.get_info().desc(), as every wrapper has them. */
static void desc_of_the_streams_info(void)
{
    lsl_outlet outlet = outlet_of("streams", cft_float32);
    lsl_inlet inlet = inlet_of("streams", 1);
    int32_t ec = 1;
    lsl_streaminfo info = lsl_get_fullinfo(inlet, PATIENCE, &ec);
    lsl_xml_ptr desc = lsl_get_desc(info);
    lsl_destroy_streaminfo(info);
    say_labels(desc);
    info = lsl_get_info(outlet);
    desc = lsl_get_desc(info);
    lsl_destroy_streaminfo(info);
    say_labels(desc);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

static void node_of_a_deleted_result(void)
{
    lsl_outlet outlet = outlet_of("results", cft_float32);
    lsl_streaminfo found = find(source("results"));
    lsl_xml_ptr desc = lsl_get_desc(found);
    lsl_destroy_streaminfo(found);
    SAY("%s %s", lsl_name(desc), lsl_child_value_n(lsl_parent(desc), "name"));
    SAY("short: '%s'", lsl_child_value_n(desc, "maker"));
    lsl_destroy_outlet(outlet);
}

static void desc_of_a_replaced_info(void)
{
    lsl_streaminfo info = described("one", cft_float32);
    lsl_xml_ptr desc = lsl_get_desc(info);
    lsl_streaminfo next = described("two", cft_float32);
    lsl_destroy_streaminfo(info);
    info = next;
    SAY("old %s", lsl_child_value_n(lsl_parent(desc), "name"));
    say_labels(desc);
    /* liblsl's list of free memory begins where pugixml looks for its allocator. */
    OURS(lsl_append_child_value(desc, "more", "of the old") == desc);
    OURS(strcmp(lsl_child_value_n(desc, "more"), "of the old") == 0);
    SAY("new '%s'", lsl_child_value_n(lsl_get_desc(info), "more"));
    lsl_destroy_streaminfo(info);
}

/* liblsl crashes at lsl_previous_sibling(removed). */
static void removed_node(void)
{
    lsl_streaminfo info = described("removed", cft_float32);
    lsl_xml_ptr desc = lsl_get_desc(info), channels = lsl_child(desc, "channels");
    lsl_xml_ptr removed = lsl_next_sibling(lsl_first_child(channels));
    lsl_xml_ptr label = lsl_child(removed, "label");
    lsl_remove_child(channels, removed);
    SAY("%s '%s'", lsl_name(removed), lsl_child_value_n(removed, "label"));
    SAY("below it %s '%s'", lsl_name(label), lsl_child_value(label));
    SAY("parent of that %s", lsl_name(lsl_parent(label)));
    SAY("empty %d, parent %d, next %d", lsl_empty(removed), lsl_parent(removed) != NULL,
        lsl_next_sibling(removed) != NULL);
    OURS(lsl_previous_sibling(removed) == NULL);
    say_labels(desc);
    lsl_append_copy(channels, removed);
    say_labels(desc);
    lsl_destroy_streaminfo(info);
}

/* The loop that looks for the next node after it removed one: it ends early, everywhere. */
static void loop_that_removes(void)
{
    lsl_streaminfo info = described("loop", cft_float32);
    lsl_xml_ptr channels = lsl_child(lsl_get_desc(info), "channels"), at;
    for (at = lsl_first_child(channels); !lsl_empty(at); at = lsl_next_sibling(at)) {
        SAY("removing %s", lsl_child_value_n(at, "label"));
        lsl_remove_child(channels, at);
    }
    say_labels(lsl_get_desc(info));
    lsl_destroy_streaminfo(info);
}

static void removed_desc(void)
{
    lsl_streaminfo info = described("desc", cft_float32);
    lsl_xml_ptr desc = lsl_get_desc(info);
    lsl_remove_child(lsl_parent(desc), desc);
    SAY("has a desc: %d", lsl_get_desc(info) != NULL);
    say_labels(desc);
    lsl_append_child_value(desc, "more", "than before");
    SAY("more %s", lsl_child_value_n(desc, "more"));
    lsl_destroy_streaminfo(info);
}

/* A new node takes the place of a removed one that is still looked at. */
static void replaced_node(void)
{
    lsl_streaminfo info = described("replaced", cft_float32);
    lsl_xml_ptr desc = lsl_get_desc(info), maker = lsl_child(desc, "maker");
    lsl_remove_child(desc, maker);
    lsl_append_child_value(desc, "maker", "somebody");
    SAY("new %s", lsl_child_value_n(desc, "maker"));
    /* liblsl's memory of the old one may be in use again. */
    OURS(strcmp(lsl_child_value(maker), "nobody") == 0);
    lsl_destroy_streaminfo(info);
}

/* Fields of an info after its end. liblsl keeps numbers and short texts, but not the name. */
static void fields_of_a_destroyed_info(void)
{
    lsl_streaminfo info = described("fields of it", cft_int16);
    const char *name = lsl_get_name(info), *type = lsl_get_type(info);
    lsl_destroy_streaminfo(info);
    SAY("type %s, then %s", type, lsl_get_type(info));
    SAY("%d channels at %g of format %d", lsl_get_channel_count(info),
        lsl_get_nominal_srate(info), lsl_get_channel_format(info));
    SAY("version %d, made at %g, bytes %d and %d", lsl_get_version(info),
        lsl_get_created_at(info), lsl_get_channel_bytes(info), lsl_get_sample_bytes(info));
    SAY("desc %d", lsl_get_desc(info) != NULL);
    OURS(strcmp(name, "fields of it") == 0 && lsl_get_name(info) == name);
    OURS(strcmp(lsl_get_source_id(info), source("fields of it")) == 0);
}

static void copies_outlive_their_originals(void)
{
    lsl_streaminfo info = described("original", cft_float32), copy = lsl_copy_streaminfo(info);
    lsl_streaminfo second = lsl_copy_streaminfo(copy);
    lsl_outlet outlet;
    lsl_destroy_streaminfo(info);
    lsl_append_child_value(lsl_get_desc(copy), "more", "of the copy");
    outlet = lsl_create_outlet(copy, 0, 10);
    lsl_destroy_streaminfo(copy);
    SAY("%s '%s'", lsl_get_name(second), lsl_child_value_n(lsl_get_desc(second), "more"));
    say_labels(lsl_get_desc(second));
    info = lsl_get_info(outlet);
    lsl_destroy_outlet(outlet);
    SAY("%s '%s'", lsl_get_name(info), lsl_child_value_n(lsl_get_desc(info), "more"));
    say_labels(lsl_get_desc(info));
    lsl_destroy_streaminfo(info);
    lsl_destroy_streaminfo(second);
}

static const struct idiom lifetimes[] = {
    {"returned desc", returned_desc},
    {"edited desc of a temporary", edited_desc_of_a_temporary},
    {"copy from a temporary", copy_from_a_temporary},
    {"desc of the info of a stream", desc_of_the_streams_info},
    {"node of a deleted result", node_of_a_deleted_result},
    {"desc of a replaced info", desc_of_a_replaced_info},
    {"removed node", removed_node},
    {"loop that removes", loop_that_removes},
    {"removed desc", removed_desc},
    {"replaced node", replaced_node},
    {"fields of a destroyed info", fields_of_a_destroyed_info},
    {"copies outlive their originals", copies_outlive_their_originals},
    {NULL, NULL},
};
