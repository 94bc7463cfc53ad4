package main

import (
	"io"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/doctor"
)

// TestVersionsOfFindings checks that the version column appears only if a finding has a
// version.
func TestVersionsOfFindings(t *testing.T) {
	findings := []doctor.Finding{{Part: "files", Level: doctor.OK, Detail: "ext4"}, {Part: "nccl", Level: doctor.OK, Version: "2.21.5", Path: "/lib/libnccl.so.2"}}
	for n, want := range map[int]string{
		1: "PART   LEVEL  RESULT\nfiles  ok     ext4\n",
		2: "PART   LEVEL  VERSION  RESULT\nfiles  ok     -        ext4\nnccl   ok     2.21.5   /lib/libnccl.so.2\n",
	} {
		var out strings.Builder
		p := &program{Stdout: &out, Stderr: io.Discard}
		p.printFindings(findings[:n])
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), want)
		}
	}
}
