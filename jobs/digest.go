package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// resumeSafeKeys are the keys of [train] that may change before a run resumes. They affect the
// length of the run, the amount of logging, and the division of work among ranks, but not the
// result of a step. Other bucket sizes and other algorithms can change the order of a sum, as another
// world size does. A run that stopped at a non-finite step may resume with nonfinite = "skip".
var resumeSafeKeys = map[string]bool{
	"epochs": true, "log_every": true, "backend": true, "nonfinite": true, "bucket": true, "first_bucket": true, "no_sync": true, "tune_matmul": true,
}

// derivedKeys are the keys of [train] that only set other keys, which are also in a Job.
var derivedKeys = map[string]bool{"model.size": true}

// Fingerprint returns all fields of [train] that affect the result of a step. The map key is
// the TOML key below "train", and the value is JSON: "optimizer.lr" is "0.1".
//
// Fingerprint omits fields with their zero value and values that equal the earlier behavior,
// so a field that a later version adds does not invalidate existing checkpoints. All
// strategies have the fingerprint of ddp, and all devices have the fingerprint of cpu, because
// each can resume from checkpoints of the others. The results of devices differ only by
// rounding.
//
// Two runs with equal fingerprints, buckets, and world sizes compute the same results from the
// same data. Paths are compared literally, so call [Job.ResolvePaths] for both runs or for
// neither.
func (t *Train) Fingerprint() map[string]string {
	fields := map[string]string{}
	shape := *t
	if shape.Accumulate == 1 {
		shape.Accumulate = 0
	}
	if shape.Reduce == ReduceFP32 {
		shape.Reduce = ""
	}
	if shape.Data.Uneven == UnevenPad || shape.Data.DropLast {
		shape.Data.Uneven = ""
	}
	if shape.Optimizer.Decay == DecayAll || shape.Optimizer.WeightDecay == 0 {
		shape.Optimizer.Decay = "" // the behavior of versions without this key
	}
	if shape.Strategy != "" {
		shape.Strategy = StrategyDDP // all strategies compute the same results
	}
	if shape.Device != "" {
		shape.Device = DeviceCPU
	}
	fingerprint(reflect.ValueOf(shape), "", fields)
	return fields
}

// stepKeys are the fields of a fingerprint that determine, with the world size, the number of
// samples per step. Like the world size, they may change before a run resumes, because its
// position is counted in samples.
var stepKeys = map[string]bool{"batch": true, "accumulate": true}

// differences compares the fingerprint of a checkpoint (was) with the fingerprint of a run (is). It
// returns the fields that prevent the run from resuming from the checkpoint, in sorted order.
func differences(was, is map[string]string) []string {
	var keys []string
	for _, fields := range []map[string]string{was, is} {
		for key := range fields {
			device := key == "device" // fingerprints of earlier versions contain the device
			if was[key] != is[key] && !stepKeys[key] && !device {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// The setting that fingerprints of versions without this key omit, and its implied value.
const (
	decayKey   = "optimizer.decay"
	decayedAll = `"` + string(DecayAll) + `"`
)

// impliedValue returns the value, as JSON, of a setting that a fingerprint omits. It returns an
// empty string if the setting then has no value.
func impliedValue(key string) string {
	if key == decayKey {
		return decayedAll
	}
	return ""
}

// RankSamples returns the number of samples per rank and step for the spec with this
// fingerprint, or 0 if the fingerprint does not contain it.
func RankSamples(fingerprint map[string]string) int {
	batch, _ := strconv.Atoi(fingerprint["batch"])
	accumulate, _ := strconv.Atoi(fingerprint["accumulate"]) // omitted if it is 1
	return batch * max(1, accumulate)
}

func fingerprint(v reflect.Value, prefix string, fields map[string]string) {
	for i := range v.NumField() {
		key := prefix + v.Type().Field(i).Tag.Get("toml")
		if resumeSafeKeys[key] || derivedKeys[key] || v.Field(i).IsZero() {
			continue
		}
		if f := v.Field(i); f.Kind() == reflect.Struct {
			fingerprint(f, key+".", fields)
		} else {
			text, err := json.Marshal(f.Interface())
			if err != nil { // a non-finite float, which decoding rejects
				text = fmt.Append(nil, f.Interface())
			}
			fields[key] = string(text)
		}
	}
}

// TrainDigest returns the SHA-256 digest of [Train.Fingerprint] in hexadecimal, or an empty
// string for a job without [train]. Checkpoints with equal digests have the same spec. For
// others, see [differences].
func (j *Job) TrainDigest() string {
	if j.Train == nil {
		return ""
	}
	text, _ := json.Marshal(j.Train.Fingerprint()) // keys are sorted; strings can always be marshaled
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
