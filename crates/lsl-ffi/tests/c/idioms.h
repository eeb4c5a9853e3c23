/* What programs in the wild do, one idiom per function. What an idiom says must be the same with our
 * library as with liblsl. */
#ifndef IDIOMS_H
#define IDIOMS_H

#include "host.h"

/* A line of the transcript that is compared. */
#define SAY(...)                                                                                   \
    do {                                                                                           \
        printf("> " __VA_ARGS__);                                                                  \
        putchar('\n');                                                                             \
    } while (0)

/* What liblsl crashes at, or answers with what lies in freed memory: only ours must keep it. */
#define OURS(condition)                                                                            \
    do {                                                                                           \
        if (is_ours())                                                                             \
            CHECK(condition);                                                                      \
    } while (0)

static inline int is_ours(void) { return strstr(lsl_library_info(), "lsl-rs") != NULL; }

/* A source id of this process. */
static inline const char *source(const char *name)
{
    static char text[64];
    snprintf(text, sizeof text, "%s-%ld", name, (long)getpid());
    return text;
}

/* An info of three channels with labels. */
static inline lsl_streaminfo described(const char *name, lsl_channel_format_t format)
{
    static const char *labels[] = {"C3", "C4 of the left and right", "Cz"};
    lsl_streaminfo info = lsl_create_streaminfo(name, "EEG", 3, 100.0, format, source(name));
    lsl_xml_ptr channels = lsl_append_child(lsl_get_desc(info), "channels");
    CHECK(info != NULL);
    for (int i = 0; i < 3; i++)
        lsl_append_child_value(lsl_append_child(channels, "channel"), "label", labels[i]);
    lsl_append_child_value(lsl_get_desc(info), "maker", "nobody");
    return info;
}

static inline lsl_outlet outlet_of(const char *name, lsl_channel_format_t format)
{
    lsl_streaminfo info = described(name, format);
    lsl_outlet outlet = lsl_create_outlet(info, 0, 60);
    CHECK(outlet != NULL);
    lsl_destroy_streaminfo(info);
    return outlet;
}

/* An inlet that is not open yet. */
static inline lsl_inlet inlet_of(const char *name, int32_t recover)
{
    lsl_streaminfo info = find(source(name));
    lsl_inlet inlet = lsl_create_inlet(info, 60, 0, recover);
    CHECK(inlet != NULL);
    lsl_destroy_streaminfo(info);
    return inlet;
}

static inline lsl_inlet open_inlet_of(const char *name, lsl_outlet outlet, int32_t recover)
{
    lsl_inlet inlet = inlet_of(name, recover);
    int32_t ec = 1;
    lsl_open_stream(inlet, PATIENCE, &ec);
    CHECK(ec == 0);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    return inlet;
}

/* Says the labels of the channels below a <desc>. */
static inline void say_labels(lsl_xml_ptr desc)
{
    lsl_xml_ptr channel = lsl_child(lsl_child(desc, "channels"), "channel");
    int count = 0;
    for (; !lsl_empty(channel); channel = lsl_next_sibling(channel), count++)
        SAY("label %s", lsl_child_value_n(channel, "label"));
    SAY("%d channels by %s", count, lsl_child_value_n(desc, "maker"));
}

/* The idioms of a file. */
struct idiom {
    const char *name;
    void (*play)(void);
};



#endif
