package libnccl

import (
	"math"
	"unsafe"
)

// Config is ncclConfig_t as version 2.30 has it, 96 bytes. Earlier versions have fewer
// fields: 24 bytes in 2.14, 40 in 2.17, 48 from 2.18 on (where 4 bytes of padding lie
// at the place of TrafficClass until 2.26), 72 in 2.27, 80 in 2.28 and 88 in 2.29.
// Every one of them looks at no more than its own size, checks Magic, and takes its
// defaults for fields that are newer than Version or [Undefined]: so one layout serves
// all. Zero is a value and not the default; use [NewConfig].
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

// Undefined leaves a field to NCCL.
const Undefined = math.MinInt32

const (
	configMagic = 0xcafebeef
	// newestConfig is the version whose layout Config has: a library that is newer must
	// not take what is not there for a value.
	newestConfig = 23007
)

// NewConfig leaves everything to a library of version v, but that calls do not block.
func NewConfig(v Version) Config {
	const u = Undefined
	return Config{
		size: uint64(unsafe.Sizeof(Config{})), magic: configMagic, version: uint32(min(v, newestConfig)),
		CGAClusterSize: u, MinCTAs: u, MaxCTAs: u, SplitShare: u, TrafficClass: u, CollnetEnable: u, CTAPolicy: u,
		ShrinkShare: u, NVLSCTAs: u, ChannelsPerNetPeer: u, NVLinkCentricSched: u, GraphUsageMode: u, RMAContexts: u,
		MaxP2PPeers: u, GraphStreamOrdering: u,
	}
}
