package libnccl

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Type is ncclDataType_t: what the elements of a buffer are.
type Type int32

// The types that every version from 2.14 on has.
const (
	Int8 Type = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
)

// Op is ncclRedOp_t: how elements of several ranks become one.
type Op int32

// The reductions. Avg of floating-point numbers is the sum of each element times 1/n,
// of integers the sum divided by n and cut towards zero.
const (
	Sum Op = iota
	Prod
	Max
	Min
	Avg
)

// UniqueID is what ranks must have in common to become a communicator.
type UniqueID struct{ Internal [128]byte }

// Comm is NCCL's handle of a communicator; 0 is none.
type Comm uintptr

// NoColor is for a rank that is in no part of a split.
const NoColor = -1

// Version is a version of NCCL as ncclGetVersion counts since 2.9: 22105 is 2.21.5.
type Version int32

// String is the version as people write it.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// Oldest is the first version that this package can use: it brought communicators
// that do not block, which alone can be aborted safely.
const Oldest Version = 21403

// Addr is where rank 0 listens, which stands behind eight bytes that are NCCL's own;
// false where there is no such address.
func (id UniqueID) Addr() (netip.AddrPort, bool) {
	const familyIPv4, familyIPv6 = 2, 10 // AF_INET, AF_INET6
	at := id.Internal[8:]
	port := binary.BigEndian.Uint16(at[2:])
	var a netip.Addr
	switch binary.LittleEndian.Uint16(at) {
	case familyIPv4:
		a, _ = netip.AddrFromSlice(at[4:8])
	case familyIPv6:
		a, _ = netip.AddrFromSlice(at[8:24])
	}
	return netip.AddrPortFrom(a, port), a.IsValid() && port != 0
}
