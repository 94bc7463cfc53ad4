//go:build race

package mesh

import (
	"bytes"
	"net"
)

// outgoingBytes copies b for the race detector. The detector treats a buffer as read until its
// write returns, although the other rank may have received all of it. Data that the other rank
// sends to the same buffer in response would appear as a race.
func outgoingBytes(b []byte) []byte { return bytes.Clone(b) }

// writeFrame writes the buffers one after another. The detector orders a write before the read of
// its bytes, but not for several buffers in one system call.
func writeFrame(c *connection, buffers *net.Buffers) error {
	for _, b := range *buffers {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	return nil
}
