# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(umad_devices SOURCES ${CMAKE_CURRENT_LIST_DIR}/umad/test_devices.c
	LIBS verbena_umad)
verbena_unit_test(umad_fork SOURCES ${CMAKE_CURRENT_LIST_DIR}/umad/test_fork.c
	${PROJECT_SOURCE_DIR}/src/umad/memory.c LIBS verbena_base Threads::Threads)
