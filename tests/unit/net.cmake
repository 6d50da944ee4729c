# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(net_begun SOURCES ${CMAKE_CURRENT_LIST_DIR}/net/test_begun.c LIBS verbena_net)
