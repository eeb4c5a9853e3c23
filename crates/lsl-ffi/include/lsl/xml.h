/* For programs that include <lsl/xml.h>: it is all in one file. */
#include "../lsl_c.h"
