# SPDX-License-Identifier: BSD-2-Clause
# The transport core's rules, one by one: packets in, packets out. (tests/sim tries it as a whole.)
set(transport_tests ${CMAKE_CURRENT_LIST_DIR}/transport)
verbena_unit_test(transport_psn SOURCES ${transport_tests}/test_psn.c LIBS verbena_transport)
foreach(half requester responder unawaited xrc)
	verbena_unit_test(transport_${half} SOURCES ${transport_tests}/test_${half}.c
		${transport_tests}/stage.c LIBS verbena_transport)
endforeach()
