# SPDX-License-Identifier: BSD-2-Clause
# src/kverbs with a fake sysfs, a fake kernel and a fake driver. To the linker a function that is
# exported from the library in a default node (base/export.h) is defined twice in a program: under
# its name, and as that node's, which is the same function.
function(kverbs_unit_test name)
	set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/kverbs)
	verbena_unit_test(${name} SOURCES ${folder}/${ARGN} ${folder}/fake.c ${folder}/tables.c
		$<TARGET_OBJECTS:verbena_kverbs> LIBS verbena_base ${CMAKE_DL_LIBS})
	if(TARGET test_${name})
		target_link_options(test_${name} PRIVATE LINKER:--allow-multiple-definition)
	endif()
endfunction()
kverbs_unit_test(kverbs test_kverbs.c)
kverbs_unit_test(kverbs_commands test_commands.c)
kverbs_unit_test(kverbs_releases test_releases.c)
