//go:build cuda

package engine

import (
	"fmt"
	"math/bits"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Embed looks up token and position embeddings.
func (d *Device) Embed(y device.Matrix, tokens device.Tensor, table, positions device.Matrix, length, first int) {
	sameLength("embed", y.Rows, tokens.Len())
	sameLength("embed", y.Cols, table.Cols, positions.Cols)
	if length < 1 || first < 0 || first+min(length, y.Rows) > positions.Rows {
		panic(fmt.Sprintf("engine: positions %d to %d of %d", first, first+length, positions.Rows))
	}
	to, from, positionTable := whole("the result", y), whole("the table", table), whole("positions", positions)
	defer d.enter("embed", y.Rows, y.Cols).Leave()
	d.args.Reset().Ptr(to).Ptr(ints(tokens)).Ptr(from).Ptr(positionTable).Int(y.Cols).Int(length).Int(first)
	d.launch("embed", blocks(y.Rows))
}

// sortBits is the maximum number of bits of a token that select the block that sorts it. With 64
// blocks, most of the time of a block is for reading all tokens, and for its most frequent token. For
// few tokens, there are fewer blocks.
const (
	sortBits      = 6
	tokensPerPart = 1024
)

// EmbedGrad adds the gradients of table and positions. It groups equal tokens, so that one block
// processes each row of the table.
func (d *Device) EmbedGrad(dtable, dpositions, dy device.Matrix, tokens device.Tensor, length int) {
	n := dy.Rows
	sameLength("embed", n, tokens.Len())
	sameLength("embed", dy.Cols, dtable.Cols, dpositions.Cols)
	if length < 1 || min(length, n) > dpositions.Rows {
		panic(fmt.Sprintf("engine: %d positions of %d", length, dpositions.Rows))
	}
	table, positionGrad, from := whole("a gradient", dtable), whole("a gradient", dpositions), whole("a gradient", dy)
	defer d.enter("embed_grad", n, dy.Cols).Leave()
	tokenBits := bits.Len(uint(dtable.Rows - 1))
	partBits := min(sortBits, bits.Len(uint(n/tokensPerPart)), tokenBits)
	passes := (tokenBits - partBits + 3) / 4
	scratch, part := d.scratchFor(scratchSort, 16*n), driver.Ptr(4*n)
	d.args.Reset().Ptr(scratch).Ptr(scratch + part).Ptr(scratch + 2*part).Ptr(scratch + 3*part).Ptr(ints(tokens)).Int(n).Int(partBits).Int(passes)
	d.launch("sort_tokens", driver.Launch{Grid: driver.Dim{X: 1 << partBits}, Block: driver.Dim{X: 512}})
	if passes%2 == 1 {
		scratch += 2 * part
	}
	d.args.Reset().Ptr(table).Ptr(from).Ptr(scratch).Ptr(scratch + part).Int(n).Int(dy.Cols)
	d.launch("embed_grad", driver.Launch{Grid: driver.Dim{X: n, Y: (dy.Cols + threads - 1) / threads}, Block: driver.Dim{X: threads}})
	d.args.Reset().Ptr(positionGrad).Ptr(from).Int(n).Int(dy.Cols).Int(length)
	d.launch("position_grad", blocks(min(length, n)))
}
