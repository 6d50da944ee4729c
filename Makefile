# SPDX-License-Identifier: BSD-2-Clause
# The front door. The build itself is CMake and Ninja; this file only knows the words for it.
# `make help` lists them.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
export JOBS

# make TESTS=OFF: only what is installed.
TESTS ?= ON

# make WERROR=OFF: build although a newer compiler warns.
CMAKE_FLAGS ?=
ifdef WERROR
CMAKE_FLAGS += -DVERBENA_WERROR=$(WERROR)
endif

.DEFAULT_GOAL := build
.PHONY: build demo check bench install lint asan tsan valgrind cross-aarch64 deps format clean help dist deb rpm \
	deps-demo deps-check deps-lint deps-deb deps-rpm
.NOTPARALLEL:

help: ## list these targets
	@echo "make TARGET, where TARGET is"
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12
	@echo "Variables: BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) JOBS=$(JOBS) WERROR=ON|OFF TESTS=$(TESTS)"

# cmake runs each time: it is quick, and it notices packages that were installed since.
build: ## build into $(BUILD)/ (the default)
	@$(call configure_and_build,$(BUILD),-DVERBENA_TESTS=$(TESTS))

demo: deps-demo ## run Debian's own RDMA programs over Verbena
	@$(call configure_and_build,$(BUILD),-DVERBENA_TESTS=OFF)
	@tests/e2e/demo $(abspath $(BUILD))

check: deps-check build ## build and run every test; the last line is the summary
	@tools/run-tests $(BUILD)

bench: deps-demo build ## measure this machine and Verbena side by side
	@bench/run $(abspath $(BUILD))
	@bench/ucx $(abspath $(BUILD))
	@bench/fabric $(abspath $(BUILD))

install: build ## install under DESTDIR+PREFIX (a system's rdma-core is not touched)
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

dist: ## the source tarball of what is committed, into build/dist/
	@tools/dist

deb: deps-deb ## Debian's packages of what is committed, into build/deb/
	@tools/deb

rpm: deps-rpm ## RPM packages (Fedora's kind) of what is committed, into build/rpm/
	@tools/rpm

lint: deps-lint build ## clang-format (check only), clang-tidy, cppcheck
	@tools/lint $(BUILD)

asan: deps-check ## the tests under the address and undefined-behaviour sanitizers
	@$(call configure_and_build,build-asan,-DVERBENA_SANITIZE=address)
	@tools/run-tests build-asan

tsan: deps-check ## the tests under the thread sanitizer
	@$(call configure_and_build,build-tsan,-DVERBENA_SANITIZE=thread)
	@tools/run-tests build-tsan

cross-aarch64: ## build for aarch64, and run its tests that need no daemon under QEMU
	@tools/cross-aarch64

valgrind: deps-check build ## a part of the tests under valgrind (some minutes)
	@tools/valgrind-tests $(BUILD)

deps: ## install the missing Debian packages of deps.txt, or say how
	@tools/deps

deps-demo:
	@tools/deps build demo

deps-deb:
	@tools/deps build deb

deps-rpm:
	@tools/deps build rpm

deps-check:
	@tools/deps build demo test

deps-lint:
	@tools/deps build lint

format: ## lay the source out as .clang-format says
	@find src include tests bench -name '*.[ch]' 2>/dev/null | xargs -r clang-format -i

clean: ## remove what was built
	@rm -rf $(BUILD) build-asan build-tsan build-aarch64

# configure_and_build DIRECTORY FLAGS
# A tree that was copied or moved with its build folder: CMake refuses another folder's cache.
# What fails for want of a package says so.
define configure_and_build
home=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' $(1)/CMakeCache.txt 2>/dev/null); \
if [ -n "$$home" ] && [ "$$home" != "$$(pwd -P)" ]; then \
	echo "make: $(1)/ was configured for $$home; it is configured anew for this folder"; \
	rm -rf $(1)/CMakeCache.txt $(1)/CMakeFiles $(1)/build.ninja $(1)/.ninja_deps $(1)/.ninja_log; \
fi; \
if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null || \
		! cmake -S . -B $(1) -G Ninja $(2) $(CMAKE_FLAGS) --log-level=WARNING >/dev/null; then \
	tools/deps --check build || echo "make: 'make deps' installs what is missing" >&2; \
	exit 1; \
fi; \
ninja -C $(1) -j $(JOBS) || { \
	! grep -q '^VERBENA_WERROR:BOOL=ON' $(1)/CMakeCache.txt || \
		echo "make: if only a warning of your compiler stopped this: make WERROR=OFF" >&2; \
	exit 1; \
}
endef
