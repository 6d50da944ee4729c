# SPDX-License-Identifier: BSD-2-Clause
# The connection manager's library: programs of our own for rdmacm.py, cm_network.py and rsockets.py.
if(NOT TARGET rdmacm)
	return()
endif()
foreach(program cm_channel_end cm_destroy_qp cm_groups cm_churn cm_gids cm_options cm_probe rsock_calls says)
	add_executable(${program} ${program}.c)
	target_link_libraries(${program} PRIVATE rdmacm ibverbs Threads::Threads)
	set_target_properties(${program} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
endforeach()
