# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(mad_agents SOURCES ${CMAKE_CURRENT_LIST_DIR}/mad/test_agents.c
	${CMAKE_CURRENT_LIST_DIR}/mad/wire.c LIBS verbena_mad)
verbena_unit_test(mad_rmpp SOURCES ${CMAKE_CURRENT_LIST_DIR}/mad/test_rmpp.c
	${CMAKE_CURRENT_LIST_DIR}/mad/wire.c LIBS verbena_mad)
