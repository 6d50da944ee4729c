# SPDX-License-Identifier: BSD-2-Clause
set(wire_tests ${CMAKE_CURRENT_LIST_DIR}/wire)
foreach(name packet defined icrc flow pcapng steer)
	verbena_unit_test(wire_${name} SOURCES ${wire_tests}/test_${name}.c LIBS verbena_wire)
endforeach()
if(PCAP_FOUND)
	verbena_unit_test(wire_golden SOURCES ${wire_tests}/test_golden.c
		LIBS verbena_wire PkgConfig::PCAP)
else()
	message(WARNING "libpcap is missing: our packets aren't compared with captured ones (`make deps`)")
endif()

# Our captures, read by others.
add_executable(capture_sample ${wire_tests}/capture_sample.c)
target_link_libraries(capture_sample PRIVATE verbena_wire)
set_target_properties(capture_sample PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/unit)
verbena_script_test(unit.wire_capture LABELS unit COMMAND ${VERBENA_PYTHON} ${wire_tests}/capture.py
	${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:capture_sample>)
