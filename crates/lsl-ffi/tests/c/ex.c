/* The _ex constructors and the other functions a plain program needs, against our own header. */
#include "host.h"

static void buffer_in_samples(void)
{
    lsl_streaminfo info =
        lsl_create_streaminfo("ex", "host", 1, 100.0, cft_int32, "ex-samples");
    lsl_outlet outlet = lsl_create_outlet_ex(info, 0, 5000, transp_bufsize_samples);
    lsl_streaminfo found;
    lsl_inlet inlet;
    int32_t ec = 1, value, total = 0;
    CHECK(outlet != NULL);
    found = find("ex-samples");
    /* Keeps ten samples, so of fifty only the last ten are left. */
    inlet = lsl_create_inlet_ex(found, 10, 0, 1, transp_bufsize_samples);
    CHECK(inlet != NULL);
    lsl_open_stream(inlet, PATIENCE, &ec);
    CHECK(ec == 0);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    for (value = 1; value <= 50; value++)
        CHECK(lsl_push_sample_i(outlet, &value) == 0);
    for (double end = now() + PATIENCE; now() < end && lsl_samples_available(inlet) < 10;)
        pause_for(0.01);
    /* All fifty may not be there yet when ten are; the last one tells that they are. */
    value = 0;
    while (value != 50) {
        CHECK(lsl_pull_sample_i(inlet, &value, 1, PATIENCE, &ec) != 0.0 && ec == 0);
        total++;
    }
    CHECK(lsl_samples_available(inlet) == 0);
    CHECK(total >= 10);
    lsl_destroy_inlet(inlet);
    lsl_destroy_streaminfo(found);
    lsl_destroy_outlet(outlet);
    lsl_destroy_streaminfo(info);
}

static void synchronous(void)
{
    lsl_streaminfo info = lsl_create_streaminfo("ex", "host", 1, 0.0, cft_double64, "ex-sync");
    lsl_streaminfo text = lsl_create_streaminfo("ex", "host", 1, 0.0, cft_string, "ex-text");
    lsl_outlet outlet = lsl_create_outlet_ex(info, 0, 1, transp_sync_blocking);
    lsl_inlet inlet;
    double value = 2.5, got = 0.0;
    int32_t ec = 1;
    CHECK(outlet != NULL);
    CHECK(lsl_create_outlet_ex(text, 0, 1, transp_sync_blocking) == NULL);
    CHECK(strstr(lsl_last_error(), "Synchronous") != NULL);
    inlet = listen_to("ex-sync", 1);
    CHECK(lsl_wait_for_consumers(outlet, PATIENCE) == 1);
    CHECK(lsl_push_sample_dt(outlet, &value, 12.5) == 0);
    CHECK(lsl_pull_sample_d(inlet, &got, 1, PATIENCE, &ec) == 12.5 && ec == 0 && got == 2.5);
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(outlet);
    lsl_destroy_streaminfo(text);
    lsl_destroy_streaminfo(info);
}

static void refusals(void)
{
    lsl_streaminfo info = lsl_create_streaminfo("ex", "host", 1, 0.0, cft_int8, "ex-refused");
    int both = transp_bufsize_samples | transp_bufsize_thousandths;
    CHECK(lsl_create_outlet_ex(info, 0, 1, (lsl_transport_options_t)both) == NULL);
    CHECK(strstr(lsl_last_error(), "mutually exclusive") != NULL);
    CHECK(lsl_create_inlet_ex(info, 1, 0, 1, (lsl_transport_options_t)both) == NULL);
    CHECK(lsl_create_streaminfo("", "host", 1, 0.0, cft_int8, "") == NULL);
    CHECK(strcmp(lsl_last_error(), "The name of a stream must be non-empty.") == 0);
    lsl_destroy_streaminfo(info);
}

int main(void)
{
    CHECK(lsl_library_version() >= 118);
    CHECK(lsl_protocol_version() == 110);
    CHECK(lsl_library_info()[0] != '\0');
    CHECK(lsl_local_clock() <= now() && lsl_local_clock() > now() - 1.0);
    buffer_in_samples();
    synchronous();
    refusals();
    return 0;
}
