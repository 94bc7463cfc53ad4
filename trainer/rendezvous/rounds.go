package rendezvous

// FromRankZero gives every rank what rank 0 sent.
func FromRankZero(payloads [][]byte) ([][]byte, error) {
	replies := make([][]byte, len(payloads))
	for r := range replies {
		replies[r] = payloads[0]
	}
	return replies, nil
}

// FromNext gives every rank what the next rank sent, the last one what rank 0
// sent: the neighbours of a ring.
func FromNext(payloads [][]byte) ([][]byte, error) {
	replies := make([][]byte, len(payloads))
	for r := range replies {
		replies[r] = payloads[(r+1)%len(payloads)]
	}
	return replies, nil
}
