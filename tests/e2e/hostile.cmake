# SPDX-License-Identifier: BSD-2-Clause
# Peers that break the rules, hosts that have nothing left, links that end at a bad moment.
add_executable(hostile hostile.c rig.c end.c)
add_executable(exhaustion exhaustion.c)
add_executable(reap reap.c rig.c end.c)
set_target_properties(reap PROPERTIES ENABLE_EXPORTS ON) # what it puts before libc's
foreach(name hostile exhaustion reap)
	target_link_libraries(${name} PRIVATE ibverbs Threads::Threads)
	set_target_properties(${name} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
endforeach()
foreach(name hostile exhaustion)
	verbena_script_test(e2e.${name} TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:${name}>)
endforeach()
# The thread sanitizer must see the real pthread_mutex_trylock().
if(NOT VERBENA_SANITIZE STREQUAL "thread")
	verbena_script_test(e2e.reap TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:reap> -c local -c ring)
endif()

# Two users; users.py runs it where it may become others.
add_executable(users users.c rig.c end.c)
target_link_libraries(users PRIVATE ibverbs Threads::Threads)
set_target_properties(users PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
# Made set-user-ID by users.py.
add_executable(opens opens.c)
target_link_libraries(opens PRIVATE ibverbs)
set_target_properties(opens PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
