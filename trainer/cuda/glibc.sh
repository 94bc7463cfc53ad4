#!/bin/sh
# Create stub libraries to link with in directory DIR, so that a program built on this machine also
# runs with older versions of glibc: glibc.sh DIR, then -extldflags "DIR/libdl.so
# DIR/libpthread.so".
#
# A program requires each symbol in the version that it was linked with, and glibc 2.34 assigned a
# new version to the symbols of threads, of dlopen, and of program start. The stubs contain only
# symbols, with the version that every glibc provides. The code of the program does not change. It
# does not matter at program start which library defines a symbol: glibc moved them from libpthread
# and libdl to libc.
#
# An older glibc does not run the constructors of such a program. The program has none.
set -eu
dir=$1
cc=${CC:-gcc}
command -v "${cc%% *}" >/dev/null || {
	echo "glibc.sh: ${cc%% *} not found; install it, or build without GPU support: make build-cpu" >&2
	exit 1
}
case $($cc -dumpmachine) in
x86_64-*) version=GLIBC_2.2.5 ;;
aarch64-*) version=GLIBC_2.17 ;;
*)
	echo "glibc.sh: unsupported machine $($cc -dumpmachine): unknown first version of glibc" >&2
	exit 1
	;;
esac
mkdir -p "$dir"
echo "$version { global: *; };" >"$dir/version"

# names FILE SONAME SYMBOL... builds a stub library.
names() {
	file=$1 soname=$2
	shift 2
	printf 'void %s(void) {}\n' "$@" | $cc -shared -nostdlib -fPIC -fno-builtin \
		-Wl,-soname,"$soname" -Wl,--version-script="$dir/version" -o "$dir/$file" -x c -
}
names libdl.so libdl.so.2 dlopen dlsym dlclose dlerror
names libpthread.so libpthread.so.0 __libc_start_main pthread_create pthread_once pthread_key_create \
	pthread_setspecific pthread_sigmask pthread_getattr_np pthread_attr_getstack pthread_attr_getstacksize
