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
		_verbena_words --fast-memory --no-sysfs --node --help
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

_verbena_capture() {
	case $prev in
	-w | --write) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	-d | --device) _verbena_words "$(verbena status --json 2>/dev/null |
		sed -n 's/.*"devices": *\[{"name": *"\([^"]*\)".*/\1/p')" ;;
	-c | --count | --seconds | -s | --snaplen | -p | --port) ;;
	*) _verbena_words --write --device --port --count --seconds --snaplen --help ;;
	esac
}

_verbena_resources() {
	case $prev in
	-p | --pid) _verbena_words "$(cd /proc && echo [0-9]*)" ;;
	-q | --qpn) ;;
	*) if [[ $cur == -* ]]; then
		_verbena_words --pid --qpn --json --help
	else
		_verbena_words process user context pd mr cq qp srq xrcd ah channel mcast cm_id
	fi ;;
	esac
}

# Options, a node's name, then PROGRAM with its own completion.
_verbena_fabric_exec() {
	local i nodes=1
	for ((i = 3; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--ca | --all) nodes=0 ;;
		-o | --output | --jobs | -t | --timeout) ((i++)) ;;
		-*) ;;
		*) ((nodes-- > 0)) || break ;;
		esac
	done
	if ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
		_command_offset $i
	elif [[ $cur == -* && $i -ge $COMP_CWORD ]]; then
		_verbena_fabric_options
	elif ((nodes > 0)); then
		_verbena_words "$(verbena fabric exec --all --list 2>/dev/null)"
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

_verbena_fabric() {
	if ((COMP_CWORD == 2)); then
		if [[ $cur == -* ]]; then
			_verbena_words --help
		else
			_verbena_words up down status show exec gen link node port errors drop delay rate counters trace save load
		fi
		return
	fi
	case ${COMP_WORDS[2]}:$prev in
	exec:-o | exec:--output) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	exec:*) _verbena_fabric_exec ;;
	up:--restore | show:--svg | show:--html | show:--topology | show:--serve | gen:--output | gen:-o)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	gen:gen) if [[ $cur == -* ]]; then
		_verbena_fabric_options
	else
		_verbena_words fat-tree torus dragonfly single
	fi ;;
	up:* | save:* | load:*) if [[ $cur == -* ]]; then
		_verbena_fabric_options
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi ;;
	link:*/*) _verbena_words down up flap ;;
	node:*) if [[ $cur == -* ]]; then
		_verbena_fabric_options
	elif ((COMP_CWORD == 4)); then
		_verbena_words off on reboot mute unmute describe
	else
		_verbena_fabric_nodes
	fi ;;
	trace:* | counters:* | show:--from | show:--to) if [[ $cur == -* ]]; then
		_verbena_fabric_options
	else
		_verbena_fabric_nodes
	fi ;;
	*) _verbena_fabric_options ;;
	esac
}

_verbena_fabric_nodes() { # of a fabric that is up; not of a large one
	_verbena_words "$(verbena fabric show 2>/dev/null | sed -n '2,400s/ .*//p')"
}

_verbena_fabric_options() {
	case ${COMP_WORDS[2]} in
	up) _verbena_words --resume --restore --sm --timing --json --help ;;
	show) _verbena_words --links --svg --html --from --to --topology --serve --json --help ;;
	exec) _verbena_words --ca --all --list --output --no-prefix --jobs --timeout --no-sysfs --help ;;
	gen) _verbena_words --ports --hosts --levels --hosts-per-leaf --leaves --spines --pods --size \
		--cables --groups --switches --globals --output --link --mtu --delay --ips --title --help ;;
	trace) _verbena_words --lid --mlid --sl --pkey --json --help ;;
	counters) _verbena_words --clear --json --help ;;
	status) _verbena_words --watch --json --help ;;
	*) _verbena_words --json --help ;;
	esac
}

_verbena() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_verbena_words run status resources capture cdi fabric sm stop help version --help --version
		return
	fi
	case ${COMP_WORDS[1]} in
	run) _verbena_run ;;
	capture) _verbena_capture ;;
	resources) _verbena_resources ;;
	status) _verbena_words --json --help ;;
	sm) case $prev in
		--partitions | --policy) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
		--routing) _verbena_words minhop updown ;;
		--enforce) _verbena_words both in out off ;;
		--node) _verbena_fabric_nodes ;;
		--device | --port | --priority | --window | --timeout | --retries | --sweep | --poll | --lmc | \
			--m-key | --m-key-lease | --m-key-protect) ;;
		*) _verbena_words --node --device --port --priority --routing --window --timeout --retries \
			--sweep --poll --qos --policy --partitions --enforce --lmc --m-key --m-key-lease \
			--m-key-protect --once --detach --quiet --help ;;
		esac ;;
	stop) _verbena_words --force --json --help ;;
	cdi) case $prev in
		-o | --output) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
		*) _verbena_words --output --help ;;
		esac ;;
	help) _verbena_words run status resources capture cdi fabric stop ;;
	fabric) _verbena_fabric ;;
	esac
} && complete -F _verbena verbena
