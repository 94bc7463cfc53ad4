package gpusim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// checked marks a process that Checked has started with AddressSanitizer.
const checked = "GPUSIM_CHECKED"

// addresses enables AddressSanitizer. The libraries do not contain its runtime, which must be the
// first library that a process loads. The frames of a lane stay on its own stack.
var addresses = []string{"-fsanitize=address", "-shared-libasan", "-fsanitize-address-use-after-return=never", "-fno-omit-frame-pointer", "-gline-tables-only"}

// Checked runs a test like [Again], under AddressSanitizer. A kernel, a copy, or a matrix
// multiplication that accesses memory beyond its tensor, its launch's shared memory, or its own
// variables stops the process with a report. The kernels are compiled sources, even if GPUSIM_KERNELS
// is set: AddressSanitizer does not see the accesses of interpreted PTX. Checked skips the test if the
// runtime is missing; CI must have it.
func Checked(t testing.TB, test string, more ...string) (output string, err error) {
	t.Helper()
	Require(t)
	preload, err := sanitizer()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("skipped: %v", err)
	}
	var with []library
	for _, l := range one {
		l.flags = slices.Concat(l.flags, addresses)
		with = append(with, l)
	}
	dir, err := build(t.Context(), "gpusim-checked", with)
	if err != nil {
		t.Fatalf("build the GPU simulator with AddressSanitizer: %v", err)
	}
	// Memory that is still allocated at exit is not a leak here. The Go runtime handles signals.
	options := "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:use_sigaltstack=0"
	if lines, err := exec.LookPath("addr2line"); err == nil {
		options += ":external_symbolizer_path=" + lines
	}
	return again(t, dir, test, append(more, "GPUSIM_KERNELS=", checked+"=1", "LD_PRELOAD="+preload, options)...)
}

// IsChecked reports whether Checked started this process.
func IsChecked() bool { return os.Getenv(checked) != "" }

// sanitizer returns the path of AddressSanitizer's runtime.
func sanitizer() (string, error) {
	name := "libclang_rt.asan-" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".so"
	out, err := exec.Command(Compiler, "-print-file-name="+name).Output()
	if err != nil {
		return "", fmt.Errorf("look for AddressSanitizer: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if _, err := os.Stat(file); err != nil {
		return "", errors.New("AddressSanitizer's runtime is missing: " + name + " of Debian's package libclang-rt-19-dev")
	}
	return file, nil
}
