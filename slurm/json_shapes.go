package slurm

import (
	"encoding/json"
	"math"
	"strconv"
)

// jsonNumber is a whole number, plain or, since 23.02, with a word on whether it
// is one: {"set": true, "infinite": false, "number": 7}.
type jsonNumber struct {
	n   int64
	set bool
}

// UnmarshalJSON never fails: what is no number is not set.
func (v *jsonNumber) UnmarshalJSON(data []byte) error {
	*v = jsonNumber{}
	var object struct {
		Set      *bool    `json:"set"`
		Infinite bool     `json:"infinite"`
		Number   *float64 `json:"number"`
	}
	var plain *float64
	if json.Unmarshal(data, &plain) != nil {
		if json.Unmarshal(data, &object) == nil && !object.Infinite && (object.Set == nil || *object.Set) {
			plain = object.Number
		} else {
			plain = nil
		}
	}
	if plain != nil && math.Abs(*plain) < 1<<53 {
		*v = jsonNumber{int64(*plain), true}
	}
	return nil
}

// jsonText is a string; empty for anything else.
type jsonText string

// UnmarshalJSON never fails.
func (v *jsonText) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) != nil {
		s = ""
	}
	*v = jsonText(s)
	return nil
}

// jsonTexts is a list of strings, or one string.
type jsonTexts []string

// UnmarshalJSON never fails.
func (v *jsonTexts) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, &list) != nil {
		list = nil
		var one jsonText
		if _ = one.UnmarshalJSON(data); one != "" {
			list = []string{string(one)}
		}
	}
	*v = list
	return nil
}

// jsonExit is an exit code as "code:signal": from a number as wait(2) gives it
// (before 23.11), or from {"return_code": N, "signal": {"id": N}}. The id is
// called signal_id in the older of sacct's shapes.
type jsonExit string

// UnmarshalJSON never fails.
func (v *jsonExit) UnmarshalJSON(data []byte) error {
	*v = ""
	var plain jsonNumber
	if _ = plain.UnmarshalJSON(data); plain.set && plain.n >= 0 && plain.n <= 0xffff {
		*v = jsonExit(waitStatus(int(plain.n)))
		return nil
	}
	var object struct {
		Code   jsonNumber `json:"return_code"`
		Signal struct {
			ID    jsonNumber `json:"id"`
			OldID jsonNumber `json:"signal_id"`
		} `json:"signal"`
	}
	// A signal of another shape is an error here; the code is read all the same.
	_ = json.Unmarshal(data, &object)
	if object.Code.set || object.Signal.ID.set || object.Signal.OldID.set {
		signal := object.Signal.ID.n + object.Signal.OldID.n
		*v = jsonExit(strconv.FormatInt(object.Code.n, 10) + ":" + strconv.FormatInt(signal, 10))
	}
	return nil
}
