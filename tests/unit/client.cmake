# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(client_call SOURCES ${CMAKE_CURRENT_LIST_DIR}/client/test_call.c LIBS verbena_client)
