/* For programs that include <lsl/types.h>: it is all in one file. */
#include "../lsl_c.h"
