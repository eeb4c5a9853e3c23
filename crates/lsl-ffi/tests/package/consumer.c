/* The least that shows which library a build system found. */
#include <lsl/common.h>
#include <lsl_c.h>
#include <stdio.h>

int main(void)
{
    lsl_streaminfo info = lsl_create_streaminfo("consumer", "t", 1, 0.0, cft_float32, "");
    printf("%s\n", lsl_library_info());
    lsl_destroy_streaminfo(info);
    return info == NULL;
}
