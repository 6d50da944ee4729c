# SPDX-License-Identifier: BSD-2-Clause
# The connection manager's library: programs of our own for rdmacm.py and cm_network.py.
if(NOT TARGET rdmacm)
	return()
endif()
foreach(program cm_churn cm_probe)
	add_executable(${program} ${program}.c)
	target_link_libraries(${program} PRIVATE rdmacm ibverbs)
	set_target_properties(${program} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
endforeach()
