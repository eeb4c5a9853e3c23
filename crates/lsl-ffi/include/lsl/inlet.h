/* For programs that include <lsl/inlet.h>: it is all in one file. */
#include "../lsl_c.h"
