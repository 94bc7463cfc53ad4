package main

import (
	"context"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

func (versionCmd) Run(_ context.Context, p *program) error {
	p.printf("ddpbatch %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// linkVersion is set by the linker with -ldflags "-X main.linkVersion=v1.2.3".
var linkVersion string

// version returns the version of this program. It comes from the linker flag, the Go module,
// or the VCS revision, in this order.
func version() string {
	if linkVersion != "" {
		return linkVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return "unknown"
	}
	return revision[:min(12, len(revision))] + dirty
}
