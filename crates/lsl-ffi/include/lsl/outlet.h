/* For programs that include <lsl/outlet.h>: it is all in one file. */
#include "../lsl_c.h"
