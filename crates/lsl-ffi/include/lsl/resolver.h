/* For programs that include <lsl/resolver.h>: it is all in one file. */
#include "../lsl_c.h"
