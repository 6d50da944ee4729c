# SPDX-License-Identifier: BSD-2-Clause
verbena_unit_test(net_begun SOURCES ${CMAKE_CURRENT_LIST_DIR}/net/test_begun.c LIBS verbena_net)
verbena_unit_test(net_sender SOURCES ${CMAKE_CURRENT_LIST_DIR}/net/test_sender.c LIBS verbena_net)
if(TARGET test_net_sender)
	target_link_options(test_net_sender PRIVATE -Wl,--wrap=sys_sendmsg,--wrap=sys_poll)
endif()
