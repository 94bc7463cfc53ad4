package main

import "runtime/debug"

// linkVersion is set by the Makefile.
var linkVersion string

// version is what this program calls itself: the tag or commit it was built
// from.
func version() string {
	if linkVersion != "" {
		return linkVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return info.Main.Version
}
