package libnccl

import (
	"math"
	"unsafe"
)

// Config is ncclConfig_t of version 2.30, which has 96 bytes. Earlier versions have fewer
// fields: 24 bytes in 2.14, 40 in 2.17, 48 since 2.18 (until 2.26, with 4 bytes of padding at
// the offset of TrafficClass), 72 in 2.27, 80 in 2.28, and 88 in 2.29. Each version reads only
// its own size and checks the magic number. It uses its defaults for fields that are newer
// than the version field, or [Undefined]. One layout therefore works with all versions. Zero
// is a value, not the default; use [NewConfig].
type Config struct {
	size    uint64
	magic   uint32
	version uint32

	Blocking            int32 // 2.14
	CGAClusterSize      int32 // 2.17
	MinCTAs, MaxCTAs    int32
	_                   unsafe.Pointer // netName
	SplitShare          int32          // 2.18
	TrafficClass        int32          // 2.26
	_                   unsafe.Pointer // 2.27: commName
	CollnetEnable       int32
	CTAPolicy           int32
	ShrinkShare         int32
	NVLSCTAs            int32
	ChannelsPerNetPeer  int32 // 2.28
	NVLinkCentricSched  int32
	GraphUsageMode      int32 // 2.29
	RMAContexts         int32
	MaxP2PPeers         int32 // 2.30
	GraphStreamOrdering int32
}

// Undefined selects NCCL's default for a field.
const Undefined = math.MinInt32

const (
	configMagic = 0xcafebeef
	// newestConfig is the version of Config's layout. A newer library must not read values
	// beyond its end.
	newestConfig = 23007
)

// NewConfig returns a configuration with a library's defaults, except nonblocking calls.
func NewConfig(v Version) Config {
	const u = Undefined
	return Config{
		size: uint64(unsafe.Sizeof(Config{})), magic: configMagic, version: uint32(min(v, newestConfig)),
		CGAClusterSize: u, MinCTAs: u, MaxCTAs: u, SplitShare: u, TrafficClass: u, CollnetEnable: u, CTAPolicy: u,
		ShrinkShare: u, NVLSCTAs: u, ChannelsPerNetPeer: u, NVLinkCentricSched: u, GraphUsageMode: u, RMAContexts: u,
		MaxP2PPeers: u, GraphStreamOrdering: u,
	}
}
