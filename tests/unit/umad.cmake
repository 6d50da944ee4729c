# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(umad_devices SOURCES ${CMAKE_CURRENT_LIST_DIR}/umad/test_devices.c
	LIBS verbena_umad)
