# SPDX-License-Identifier: BSD-2-Clause
# 10,000 QPs in a process, 100,000 regions and 50,000 QPs at one daemon, and 200 processes at once, by
# the programs of bench/.
verbena_script_test(e2e.scale
	COMMAND ${VERBENA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/scale.py
	TIMEOUT 600 LABELS e2e SERIAL)
