#include "faults.h"
const struct rig_test queue_tests[] = {{NULL, NULL}};
