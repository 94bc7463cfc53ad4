//go:build cuda

package libnccl_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

func TestMain(m *testing.M) { gpusim.Main(m) }

// TestOpen checks libraries found by name, libraries given by path, and unusable libraries.
func TestOpen(t *testing.T) {
	const tooOld, old, none = "libnccl-2.12.so.2", "libnccl-2.14.so.2", "libnone.so"
	for _, tt := range []struct {
		name    string
		files   []string
		version string
		want    []string // substrings of the error
	}{
		{"by name", []string{library.NCCL}, "2.30.7", nil},
		{"old", []string{old}, "2.14.3", nil},
		{"the first that will do", []string{none, tooOld, old, library.NCCL}, "2.14.3", nil},
		{"too old", []string{none, tooOld}, "", []string{none, "NCCL 2.12.12", "lacks ncclCommInitRankConfig", "2.14.3 or later"}},
		{"another library", []string{"libcuda.so.1"}, "", []string{"libcuda.so.1 is not NCCL"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := libnccl.Open(tt.files)
			if tt.want != nil {
				for _, want := range tt.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want %q", err, want)
					}
				}
				var h interface{ Hint() string }
				if !errors.As(err, &h) || strings.Contains(err.Error(), "\n") {
					t.Errorf("want a hint and one line: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if l.Version.String() != tt.version || !filepath.IsAbs(l.File) || filepath.Dir(l.File) != os.Getenv("LD_LIBRARY_PATH") {
				t.Errorf("%v from %s", l.Version, l.File)
			}
		})
	}
}

// TestErrors checks that an error includes the call, its result, and NCCL's text.
func TestErrors(t *testing.T) {
	l, err := libnccl.Open([]string{library.NCCL})
	if err != nil {
		t.Fatal(err)
	}
	var c libnccl.Comm
	config := libnccl.NewConfig(l.Version)
	err = l.CommInitRank(&c, 2, libnccl.UniqueID{}, 5, &config)
	var e *libnccl.Error
	if !errors.As(err, &e) || e.Result != libnccl.InvalidArgument || !strings.Contains(e.Hint(), "NCCL_DEBUG=WARN") ||
		err.Error() != "ncclCommInitRankConfig: ncclInvalidArgument: Invalid rank requested" {
		t.Errorf("got %v", err)
	}
}
