# SPDX-License-Identifier: BSD-2-Clause
# verbenad and the library's side of it. Most of these start a daemon of their own in a directory
# of their own and speak its protocol by hand.
set(daemon_tests ${CMAKE_CURRENT_LIST_DIR}/daemon)
verbena_unit_test(daemon_numbers SOURCES ${daemon_tests}/test_numbers.c LIBS verbena_daemon)
verbena_unit_test(daemon_reach SOURCES ${daemon_tests}/test_reach.c LIBS verbena_daemon)
verbena_unit_test(daemon_loop SOURCES ${daemon_tests}/test_loop.c LIBS verbena_daemon)
verbena_unit_test(daemon_config SOURCES ${daemon_tests}/test_config.c LIBS verbena_daemon)
verbena_unit_test(daemon_wire SOURCES ${daemon_tests}/test_wire.c ${daemon_tests}/netns.c
	LIBS verbena_daemon)
if(TARGET test_daemon_wire)
	target_link_options(test_daemon_wire PRIVATE -Wl,--wrap=slot_socket_make)
endif()
foreach(name closing cm commands ending isolation mcast memory resources return share shares start users wire_daemon xrc)
	verbena_unit_test(daemon_${name} SOURCES ${daemon_tests}/test_${name}.c ${daemon_tests}/raw.c
		${daemon_tests}/netns.c
		LIBS verbena_client verbena_shm PkgConfig::JANSSON TIMEOUT 300)
	if(TEST unit.daemon_${name})
		set_property(TEST unit.daemon_${name} APPEND PROPERTY ENVIRONMENT
			VERBENA_DAEMON=$<TARGET_FILE:verbenad>)
		add_dependencies(test_daemon_${name} verbenad)
	endif()
endforeach()
if(TARGET test_daemon_shares)
	target_link_libraries(test_daemon_shares PRIVATE verbena_daemon)
	target_compile_definitions(test_daemon_shares PRIVATE TRUST_MD="${CMAKE_SOURCE_DIR}/docs/trust.md")
endif()
