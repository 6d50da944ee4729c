# SPDX-License-Identifier: BSD-2-Clause
# Processes that fork in traffic, once for each carrier; and what ibv_fork_init() promises.
add_executable(forks fork.c rig.c end.c)
target_link_libraries(forks PRIVATE ibverbs Threads::Threads)
set_target_properties(forks PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)

foreach(carrier self self2 local ring converted)
	verbena_script_test(e2e.fork_${carrier} TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:forks> -c ${carrier})
endforeach()
verbena_script_test(e2e.fork_rules TIMEOUT 100 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:forks> rules)
