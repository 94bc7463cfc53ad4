// Command fetch stores NVIDIA's files for the tests of package nvidia in the cache directory, or
// prints why the tests will be skipped. It exits with 0 in both cases, because the tests do not
// need a network.
package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/nvidia"
)

// timeout is the limit for all downloads, 260 MiB.
const timeout = 90 * time.Second

func main() {
	dir, err := fetch()
	if err != nil {
		fmt.Printf("tests/nvidia: skipping the checks with NVIDIA's ptxas, libcuda, and cuBLASLt: %v\n", err)
		return
	}
	fmt.Printf("tests/nvidia: ptxas, libcuda, and cuBLASLt are in %s\n", dir)
}

func fetch() (dir string, err error) {
	if runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("they are for amd64, and this machine is %s", runtime.GOARCH)
	}
	if dir, err = nvidia.Dir(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return dir, nvidia.Fetcher{Dir: dir}.Fetch(ctx)
}
