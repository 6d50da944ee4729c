# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(fabric_core SOURCES ${CMAKE_CURRENT_LIST_DIR}/fabric/test_core.c
	LIBS verbena_fabric_core)
