# SPDX-License-Identifier: BSD-2-Clause
# Private memory that is converted (docs/memory.md) under programs that know nothing of it.
add_library(heap_registered MODULE heap_registered.c maps.c)
target_link_libraries(heap_registered PRIVATE ibverbs)
set_target_properties(heap_registered PROPERTIES PREFIX ""
	LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)

# A program with threads that forks and changes its memory at random.
add_executable(upheaval upheaval.c maps.c)
target_link_libraries(upheaval PRIVATE ibverbs Threads::Threads)
set_target_properties(upheaval PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.upheaval TIMEOUT 300 LABELS e2e
	COMMAND env VERBENA_MEMORY=shared
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:upheaval> 15)

# What the system refuses; programs that don't know of it. memory.py runs them.
add_executable(unconverted unconverted.c)
target_link_libraries(unconverted PRIVATE ibverbs)
set_target_properties(unconverted PROPERTIES ENABLE_EXPORTS ON) # what it puts before libc's
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/static_nothing.c "int main(void) { return 0; }\n")
add_executable(static_nothing ${CMAKE_CURRENT_BINARY_DIR}/static_nothing.c)
target_link_options(static_nothing PRIVATE -static)
set_target_properties(unconverted static_nothing PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
