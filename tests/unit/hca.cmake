# SPDX-License-Identifier: BSD-2-Clause
# Completions, events, fork ranges and address handles: their files with fakes around them (the
# engine, the daemon), so that nothing else has to run.
set(hca_src ${PROJECT_SOURCE_DIR}/src/hca)
set(abi_src ${PROJECT_SOURCE_DIR}/src/abi)
set(hca_tests ${CMAKE_CURRENT_LIST_DIR}/hca)
set(hca_completion ${hca_src}/verbs/cq.c ${hca_src}/verbs/cq_ex.c ${hca_src}/verbs/cq_moderation.c
	${hca_src}/verbs/event.c ${hca_src}/verbs/queue_memory.c
	${hca_src}/verbs/channel.c
	${hca_tests}/fakes.c ${hca_tests}/fake_books.c)
foreach(name event cq cq_ex)
	verbena_unit_test(hca_${name} SOURCES ${hca_tests}/test_${name}.c ${hca_completion}
		LIBS verbena_base)
endforeach()
verbena_unit_test(hca_fork SOURCES ${hca_tests}/test_fork.c ${abi_src}/verbs_fork.c LIBS verbena_base)
verbena_unit_test(hca_ah SOURCES ${hca_tests}/test_ah.c ${hca_tests}/fake_books.c
	${hca_tests}/no_fabric.c ${abi_src}/verbs_ah.c $<TARGET_OBJECTS:verbena_kverbs>
	LIBS verbena_base ${CMAKE_DL_LIBS})
if(TARGET test_hca_ah)
	# kverbs.cmake says why.
	target_link_options(test_hca_ah PRIVATE LINKER:--allow-multiple-definition)
endif()
verbena_unit_test(hca_copy SOURCES ${hca_tests}/test_copy.c ${hca_src}/mem/copy.c ${hca_src}/mem/streaming.c
	${hca_src}/mem/guard.c LIBS verbena_base)
# The same as on a processor that doesn't keep a thread's copies in order.
verbena_unit_test(hca_copy_fenced SOURCES ${hca_tests}/test_copy.c ${hca_src}/mem/copy.c
	${hca_src}/mem/streaming.c ${hca_src}/mem/guard.c LIBS verbena_base)
if(TARGET test_hca_copy_fenced)
	target_compile_definitions(test_hca_copy_fenced PRIVATE COPIES_STAY_IN_ORDER=false)
endif()
verbena_unit_test(hca_peer SOURCES ${hca_tests}/test_peer.c ${hca_src}/local/peer.c
	LIBS verbena_shm verbena_base)
verbena_unit_test(hca_hazard SOURCES ${hca_tests}/test_hazard.c ${hca_src}/mem/hazard.c LIBS verbena_base)
# Its source is in the test, which refuses it memory.
verbena_unit_test(hca_link SOURCES ${hca_tests}/test_link.c LIBS verbena_hca)
verbena_unit_test(hca_qp_timer SOURCES ${hca_tests}/test_qp_timer.c ${hca_src}/verbs/qp_timer.c
	LIBS verbena_base)
verbena_unit_test(hca_tags SOURCES ${hca_tests}/test_tags.c ${hca_src}/verbs/tags.c LIBS verbena_base)
