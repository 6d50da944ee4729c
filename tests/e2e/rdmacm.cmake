# SPDX-License-Identifier: BSD-2-Clause
# The connection manager's library: programs of our own for rdmacm.py, rsockets.py.
if(NOT TARGET rdmacm)
	return()
endif()
foreach(name cm_churn rsock_calls)
	add_executable(${name} ${name}.c)
	target_link_libraries(${name} PRIVATE rdmacm ibverbs Threads::Threads)
	set_target_properties(${name} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
endforeach()
