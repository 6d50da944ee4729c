# SPDX-License-Identifier: BSD-2-Clause
# src/kverbs with a fake sysfs, a fake kernel and a fake driver.
verbena_unit_test(kverbs SOURCES ${CMAKE_CURRENT_LIST_DIR}/kverbs/test_kverbs.c
	${CMAKE_CURRENT_LIST_DIR}/kverbs/fake.c $<TARGET_OBJECTS:verbena_kverbs>
	LIBS verbena_base ${CMAKE_DL_LIBS})
verbena_unit_test(kverbs_commands SOURCES ${CMAKE_CURRENT_LIST_DIR}/kverbs/test_commands.c
	${CMAKE_CURRENT_LIST_DIR}/kverbs/fake.c $<TARGET_OBJECTS:verbena_kverbs>
	LIBS verbena_base ${CMAKE_DL_LIBS})
