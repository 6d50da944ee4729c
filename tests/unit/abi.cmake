# SPDX-License-Identifier: BSD-2-Clause
# src/abi: the parts that work alone.
verbena_unit_test(abi SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_abi.c
	${PROJECT_SOURCE_DIR}/src/abi/marshall.c ${PROJECT_SOURCE_DIR}/src/abi/sysfs.c
	LIBS verbena_base)
