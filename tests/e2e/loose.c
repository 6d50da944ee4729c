#include "faults.h"
const struct rig_test loose_tests[] = {{NULL, NULL}};
