# SPDX-License-Identifier: BSD-2-Clause
# Parts of librdmacm that need neither a daemon nor a device.
verbena_unit_test(rdmacm_addrinfo
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/rdmacm/test_addrinfo.c ${PROJECT_SOURCE_DIR}/src/rdmacm/addrinfo.c
	LIBS verbena_base)
