# SPDX-License-Identifier: BSD-2-Clause
# Right and wrong use of verbs, once for each carrier. The program sees nothing but the public
# headers and the built library; each test has a daemon of its own.
add_executable(faults faults.c rig.c end.c data.c remote.c state.c queue.c loose.c unmapped.c
	foreign.c file.c found.c maps.c converted.c kept.c held.c behaviour.c dereg.c order.c dry.c away.c windows.c windows_wrong.c windows_mapped.c
	regions.c dm.c odp.c domains.c placement.c reach.c xrc.c xrc_end.c xrc_ofed.c
	later.c places.c tags.c tags_wrong.c tags_random.c tags_rig.c)
target_link_libraries(faults PRIVATE ibverbs Threads::Threads)
set_target_properties(faults PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)

foreach(carrier self self2 local ring split found converted)
	verbena_script_test(e2e.faults_${carrier} TIMEOUT 600 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:faults> -c ${carrier})
endforeach()

# Without the capabilities by which root opens other processes' mappings: by descriptors, paths and
# shmat(), as other users do.
verbena_script_test(e2e.faults_found_plainly TIMEOUT 600 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/plainly
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:faults> -c found)

# Over the wire, in a network of its own.
verbena_script_test(e2e.faults_wire TIMEOUT 600 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-network
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:faults> -c wire)

# Datagrams where the port's MTU is an ordinary network's, on every carrier.
foreach(carrier self self2 local ring split found converted wire)
	verbena_script_test(e2e.faults_mtu_${carrier} TIMEOUT 300 LABELS e2e
		COMMAND env OWN_NETWORK_MTU=1500 ${CMAKE_CURRENT_SOURCE_DIR}/own-network
		${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:faults> -c ${carrier}
		ud_data ud_too_long ud_together ud_receive_short)
endforeach()

# Multicast: what goes to a group leaves the host, so in a network of its own on every carrier.
add_executable(groups groups.c rig.c end.c)
target_link_libraries(groups PRIVATE ibverbs Threads::Threads)
set_target_properties(groups PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
foreach(carrier self self2 local ring wire)
	verbena_script_test(e2e.groups_${carrier} TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-network
		${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:groups> -c ${carrier})
endforeach()

# Raw packets and flow rules.
add_executable(raw raw.c raw_spread.c raw_wrong.c rig.c end.c)
target_link_libraries(raw PRIVATE ibverbs Threads::Threads)
set_target_properties(raw PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
foreach(carrier self self2 local ring)
	verbena_script_test(e2e.raw_${carrier} TIMEOUT 300 LABELS e2e
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:raw> -c ${carrier})
endforeach()

# A process number that comes again, and exec(): in a PID namespace, where numbers can be chosen.
add_executable(reborn reborn.c)
target_link_libraries(reborn PRIVATE ibverbs)
set_target_properties(reborn PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.reborn TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon
	${CMAKE_CURRENT_SOURCE_DIR}/own-pids $<TARGET_FILE:reborn>)
verbena_script_test(e2e.reborn_shared TIMEOUT 300 LABELS e2e
	COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon
	${CMAKE_CURRENT_SOURCE_DIR}/own-pids $<TARGET_FILE:reborn> shared)
verbena_script_test(e2e.reborn_converted TIMEOUT 300 LABELS e2e
	COMMAND env VERBENA_MEMORY=shared VERBENA_LOCAL_COPY=auto ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon
	${CMAKE_CURRENT_SOURCE_DIR}/own-pids $<TARGET_FILE:reborn>)
