# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# What the tests of the `verbena` command share. Each test is called with the command's path, works
# in a directory of its own and exits with 0 only if every expectation held.
set -u

verbena=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
failures=0
fake_pid=
export VERBENA_RUNTIME_DIR=$work/run
export VERBENA_CONFIG= # the user's own configuration isn't read
export LC_ALL=C
mkdir -m 700 "$VERBENA_RUNTIME_DIR"

cleanup() {
	[ -z "$fake_pid" ] || kill "$fake_pid" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT

# fake_start MODE: plays the daemon (see fake-ctl) until fake_stop or the end of the test.
fake_start() {
	"$python" "$here/fake-ctl" "$1" "$VERBENA_RUNTIME_DIR" &
	fake_pid=$!
	for _ in $(seq 2400); do
		[ -S "$VERBENA_RUNTIME_DIR/ctl" ] && return
		sleep 0.05
	done
	echo "the fake daemon did not start" >&2
	exit 1
}

fake_stop() {
	[ -z "$fake_pid" ] || kill "$fake_pid" 2>/dev/null
	[ -z "$fake_pid" ] || wait "$fake_pid" 2>/dev/null
	fake_pid=
	rm -f "$VERBENA_RUNTIME_DIR/ctl"
}

# run_verbena ARGUMENT...: leaves $code, $out and $err.
run_verbena() {
	"$verbena" "$@" >"$work/out" 2>"$work/err" </dev/null
	code=$?
	out=$(cat "$work/out")
	err=$(cat "$work/err")
	what="verbena $*"
}

fail() {
	echo "FAILED: $what: $*"
	echo "  exit code $code"
	sed 's/^/  out: /' "$work/out"
	sed 's/^/  err: /' "$work/err"
	failures=$((failures + 1))
}

expect_code() { [ "$code" = "$1" ] || fail "expected exit code $1"; }
expect_out() { [[ $out == *"$1"* ]] || fail "expected on standard output: $1"; }
expect_err() { [[ $err == *"$1"* ]] || fail "expected on standard error: $1"; }
expect_no_out() { [[ $out != *"$1"* ]] || fail "unexpected on standard output: $1"; }
expect_silent_err() { [ -z "$err" ] || fail "expected nothing on standard error"; }

# expect_json EXPRESSION: Python, with the output as `j`.
expect_json() {
	"$python" -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)' "$work/out" "$1" || fail "expected of the JSON: $1"
}

finish() {
	[ "$failures" = 0 ] || {
		echo "$failures expectations failed"
		exit 1
	}
}
