# SPDX-License-Identifier: BSD-2-Clause
set(wire_tests ${CMAKE_CURRENT_LIST_DIR}/wire)
foreach(name packet icrc flow)
	verbena_unit_test(wire_${name} SOURCES ${wire_tests}/test_${name}.c LIBS verbena_wire)
endforeach()
if(PCAP_FOUND)
	verbena_unit_test(wire_golden SOURCES ${wire_tests}/test_golden.c
		LIBS verbena_wire PkgConfig::PCAP)
else()
	message(WARNING "libpcap is missing: our packets aren't compared with captured ones (`make deps`)")
endif()
