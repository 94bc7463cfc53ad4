package rendezvous

import "encoding/json"

// FromRankZero gives every rank what rank 0 sent.
func FromRankZero(payloads [][]byte) ([][]byte, error) {
	replies := make([][]byte, len(payloads))
	for r := range replies {
		replies[r] = payloads[0]
	}
	return replies, nil
}

// FromAll gives every rank what all ranks sent: JSON of a [][]byte by rank.
func FromAll(payloads [][]byte) ([][]byte, error) {
	all, err := json.Marshal(payloads)
	if err != nil {
		return nil, err
	}
	replies := make([][]byte, len(payloads))
	for r := range replies {
		replies[r] = all
	}
	return replies, nil
}
