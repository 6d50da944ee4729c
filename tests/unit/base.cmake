# SPDX-License-Identifier: BSD-2-Clause
# The environment is asked in one place, where a set-user-ID program gets no answer.
verbena_script_test(lint.env COMMAND ${PROJECT_SOURCE_DIR}/tools/check-env ${PROJECT_SOURCE_DIR}/src
	TIMEOUT 60 LABELS lint)
# Compiled here once more: the order of locks is checked in this test whatever the build does.
verbena_unit_test(base_lock_rank SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_lock_rank.c
	${PROJECT_SOURCE_DIR}/src/base/lock.c ${PROJECT_SOURCE_DIR}/src/base/lock_rank.c
	${PROJECT_SOURCE_DIR}/src/base/sys.c LIBS Threads::Threads)
if(TARGET test_base_lock_rank)
	target_compile_definitions(test_base_lock_rank PRIVATE VERBENA_LOCK_RANKS)
endif()
verbena_unit_test(base_lock SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_lock.c LIBS verbena_base Threads::Threads)
verbena_unit_test(base_env SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_env.c LIBS verbena_base)
verbena_unit_test(base_heap SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_heap.c LIBS verbena_base Threads::Threads)
if(TARGET test_base_heap)
	target_link_options(test_base_heap PRIVATE -Wl,--wrap=signals_hold)
endif()
verbena_unit_test(base_lines SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_lines.c LIBS verbena_base)
verbena_unit_test(base_own_dir SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_own_dir.c LIBS verbena_base)
verbena_unit_test(base_proc_maps SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_proc_maps.c LIBS verbena_base)
verbena_unit_test(base_quantity SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_quantity.c LIBS verbena_base)
verbena_unit_test(base_spin SOURCES ${CMAKE_CURRENT_LIST_DIR}/base/test_spin.c LIBS verbena_base)
