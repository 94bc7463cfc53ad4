package device

// Sequence contains the operations on sequences of tokens. Token i of a batch is at position i mod
// length of its sequence.
type Sequence interface {
	// Embed stores in row i of y the sum of the row of table for token i and the row of positions
	// for its position: first + i mod length.
	Embed(y Matrix, tokens Tensor, table, positions Matrix, length, first int)
	// EmbedGrad adds row i of dy to the row of dtable for token i and to the row of dpositions for
	// its position, in ascending order of i.
	EmbedGrad(dtable, dpositions, dy Matrix, tokens Tensor, length int)
	// NewAttention plans causal attention.
	NewAttention(s AttentionShape) Attention
}

// AttentionShape is the shape of planned attention.
type AttentionShape struct {
	Heads, HeadSize int
	MaxLength       int       // maximum number of keys of a sequence
	Precision       Precision // of all matrix multiplications; the device chooses where it scales the scores
}

// AttentionInput holds Q, K, and V of a batch of sequences with equal length. The heads of a row
// are adjacent: Heads*HeadSize columns. Rows have a constant stride and contiguous columns.
type AttentionInput struct {
	Q       Matrix // Batch*Queries rows
	K, V    Matrix // Batch*Keys rows
	Batch   int
	Queries int
	Keys    int     // at least Queries: query i attends to the keys up to i+Keys-Queries
	Dropout Dropout // of the weights; PerSample is Heads*Queries*Keys, in that order
}

// Attention is scaled dot-product attention with a causal mask (Vaswani et al., 2017), as in
// F.scaled_dot_product_attention(is_causal=True): softmax(Q·Kᵀ/sqrt(HeadSize))·V for each head. The
// weights are not stored: the backward pass recomputes them from one value per head and query (Dao
// et al., 2022). All matrices have the type that Device.Stored returns for the precision.
type Attention interface {
	// Forward stores the output, Batch*Queries rows of Heads*HeadSize columns, in out. It stores
	// the log-sum-exp of the scores in logSum, by sample, head, and query.
	Forward(out Matrix, logSum Tensor, in AttentionInput)
	// Backward computes the gradients of Q, K, and V from the gradient of the output. They have the
	// layout of Q, K, and V. The order of sums over queries is fixed.
	Backward(dq, dk, dv, dout, out Matrix, logSum Tensor, in AttentionInput)
}
