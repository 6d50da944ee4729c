# SPDX-License-Identifier: BSD-2-Clause
# Processes killed and stopped at random instants (the seed is printed).
add_executable(kill kill.c rig.c end.c)
target_link_libraries(kill PRIVATE ibverbs Threads::Threads)
set_target_properties(kill PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.kill TIMEOUT 400 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:kill>)
# The same on private memory that is converted (docs/memory.md).
verbena_script_test(e2e.kill_converted TIMEOUT 400 LABELS e2e
	COMMAND env VERBENA_MEMORY=shared VERBENA_LOCAL_COPY=auto
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:kill>)
# Every carrier at once, with everything that may fail (chaos.py).
add_executable(chaos chaos.c rig.c end.c)
target_link_libraries(chaos PRIVATE ibverbs Threads::Threads)
set_target_properties(chaos PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.chaos TIMEOUT 400 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/chaos.py)
# A receiver that is killed right after it has seen a message.
add_executable(seen seen.c rig.c end.c)
target_link_libraries(seen PRIVATE ibverbs Threads::Threads)
set_target_properties(seen PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.seen TIMEOUT 400 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:seen>)
verbena_script_test(e2e.seen_ring TIMEOUT 400 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:seen> ring)
