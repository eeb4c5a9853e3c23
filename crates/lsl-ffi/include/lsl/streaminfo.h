/* For programs that include <lsl/streaminfo.h>: it is all in one file. */
#include "../lsl_c.h"
