//go:build linux

package cluster

import (
	"os"
	"testing"
)

// ForTest starts a cluster that stops with the test, and prints [Cluster.Logs] if the test fails.
// Without root it skips the test. If CI is set, it fails the test instead.
func ForTest(t testing.TB, o Options) *Cluster {
	t.Helper()
	needRoot(t)
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("the test cluster needs root")
	}
	t.Skip("the test cluster needs root")
}
