# SPDX-License-Identifier: BSD-2-Clause
# bash completion of verbena(1). The test dist.completion holds it against the command's own help.

_verbena_words() { # WORD...: those that the word under the cursor begins
	mapfile -t COMPREPLY < <(compgen -W "$*" -- "$cur")
}

_verbena_run() {
	local i
	for ((i = 2; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--) ((i++)) ;;
		-*) continue ;;
		esac
		break
	done
	if ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
		_command_offset $i # PROGRAM's own completion
	elif [[ $cur == -* ]]; then
		_verbena_words --no-sysfs --node --help
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

_verbena_capture() {
	case $prev in
	-w | --write) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	-d | --device) _verbena_words "$(verbena status --json 2>/dev/null |
		sed -n 's/.*"devices": *\[{"name": *"\([^"]*\)".*/\1/p')" ;;
	-c | --count | --seconds | -s | --snaplen) ;;
	*) _verbena_words --write --device --count --seconds --snaplen --help ;;
	esac
}

_verbena_resources() {
	case $prev in
	-p | --pid) _verbena_words "$(cd /proc && echo [0-9]*)" ;;
	-q | --qpn) ;;
	*) if [[ $cur == -* ]]; then
		_verbena_words --pid --qpn --json --help
	else
		_verbena_words process user context pd mr cq qp srq ah channel mcast cm_id
	fi ;;
	esac
}

_verbena() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_verbena_words run status resources capture cdi stop help version --help --version
		return
	fi
	case ${COMP_WORDS[1]} in
	run) _verbena_run ;;
	capture) _verbena_capture ;;
	resources) _verbena_resources ;;
	status) _verbena_words --json --help ;;
	stop) _verbena_words --force --json --help ;;
	cdi) case $prev in
		-o | --output) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
		*) _verbena_words --output --help ;;
		esac ;;
	help) _verbena_words run status resources capture cdi stop ;;
	esac
} && complete -F _verbena verbena
