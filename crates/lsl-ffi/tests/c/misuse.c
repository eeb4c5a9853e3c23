/* Handles that are none: NULL, destroyed, of another kind, made up. Every call answers, none crashes. */
#include "host.h"

static char *text[2] = {NULL, NULL};
static const char *words[2] = {"a", "b"};
static uint32_t lengths[2] = {1, 1};

/* Calls everything that takes an object. Only for handles that are bad for all of it. */
static void abuse(void *bad)
{
    float f[2] = {0, 0};
    double d[2] = {0, 0}, stamps[2];
    char c[2] = {0, 0};
    int16_t s[2] = {0, 0};
    int32_t i[2] = {0, 0}, ec;
    int64_t l[2] = {0, 0};
    char *xml;
    lsl_streaminfo infos[2] = {NULL, NULL};

    CHECK(lsl_copy_streaminfo(bad) == NULL);
    CHECK(strcmp(lsl_get_name(bad), "") == 0 && strcmp(lsl_get_type(bad), "") == 0);
    CHECK(strcmp(lsl_get_uid(bad), "") == 0 && strcmp(lsl_get_session_id(bad), "") == 0);
    CHECK(strcmp(lsl_get_hostname(bad), "") == 0 && strcmp(lsl_get_source_id(bad), "") == 0);
    CHECK(lsl_get_channel_count(bad) == 0 && lsl_get_nominal_srate(bad) == 0.0);
    CHECK(lsl_get_channel_format(bad) == cft_undefined && lsl_get_version(bad) == 0);
    CHECK(lsl_get_created_at(bad) == 0.0 && lsl_get_channel_bytes(bad) == 0);
    CHECK(lsl_get_sample_bytes(bad) == 0 && lsl_stream_info_matches_query(bad, "1") == 0);
    CHECK(lsl_get_desc(bad) == NULL);
    xml = lsl_get_xml(bad);
    lsl_destroy_string(xml);
    lsl_reset_uid(bad);

    CHECK(lsl_first_child(bad) == NULL && lsl_last_child(bad) == NULL);
    CHECK(lsl_next_sibling(bad) == NULL && lsl_previous_sibling(bad) == NULL);
    CHECK(lsl_parent(bad) == NULL && lsl_child(bad, "a") == NULL);
    CHECK(lsl_next_sibling_n(bad, "a") == NULL && lsl_previous_sibling_n(bad, "a") == NULL);
    CHECK(lsl_empty(bad) == 1 && lsl_is_text(bad) == 1);
    CHECK(strcmp(lsl_name(bad), "") == 0 && strcmp(lsl_value(bad), "") == 0);
    CHECK(strcmp(lsl_child_value(bad), "") == 0 && strcmp(lsl_child_value_n(bad, "a"), "") == 0);
    CHECK(lsl_append_child(bad, "a") == NULL && lsl_prepend_child(bad, "a") == NULL);
    CHECK(lsl_append_child_value(bad, "a", "b") == NULL);
    CHECK(lsl_prepend_child_value(bad, "a", "b") == NULL);
    CHECK(lsl_append_copy(bad, bad) == NULL && lsl_prepend_copy(bad, bad) == NULL);
    CHECK(lsl_set_child_value(bad, "a", "b") == 0 && lsl_set_name(bad, "a") == 0);
    CHECK(lsl_set_value(bad, "a") == 0);
    lsl_remove_child(bad, bad);
    lsl_remove_child_n(bad, "a");

    CHECK(lsl_create_outlet(bad, 0, 60) == NULL && lsl_create_inlet(bad, 60, 0, 1) == NULL);
    CHECK(lsl_create_outlet_ex(bad, 0, 60, transp_default) == NULL);
    CHECK(lsl_create_inlet_ex(bad, 60, 0, 1, transp_default) == NULL);
    CHECK(lsl_get_info(bad) == NULL && lsl_have_consumers(bad) == 0);
    CHECK(lsl_wait_for_consumers(bad, 0.0) == 0);
    CHECK(lsl_push_sample_f(bad, f) < 0 && lsl_push_sample_d(bad, d) < 0);
    CHECK(lsl_push_sample_l(bad, l) < 0 && lsl_push_sample_i(bad, i) < 0);
    CHECK(lsl_push_sample_s(bad, s) < 0 && lsl_push_sample_c(bad, c) < 0);
    CHECK(lsl_push_sample_str(bad, words) < 0 && lsl_push_sample_buf(bad, words, lengths) < 0);
    CHECK(lsl_push_sample_v(bad, f) < 0 && lsl_push_chunk_ftn(bad, f, 2, d) < 0);
    CHECK(lsl_push_chunk_f(bad, f, 2) < 0 && lsl_push_chunk_str(bad, words, 2) < 0);
    CHECK(lsl_push_chunk_buf(bad, words, lengths, 2) < 0);

#define PULLED(call) (ec = 1, (call) == 0 && ec < 0)
    CHECK(PULLED(lsl_pull_sample_f(bad, f, 2, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_sample_d(bad, d, 2, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_sample_l(bad, l, 2, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_sample_i(bad, i, 2, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_sample_s(bad, s, 2, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_sample_c(bad, c, 2, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_sample_str(bad, text, 2, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_sample_buf(bad, text, lengths, 2, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_sample_v(bad, f, 8, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_chunk_f(bad, f, stamps, 2, 1, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_chunk_str(bad, text, stamps, 2, 1, 0.0, &ec)));
    CHECK(PULLED(lsl_pull_chunk_buf(bad, text, lengths, stamps, 2, 1, 0.0, &ec)));
    CHECK(PULLED(lsl_time_correction(bad, 0.0, &ec)));
    CHECK(PULLED(lsl_time_correction_ex(bad, d, d, 0.0, &ec)));
    ec = 1;
    CHECK(lsl_get_fullinfo(bad, 0.0, &ec) == NULL && ec < 0);
    ec = 1;
    lsl_open_stream(bad, 0.0, &ec);
    CHECK(ec < 0);
    CHECK(lsl_pull_sample_f(bad, f, 2, 0.0, NULL) == 0.0);
    lsl_close_stream(bad);
    CHECK(lsl_samples_available(bad) == 0 && lsl_inlet_flush(bad) == 0);
    CHECK(lsl_was_clock_reset(bad) == 0);
    CHECK(lsl_set_postprocessing(bad, proc_ALL) < 0 && lsl_smoothing_halftime(bad, 90) < 0);
    CHECK(lsl_resolver_results(bad, infos, 2) <= 0 && infos[0] == NULL);

    lsl_destroy_streaminfo(bad);
    lsl_destroy_outlet(bad);
    lsl_destroy_inlet(bad);
    lsl_destroy_continuous_resolver(bad);
}

/* Calls that take no object get nonsense instead of texts and buffers. */
static void nonsense(void)
{
    char source_id[64];
    lsl_outlet outlet = announce("nonsense", source_id, sizeof source_id);
    lsl_inlet inlet = listen_to(source_id, 1);
    lsl_streaminfo info = lsl_get_info(outlet);
    int32_t ec = 1;

    CHECK(lsl_create_streaminfo(NULL, "t", 1, 0.0, cft_int8, "i") == NULL);
    CHECK(lsl_create_streaminfo("n", NULL, 1, 0.0, cft_int8, "i") == NULL);
    CHECK(lsl_create_streaminfo("n", "t", 1, 0.0, cft_int8, NULL) == NULL);
    CHECK(lsl_create_streaminfo("n", "t", 1, 0.0, (lsl_channel_format_t)8, "i") == NULL);
    CHECK(lsl_streaminfo_from_xml(NULL) == NULL);
    CHECK(lsl_stream_info_matches_query(info, NULL) == 0);
    CHECK(lsl_append_child(lsl_get_desc(info), NULL) == NULL);
    lsl_append_child_value(lsl_get_desc(info), NULL, NULL);
    CHECK(lsl_child(lsl_get_desc(info), NULL) == NULL);
    CHECK(lsl_push_sample_f(outlet, NULL) == lsl_internal_error);
    CHECK(lsl_push_chunk_f(outlet, NULL, 4) == lsl_internal_error);
    CHECK(lsl_push_sample_str(outlet, NULL) < 0 && lsl_push_sample_v(outlet, NULL) < 0);
    CHECK(lsl_push_chunk_ftn(outlet, (const float[]){1, 2}, 2, NULL) == lsl_internal_error);
    CHECK(lsl_push_chunk_f(outlet, (const float[]){1, 2, 3}, 3) == lsl_internal_error);
    CHECK(lsl_pull_sample_f(inlet, NULL, 2, 0.0, &ec) == 0.0);
    CHECK(lsl_pull_chunk_f(inlet, NULL, NULL, 2, 1, 0.0, &ec) == 0);
    CHECK(lsl_pull_chunk_f(inlet, NULL, NULL, 0, 0, 0.0, &ec) == 0 && ec == 0);
    CHECK(lsl_pull_chunk_f(inlet, NULL, NULL, 3, 0, 0.0, &ec) == 0 && ec == lsl_internal_error);
    CHECK(lsl_resolve_all(NULL, 0, 0.1) == 0);
    CHECK(lsl_resolve_bypred(&info, 0, "name='", 0, 0.1) == lsl_argument_error);
    CHECK(lsl_create_continuous_resolver_bypred("name='", 5.0) == NULL);
    lsl_set_config_content(NULL);
    lsl_set_config_filename(NULL);
    lsl_destroy_string(NULL);
    lsl_destroy_string_array(NULL, 0);
    /* All that did no harm. */
    exchange(outlet, inlet, 5);
    lsl_destroy_streaminfo(info);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
}

int main(void)
{
    char source_id[64];
    uintptr_t bits[] = {0, 1, 2, 7, 4096, 1u << 24, 0x1000001, UINTPTR_MAX, UINTPTR_MAX / 2};
    lsl_outlet outlet;
    lsl_inlet inlet;
    lsl_streaminfo info;
    lsl_xml_ptr node;
    lsl_continuous_resolver resolver;
    int here;

    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        abuse((void *)bits[i]);
    /* Memory of the program, and the stack. */
    abuse(&here);
    abuse((void *)source_id);

    outlet = announce("misuse", source_id, sizeof source_id);
    inlet = listen_to(source_id, 1);
    info = lsl_get_info(outlet);
    node = lsl_append_child(lsl_get_desc(info), "node");
    resolver = lsl_create_continuous_resolver(5.0);
    /* Of another kind: nothing may be read into it, and nothing be destroyed. */
    lsl_destroy_outlet((void *)inlet);
    lsl_destroy_inlet((void *)outlet);
    lsl_destroy_streaminfo((void *)resolver);
    lsl_destroy_continuous_resolver((void *)info);
    CHECK(lsl_push_sample_f((void *)inlet, (const float[]){1, 2}) < 0);
    CHECK(lsl_get_info((void *)info) == NULL);
    exchange(outlet, inlet, 3);
    CHECK(strcmp(lsl_get_name(info), "misuse") == 0);
    CHECK(strcmp(lsl_name(node), "node") == 0);

    lsl_destroy_continuous_resolver(resolver);
    abuse(resolver);
    lsl_destroy_inlet(inlet);
    abuse(inlet);
    lsl_destroy_outlet(outlet);
    abuse(outlet);
    lsl_destroy_streaminfo(info);
    /* What was got from it before still answers, for a while; it is no info any more. */
    lsl_destroy_streaminfo(info);
    CHECK(strcmp(lsl_name(node), "node") == 0 && strcmp(lsl_get_name(info), "misuse") == 0);
    CHECK(lsl_get_desc(info) == NULL && lsl_copy_streaminfo(info) == NULL);
    CHECK(lsl_create_outlet(info, 0, 60) == NULL && lsl_create_inlet(info, 60, 0, 1) == NULL);
    outlive_the_past();
    abuse(info);
    abuse(node);
    nonsense();
    return 0;
}
