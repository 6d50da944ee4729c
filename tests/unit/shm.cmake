# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(shm_ring SOURCES ${CMAKE_CURRENT_LIST_DIR}/shm/test_ring.c
	${PROJECT_SOURCE_DIR}/src/shm/ring.c LIBS verbena_base)
target_compile_definitions(test_shm_ring PRIVATE COUNTERS_DRAWN)
verbena_unit_test(qp_state SOURCES ${CMAKE_CURRENT_LIST_DIR}/hca/test_qp_state.c
	${PROJECT_SOURCE_DIR}/src/hca/verbs/qp_state.c LIBS verbena_base)
verbena_unit_test(shm_tap SOURCES ${CMAKE_CURRENT_LIST_DIR}/shm/test_tap.c LIBS verbena_shm)
verbena_unit_test(shm_groups SOURCES ${CMAKE_CURRENT_LIST_DIR}/shm/test_groups.c LIBS verbena_shm)
verbena_unit_test(shm_xrc SOURCES ${CMAKE_CURRENT_LIST_DIR}/shm/test_xrc.c LIBS verbena_shm)
verbena_unit_test(shm_bell SOURCES ${CMAKE_CURRENT_LIST_DIR}/shm/test_bell.c LIBS verbena_shm)
