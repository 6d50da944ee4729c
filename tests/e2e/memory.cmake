# SPDX-License-Identifier: BSD-2-Clause
# Private memory that is converted (docs/memory.md) under programs that know nothing of it.
add_library(heap_registered MODULE heap_registered.c maps.c)
target_link_libraries(heap_registered PRIVATE ibverbs)
set_target_properties(heap_registered PROPERTIES PREFIX ""
	LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)

# All programs' memory in files from the beginning: tests/suite-on. It replaces the allocator, as a
# sanitizer does.
if(NOT VERBENA_SANITIZE)
	add_library(born_shared MODULE born_shared.c)
	target_compile_options(born_shared PRIVATE -fno-builtin)
	target_link_libraries(born_shared PRIVATE Threads::Threads)
	set_target_properties(born_shared PROPERTIES PREFIX ""
		LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
endif()

# A program with threads that forks and changes its memory at random.
add_executable(upheaval upheaval.c maps.c)
target_link_libraries(upheaval PRIVATE ibverbs Threads::Threads)
set_target_properties(upheaval PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
# The thread sanitizer has a thread in each program, so nothing is converted there.
verbena_script_test(e2e.upheaval TIMEOUT 300 LABELS e2e
	COMMAND env VERBENA_MEMORY=shared VERBENA_LOCAL_COPY=auto ${CMAKE_CURRENT_SOURCE_DIR}/own-daemon
	$<TARGET_FILE:upheaval> $<$<STREQUAL:${VERBENA_SANITIZE},thread>:-p> 15)

# The same in programs with other allocators linked in, and built with sanitizers, which bring one.
if(NOT VERBENA_SANITIZE)
	find_library(VERBENA_JEMALLOC NAMES libjemalloc.so.2)
	find_library(VERBENA_TCMALLOC NAMES libtcmalloc_minimal.so.4)
	foreach(allocator jemalloc tcmalloc)
		string(TOUPPER VERBENA_${allocator} library)
		if(NOT ${library})
			continue()
		endif()
		add_executable(upheaval_${allocator} upheaval.c maps.c)
		target_compile_options(upheaval_${allocator} PRIVATE -fno-builtin)
		target_link_libraries(upheaval_${allocator} PRIVATE ${${library}} ibverbs Threads::Threads)
		set_target_properties(upheaval_${allocator} PROPERTIES
			RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
	endforeach()
	include(CheckCSourceCompiles)
	foreach(sanitizer address thread)
		set(CMAKE_REQUIRED_FLAGS -fsanitize=${sanitizer})
		check_c_source_compiles("int main(void) { return 0; }" VERBENA_HAS_${sanitizer})
		unset(CMAKE_REQUIRED_FLAGS)
		if(NOT VERBENA_HAS_${sanitizer})
			continue()
		endif()
		add_executable(upheaval_${sanitizer} upheaval.c maps.c)
		target_compile_options(upheaval_${sanitizer} PRIVATE -fsanitize=${sanitizer})
		target_link_options(upheaval_${sanitizer} PRIVATE -fsanitize=${sanitizer})
		target_link_libraries(upheaval_${sanitizer} PRIVATE ibverbs Threads::Threads)
		set_target_properties(upheaval_${sanitizer} PROPERTIES
			RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
	endforeach()
endif()

# A peer that writes all the time to memory that its owner changes and ends at random.
add_executable(under_fire under_fire.c found.c rig.c end.c maps.c)
target_link_libraries(under_fire PRIVATE ibverbs Threads::Threads)
set_target_properties(under_fire PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
verbena_script_test(e2e.under_fire TIMEOUT 300 LABELS e2e
	COMMAND env VERBENA_MEMORY=shared VERBENA_LOCAL_COPY=auto
	${CMAKE_CURRENT_SOURCE_DIR}/own-daemon $<TARGET_FILE:under_fire> 15)

# What the system refuses; programs that don't know of it. memory.py runs them.
add_executable(unconverted unconverted.c)
target_link_libraries(unconverted PRIVATE ibverbs)
set_target_properties(unconverted PROPERTIES ENABLE_EXPORTS ON # what it puts before libc's
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
if(NOT VERBENA_SANITIZE) # with which nothing static can be linked
	file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/static_nothing.c "int main(void) { return 0; }\n")
	add_executable(static_nothing ${CMAKE_CURRENT_BINARY_DIR}/static_nothing.c)
	target_link_options(static_nothing PRIVATE -static)
	set_target_properties(static_nothing PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/e2e)
endif()
