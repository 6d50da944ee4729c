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

# fork() at any point of a verbs call, in handlers of signals and of pthread_atfork().
add_executable(fork_anywhere fork_anywhere.c)
target_link_libraries(fork_anywhere PRIVATE ibverbs Threads::Threads)
set_target_properties(fork_anywhere PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
foreach(where handlers signals programs)
	verbena_script_test(e2e.fork_in_${where} TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:fork_anywhere> ${where})
endforeach()
