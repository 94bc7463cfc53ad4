package libnccl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// TestLayout compares Go's layouts and constants with a C compiler's.
func TestLayout(t *testing.T) {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("left out: the layouts beside a C compiler's, without gcc")
	}
	fields := map[string]string{"size": "size", "magic": "magic", "version": "version", "Blocking": "blocking", "CGAClusterSize": "cgaClusterSize",
		"MinCTAs": "minCTAs", "MaxCTAs": "maxCTAs", "netName": "netName", "SplitShare": "splitShare", "TrafficClass": "trafficClass",
		"commName": "commName", "CollnetEnable": "collnetEnable", "CTAPolicy": "CTAPolicy", "ShrinkShare": "shrinkShare", "NVLSCTAs": "nvlsCTAs",
		"ChannelsPerNetPeer": "nChannelsPerNetPeer", "NVLinkCentricSched": "nvlinkCentricSched", "GraphUsageMode": "graphUsageMode",
		"RMAContexts": "numRmaCtx", "MaxP2PPeers": "maxP2pPeers", "GraphStreamOrdering": "graphStreamOrdering"}
	var program, want strings.Builder
	program.WriteString("#include <stdio.h>\n#include \"nccl.h\"\nint main(void) {\n")
	say := func(name, expression string, value any) {
		fmt.Fprintf(&program, "printf(\"%s %%lld\\n\", (long long)(%s));\n", name, expression)
		fmt.Fprintf(&want, "%s %d\n", name, value)
	}
	config := reflect.TypeFor[Config]()
	names := []string{"netName", "commName"} // the two fields that this package does not set
	for i := range config.NumField() {
		f := config.Field(i)
		if f.Name == "_" {
			f.Name, names = names[0], names[1:]
		}
		say(f.Name, "offsetof(ncclConfig_t, "+fields[f.Name]+")", f.Offset)
		say("size of "+f.Name, "sizeof ((ncclConfig_t *)0)->"+fields[f.Name], f.Type.Size())
	}
	say("config", "sizeof(ncclConfig_t)", unsafe.Sizeof(Config{}))
	say("id", "sizeof(ncclUniqueId)", unsafe.Sizeof(UniqueID{}))
	say("undefined", "NCCL_CONFIG_UNDEF_INT", Undefined)
	say("magic", "NCCL_CONFIG_MAGIC", configMagic)
	for name, v := range map[string]any{"ncclFloat32": Float32, "ncclBfloat16": BFloat16, "ncclSum": Sum} {
		say(name, name, v)
	}
	for r := Success; r <= Timeout; r++ {
		say(r.String(), r.String(), int32(r))
	}
	program.WriteString("return 0;\n}\n")
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(source, []byte(program.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), compiler, "-I", "testdata", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.CommandContext(t.Context(), binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("C has\n%sand Go\n%s", got, want.String())
	}
}

// TestSizes checks that each version's layout is a prefix of Config.
func TestSizes(t *testing.T) {
	var c Config
	for name, tt := range map[string]struct{ end, want uintptr }{
		"2.14": {unsafe.Offsetof(c.Blocking) + 4, 20},
		"2.17": {unsafe.Offsetof(c.SplitShare), 40},
		"2.18": {unsafe.Offsetof(c.SplitShare) + 4, 44},
		"2.26": {unsafe.Offsetof(c.TrafficClass) + 4, 48},
		"2.27": {unsafe.Offsetof(c.NVLSCTAs) + 4, 72},
		"2.28": {unsafe.Offsetof(c.NVLinkCentricSched) + 4, 80},
		"2.29": {unsafe.Offsetof(c.RMAContexts) + 4, 88},
		"2.30": {unsafe.Sizeof(c), 96},
	} {
		if tt.end != tt.want {
			t.Errorf("the fields of %s end at %d, want %d", name, tt.end, tt.want)
		}
	}
	if old, newer := NewConfig(21403), NewConfig(24000); old.version != 21403 || newer.version != newestConfig || old.Blocking != 0 || old.TrafficClass != Undefined {
		t.Errorf("got %+v and %+v", old, newer)
	}
}

// TestUniqueIDAddr checks that Addr reads the IPv4 or IPv6 address of the root from a unique ID.
func TestUniqueIDAddr(t *testing.T) {
	v4 := UniqueID{Internal: [128]byte{8: 2, 10: 0x12, 11: 0x34, 12: 10, 13: 20, 14: 0, 15: 1}}
	v6 := UniqueID{Internal: [128]byte{8: 10, 10: 0x12, 11: 0x34, 16: 0xfe, 17: 0x80, 31: 7}}
	for want, id := range map[string]UniqueID{"10.20.0.1:4660": v4, "[fe80::7]:4660": v6, "": {}} {
		at, ok := id.Addr()
		if ok != (want != "") || ok && at.String() != want {
			t.Errorf("got %v, %v, want %q", at, ok, want)
		}
	}
}
