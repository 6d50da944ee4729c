# SPDX-License-Identifier: BSD-2-Clause
# The environment is asked in one place, where a set-user-ID program gets no answer.
verbena_script_test(lint.env COMMAND ${PROJECT_SOURCE_DIR}/tools/check-env ${PROJECT_SOURCE_DIR}/src
	TIMEOUT 60 LABELS lint)
