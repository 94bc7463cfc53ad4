package libnccl

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// A Type is an ncclDataType_t, the element type of a buffer.
type Type int32

// The types of the trainer.
const (
	Float32  Type = 7
	BFloat16 Type = 9
)

// An Op is an ncclRedOp_t, a reduction.
type Op int32

// Sum is the reduction of the trainer.
const Sum Op = 0

// A UniqueID identifies the ranks of one communicator.
type UniqueID struct{ Internal [128]byte }

// A Comm is NCCL's handle of a communicator; 0 is invalid.
type Comm uintptr

// A Version is a version of NCCL as ncclGetVersion encodes it since 2.9: 22105 is 2.21.5.
type Version int32

// String returns the version in dotted form.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// Oldest is the first supported version. It introduced nonblocking communicators, the only
// ones that can be aborted safely.
const Oldest Version = 21403

// Addr returns the address on which rank 0 listens. It follows eight bytes of NCCL's own data.
// It returns false if the ID does not contain an address.
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
