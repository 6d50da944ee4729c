# SPDX-License-Identifier: BSD-2-Clause
# The connection manager's codecs and single rows of its tables; as a whole it is tried in tests/sim.
verbena_unit_test(cm_states SOURCES ${CMAKE_CURRENT_LIST_DIR}/cm/test_states.c LIBS verbena_cm)
verbena_unit_test(cm_index SOURCES ${CMAKE_CURRENT_LIST_DIR}/cm/test_index.c LIBS verbena_cm)
if(PCAP_FOUND)
	verbena_unit_test(cm_mad SOURCES ${CMAKE_CURRENT_LIST_DIR}/cm/test_mad.c
		LIBS verbena_cm verbena_wire PkgConfig::PCAP)
else()
	message(WARNING "libpcap is missing: CM messages aren't compared with captured ones (`make deps`)")
endif()
