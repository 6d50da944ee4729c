# SPDX-License-Identifier: BSD-2-Clause
# What must go on while something else stands still.
add_executable(liveness liveness.c rig.c end.c tags_rig.c)
target_link_libraries(liveness PRIVATE ibverbs Threads::Threads)
set_target_properties(liveness PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.liveness TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:liveness> -c self)

# Threads that are cancelled.
add_executable(cancel cancel.c rig.c end.c)
target_link_libraries(cancel PRIVATE ibverbs Threads::Threads)
set_target_properties(cancel PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.cancel TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-network
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:cancel> -c self -c local -c ring -c wire)

verbena_script_test(e2e.cancel_converted TIMEOUT 300 LABELS e2e
	COMMAND env VERBENA_MEMORY=shared VERBENA_LOCAL_COPY=auto
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:cancel> -c self -c local)

# Links that nothing needs. The last of its tests is for two users: users.py.
add_executable(idle idle.c rig.c end.c)
target_link_libraries(idle PRIVATE ibverbs Threads::Threads)
set_target_properties(idle PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.idle TIMEOUT 300 LABELS e2e
	COMMAND env VERBENA_LINK_IDLE_MS=1 ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:idle>
	-c local -c ring comes_and_goes no_datagram_is_lost a_connection_keeps_it the_daemon_is_gone)

# The thread that polls takes what peers send: without naps, and beside an armed CQ.
add_executable(lease lease.c rig.c end.c)
target_link_libraries(lease PRIVATE ibverbs Threads::Threads)
set_target_properties(lease PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.lease TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:lease> -c self -c local)
verbena_script_test(e2e.lease_wire TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-network
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:lease> -c wire timers_after_arming
	event_beside_a_poller event_after_a_quick_poller)

# READs that one call executes, and that wait for each other.
add_executable(gather gather.c rig.c end.c)
target_link_libraries(gather PRIVATE ibverbs Threads::Threads)
set_target_properties(gather PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.gather TIMEOUT 300 LABELS e2e
	COMMAND env VERBENA_MEMORY=private VERBENA_LOCAL_COPY=auto
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:gather> -c local)

# Links that only one of the two processes gets, because the daemon is killed.
if(NOT VERBENA_SANITIZE)
	add_library(lost_event MODULE lost_event.c)
	target_include_directories(lost_event PRIVATE ${PROJECT_SOURCE_DIR}/src)
	set_target_properties(lost_event PROPERTIES PREFIX ""
		LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
	add_executable(half half.c rig.c end.c)
	target_link_libraries(half PRIVATE ibverbs Threads::Threads)
	set_target_properties(half PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
	verbena_script_test(e2e.half TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:half>
		$<TARGET_FILE:lost_event> -c local -c ring -c found)
endif()
