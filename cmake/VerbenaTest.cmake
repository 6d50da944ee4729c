# SPDX-License-Identifier: BSD-2-Clause
# Functions with which the folders under tests/ register what they have.

# TIMEOUT is for an idle machine. A test is ended after five times as long, because a loaded machine
# may take that long: the bound is for what hangs.
set(VERBENA_TEST_PATIENCE 5)

# verbena_unit_test(NAME SOURCES file... [LIBS target...] [TIMEOUT seconds])
#
# Builds a cmocka program `test_NAME` and registers it as the test `unit.NAME`; an exit code of 77
# is skipped. Without cmocka nothing is built; `make check` installs it first.
function(verbena_unit_test name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LIBS")
	if(NOT CMOCKA_FOUND)
		return()
	endif()
	if(NOT arg_TIMEOUT)
		set(arg_TIMEOUT 120)
	endif()
	math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${VERBENA_TEST_PATIENCE}")
	if(VERBENA_SANITIZE) # several times slower
		math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
	endif()
	add_executable(test_${name} ${arg_SOURCES})
	target_link_libraries(test_${name} PRIVATE ${arg_LIBS} PkgConfig::CMOCKA Threads::Threads)
	set_target_properties(test_${name} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/unit)
	add_test(NAME unit.${name} COMMAND test_${name})
	set_tests_properties(unit.${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS unit
		SKIP_RETURN_CODE 77)
	verbena_test_environment(unit.${name})
endfunction()

# verbena_script_test(NAME COMMAND program args... [TIMEOUT seconds] [LABELS label...] [SERIAL])
#
# Registers a script. It exits with 0 for passed, 77 for skipped (and says why), anything else for
# failed. SERIAL: nothing else runs meanwhile. A script that needs the built programs finds them
# through the environment that verbena_test_environment() sets.
function(verbena_script_test name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "COMMAND;LABELS")
	if(NOT arg_TIMEOUT)
		set(arg_TIMEOUT 300)
	endif()
	math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${VERBENA_TEST_PATIENCE}")
	add_test(NAME ${name} COMMAND ${arg_COMMAND})
	set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77
		LABELS "${arg_LABELS}" RUN_SERIAL ${arg_SERIAL})
	verbena_test_environment(${name})
endfunction()

# verbena_test_environment(TEST): what every test may rely on. A sanitizer's finding is a failure.
function(verbena_test_environment name)
	set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
		VERBENA_SOURCE_DIR=${PROJECT_SOURCE_DIR}
		VERBENA_BUILD_DIR=${PROJECT_BINARY_DIR}
		VERBENA_CONFIG=
		VERBENA_SANITIZE=${VERBENA_SANITIZE}
		VERBENA_SANITIZER_RUNTIME=${VERBENA_SANITIZER_RUNTIME}
		PYTHON=${VERBENA_PYTHON}
		ASAN_OPTIONS=abort_on_error=1:detect_stack_use_after_return=1
		UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
		TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:atexit_sleep_ms=0:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp)
endfunction()
