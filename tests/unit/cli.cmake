# SPDX-License-Identifier: BSD-2-Clause
if(TARGET verbena_cli)
	verbena_unit_test(cli SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_cli.c LIBS verbena_cli)
endif()
