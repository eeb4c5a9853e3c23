/* For programs that include <lsl/common.h>: it is all in one file. */
#include "../lsl_c.h"
