/* SPDX-License-Identifier: BSD-2-Clause */
/* The environment as the program began with it (base/env.h). ctest gives VERBENA_BUILD_DIR. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/env.h"

static void what_a_program_clears_holds(void **state)
{
	char *before = strdup(env_get("VERBENA_BUILD_DIR"));

	(void)state;
	assert_non_null(before);
	setenv("VERBENA_LATER", "1", 1);
	clearenv();
	assert_string_equal(env_get("VERBENA_BUILD_DIR"), before);
	assert_null(env_get("VERBENA_LATER"));
	assert_null(env_get("VERBENA_BUILD"));
	assert_null(env_get("PATH"));
	free(before);
}

static void what_a_program_sets_comes_first(void **state)
{
	(void)state;
	setenv("VERBENA_BUILD_DIR", "", 1);
	assert_string_equal(env_get("VERBENA_BUILD_DIR"), "");
	unsetenv("VERBENA_BUILD_DIR");
	assert_string_not_equal(env_get("VERBENA_BUILD_DIR"), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_program_clears_holds),
		cmocka_unit_test(what_a_program_sets_comes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
