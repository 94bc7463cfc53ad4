package data

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// BuiltinPrefix is the prefix of a path that names data inside the program.
const BuiltinPrefix = "builtin:"

// fashionMNIST is the only builtin dataset, see builtin/README.md.
const fashionMNIST = "fashion-mnist"

//go:embed builtin/*.gz
var builtinFiles embed.FS

// openBuiltin opens the builtin data with the given path, which begins with BuiltinPrefix.
func openBuiltin(ctx context.Context, path string) (train, eval Dataset, err error) {
	if name := strings.TrimPrefix(path, BuiltinPrefix); name != fashionMNIST {
		return nil, nil, hints.Errorf("use \""+BuiltinPrefix+fashionMNIST+"\"",
			"open data %q: no such builtin data", path)
	}
	files, err := fs.Sub(builtinFiles, "builtin")
	if err != nil {
		return nil, nil, fmt.Errorf("open data %q: %w", path, err)
	}
	f := dataDir{path, files}
	return openIDXDirs(ctx, f, f, true)
}
