package cpu

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// embedding is an embedding lookup, divided among threads by rows, or its gradient, divided by
// columns, because rows are summed.
type embedding struct {
	unit            *vec.Unit
	add             bool
	y               device.Matrix
	rows, positions []float32 // of the tables, or their gradients
	values          []float32 // elements of y
	tokens          []int32
	length, first   int
}

// Embed computes the sum of token and position embeddings.
func (d *Device) Embed(y device.Matrix, tokens device.Tensor, table, positions device.Matrix, length, first int) {
	j := &d.embedding
	j.plan(y, tokens, table, positions, length, first)
	j.run(&d.pool, y.Rows)
}

// EmbedGrad adds rows to the gradients of their token and position embeddings.
func (d *Device) EmbedGrad(dtable, dpositions, dy device.Matrix, tokens device.Tensor, length int) {
	j := &d.embedding
	j.plan(dy, tokens, dtable, dpositions, length, 0)
	j.add = true
	j.run(&d.pool, (dy.Cols+grain-1)/grain)
}

func (j *embedding) plan(y device.Matrix, tokens device.Tensor, table, positions device.Matrix, length, first int) {
	sameLength("embed", y.Rows, tokens.Len())
	sameLength("embed", y.Cols, table.Cols, positions.Cols)
	*j = embedding{unit: j.unit, y: y, values: whole("embedded tokens", y), rows: whole("an embedding", table),
		positions: whole("an embedding of positions", positions), tokens: tokens.Ints(), length: length, first: first}
}

// run runs the operation in at most units parts.
func (j *embedding) run(p *pool, units int) {
	p.do(j, units, j.y.Rows*j.y.Cols)
	*j = embedding{unit: j.unit}
}

func (j *embedding) part(thread, threads int) {
	w := j.y.Cols
	if j.add {
		first, end := share(w, grain, thread, threads)
		for i, token := range j.tokens {
			from := j.values[i*w+first : i*w+end]
			for _, to := range [2][]float32{j.rows[int(token)*w:], j.positions[(i%j.length)*w:]} {
				j.unit.Add(to[first:end], to[first:end], from)
			}
		}
		return
	}
	first, end := share(j.y.Rows, 1, thread, threads)
	for i := first; i < end; i++ {
		token, position := int(j.tokens[i])*w, (j.first+i%j.length)*w
		j.unit.Add(j.values[i*w:(i+1)*w], j.rows[token:token+w], j.positions[position:position+w])
	}
}
