# SPDX-License-Identifier: BSD-2-Clause
# Peers that break the rules, and hosts that have nothing left.
add_executable(hostile hostile.c rig.c end.c)
add_executable(exhaustion exhaustion.c)
foreach(name hostile exhaustion)
	target_link_libraries(${name} PRIVATE ibverbs Threads::Threads)
	set_target_properties(${name} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
	verbena_script_test(e2e.${name} TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:${name}>)
endforeach()
