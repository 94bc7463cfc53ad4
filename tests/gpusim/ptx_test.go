package gpusim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/kernels"
	"github.com/ebitengine/purego"
)

// parser is the library that parses and interprets PTX.
type parser struct {
	load func(text string, why *byte, n uintptr) uintptr
	free func(module uintptr)
	try  func(module uintptr, steps uint64, why *byte, n uintptr) int32
}

// openParser builds the interpreter, unless Main has. It returns nil without the compiler; with CI
// set, that is a failure.
func openParser(t testing.TB) *parser {
	t.Helper()
	if _, err := exec.LookPath(Compiler); err != nil && os.Getenv("CI") == "" {
		return nil
	}
	p, err := loadParser()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var loadParser = sync.OnceValues(func() (*parser, error) {
	dir := os.Getenv(folder)
	if dir == "" {
		var err error
		if dir, err = build(context.Background(), "gpusim-ptx", []library{interpreter}); err != nil {
			return nil, err
		}
	}
	lib, err := purego.Dlopen(filepath.Join(dir, interpreter.file), purego.RTLD_NOW)
	if err != nil {
		return nil, err
	}
	p := new(parser)
	purego.RegisterLibFunc(&p.load, lib, "gpusim_ptx_load")
	purego.RegisterLibFunc(&p.free, lib, "gpusim_ptx_free")
	purego.RegisterLibFunc(&p.try, lib, "gpusim_ptx_try")
	return p, nil
})

// check parses PTX and runs some instructions of each kernel. It returns why the parser rejected the
// PTX, and an error if the parser gave no reason or accepted what the interpreter cannot run.
func (p *parser) check(text string) (rejected string, err error) {
	const steps = 2000
	var why [512]byte
	reason := func() string { s, _, _ := bytes.Cut(why[:], []byte{0}); return string(s) }
	module := p.load(text, &why[0], uintptr(len(why)))
	if module == 0 {
		if reason() == "" {
			return "", fmt.Errorf("rejected without a reason")
		}
		return reason(), nil
	}
	defer p.free(module)
	if r := p.try(module, steps, &why[0], uintptr(len(why))); r != 0 {
		return "", fmt.Errorf("accepted, but result %d: %s", r, reason())
	}
	return "", nil
}

// entries returns the text of each kernel, with the lines of its module that precede all kernels.
func entries() map[string]string {
	all := map[string]string{}
	for _, module := range append(kernels.Modules(), kernels.HopperModules()...) {
		parts := strings.Split(kernels.PTX(module), ".visible .entry ")
		for i, name := range kernels.Names(module) {
			all[name] = parts[0] + ".visible .entry " + parts[i+1]
		}
	}
	return all
}

// FuzzPTX checks that the interpreter parses or rejects any text, and runs what it accepts. The
// parser and the interpreter are C++, so Go's fuzzer does not see their coverage.
func FuzzPTX(f *testing.F) {
	p := openParser(f)
	for _, text := range entries() {
		if len(text) < 8<<10 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p == nil {
			t.Skipf("skipped: the interpreter of PTX needs %s (Debian package clang-19)", Compiler)
		}
		if len(text) > 64<<10 {
			t.Skip("too long")
		}
		if _, err := p.check(text); err != nil {
			t.Error(err)
		}
	})
}
