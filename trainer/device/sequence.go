package device

// Sequence are the operations on sequences of tokens. Token i of a batch is at
// position i mod length of its sequence.
type Sequence interface {
	// Embed writes to row i of y the sum of the row of table for token i and the
	// row of positions for its place: first + i mod length.
	Embed(y Matrix, tokens Tensor, table, positions Matrix, length, first int)
	// EmbedGrad adds row i of dy to the row of dtable for token i, and to the row
	// of dpositions for its place, in rising order of i.
	EmbedGrad(dtable, dpositions, dy Matrix, tokens Tensor, length int)
	// NewAttention plans causal attention.
	NewAttention(s AttentionShape) Attention
}

// AttentionShape is what an attention is planned for.
type AttentionShape struct {
	Heads, HeadSize int
	MaxLength       int       // keys of a sequence
	Precision       Precision // of all products; it is the device's affair where scores are scaled
}

// AttentionInput are the vectors of a batch of sequences of one length, each of
// all heads side by side: Heads*HeadSize columns. Rows have a common stride and
// contiguous columns.
type AttentionInput struct {
	Q       Matrix // Batch*Queries rows
	K, V    Matrix // Batch*Keys rows
	Batch   int
	Queries int
	Keys    int     // at least Queries: query i sees the keys up to i+Keys-Queries
	Dropout Dropout // of the weights; PerSample is Heads*Queries*Keys, in that order
}

// Attention is scaled dot-product attention with a causal mask (Vaswani et al.
// 2017), as F.scaled_dot_product_attention(is_causal=True): softmax(Q·Kᵀ/sqrt(HeadSize))·V
// for each head. The weights are not kept: the backward pass computes them again
// from one number per head and query (Dao et al. 2022). All matrices are
// of the type that Device.Stored says of the precision.
type Attention interface {
	// Forward writes the outputs, Batch*Queries rows of Heads*HeadSize columns, and
	// to logSum the natural logarithm of the softmax's sum for each sample, in it each
	// head, in that each query.
	Forward(out Matrix, logSum Tensor, in AttentionInput)
	// Backward writes the gradients of Q, K and V, which have the layout of these,
	// from that of the output. Sums over queries have one order.
	Backward(dq, dk, dv, dout, out Matrix, logSum Tensor, in AttentionInput)
}
