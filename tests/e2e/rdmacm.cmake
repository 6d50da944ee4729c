# SPDX-License-Identifier: BSD-2-Clause
# The connection manager's library: a program of our own for rdmacm.py.
if(NOT TARGET rdmacm)
	return()
endif()
add_executable(cm_churn cm_churn.c)
target_link_libraries(cm_churn PRIVATE rdmacm ibverbs)
set_target_properties(cm_churn PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
