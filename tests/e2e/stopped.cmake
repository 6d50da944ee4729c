# SPDX-License-Identifier: BSD-2-Clause
# Threads that are stopped while memory is converted (docs/memory.md, "Other threads").
if(NOT TARGET ibverbs OR VERBENA_SANITIZE OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
	return()
endif()
add_executable(stopped stopped.c maps.c)
target_link_libraries(stopped PRIVATE ibverbs Threads::Threads)
set_target_properties(stopped PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.stopped TIMEOUT 300 LABELS e2e
	COMMAND env VERBENA_MEMORY=shared VERBENA_LOCAL_COPY=auto
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:stopped> 60)
