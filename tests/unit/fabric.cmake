# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(fabric_core SOURCES ${CMAKE_CURRENT_LIST_DIR}/fabric/test_core.c
	LIBS verbena_fabric_core)
verbena_unit_test(fabric_performance SOURCES ${CMAKE_CURRENT_LIST_DIR}/fabric/test_performance.c
	LIBS verbena_fabric_core)
verbena_unit_test(fabric_faults SOURCES ${CMAKE_CURRENT_LIST_DIR}/fabric/test_faults.c
	LIBS verbena_fabric_core)
verbena_unit_test(fabric_clocks SOURCES ${CMAKE_CURRENT_LIST_DIR}/fabric/test_clocks.c
	LIBS verbena_fabric_core)
