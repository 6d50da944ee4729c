# SPDX-License-Identifier: BSD-2-Clause
# XRC: processes of a domain that are killed. (Right and wrong use: xrc.c, within `faults`.)
# A target queue pair outlives its maker.
add_executable(xrc_kill xrc_kill.c xrc_side.c)
target_link_libraries(xrc_kill PRIVATE ibverbs Threads::Threads)
set_target_properties(xrc_kill PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.xrc_kill TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:xrc_kill>)
# An SRQ's process dies while a request to it is under way.
verbena_script_test(e2e.xrc_kill_under_way TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:xrc_kill> -u)
# All messages as packets: the target's packets come to its heir.
verbena_script_test(e2e.xrc_kill_wire TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-network ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon
	env VERBENA_CARRIER=wire $<TARGET_FILE:xrc_kill>)
verbena_script_test(e2e.xrc_kill_under_way_wire TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-network ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon
	env VERBENA_CARRIER=wire $<TARGET_FILE:xrc_kill> -u)
# A process attaches before the host has a wire, which comes with the next daemon.
foreach(early maker keeper)
	verbena_script_test(e2e.xrc_kill_wire_comes_to_${early} TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-network
		${CMAKE_CURRENT_SOURCE_DIR}/own-daemon
		env VERBENA_CARRIER=wire $<TARGET_FILE:xrc_kill> -w ${early})
endforeach()

# Five processes share a domain, and are killed at random instants. By hand: -n 1000.
add_executable(xrc_five xrc_five.c xrc_side.c)
target_link_libraries(xrc_five PRIVATE ibverbs Threads::Threads)
set_target_properties(xrc_five PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.xrc_five TIMEOUT 600 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:xrc_five>)
verbena_script_test(e2e.xrc_five_wire TIMEOUT 600 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-network ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon
	env VERBENA_CARRIER=wire $<TARGET_FILE:xrc_five>)
