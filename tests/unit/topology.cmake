# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(topology_parse SOURCES ${CMAKE_CURRENT_LIST_DIR}/topology/test_parse.c
	LIBS verbena_topology)
verbena_unit_test(topology_generate SOURCES ${CMAKE_CURRENT_LIST_DIR}/topology/test_generate.c
	LIBS verbena_topology)
verbena_unit_test(topology_draw SOURCES ${CMAKE_CURRENT_LIST_DIR}/topology/test_draw.c
	LIBS verbena_topology)
