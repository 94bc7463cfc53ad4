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

// scheduleKeys are the keys of [train] that may change when a run is resumed:
// they say how long it goes on, how much it tells and how ranks divide the work, not
// what a step computes. Other buckets may add up in another order, as another number
// of ranks does. A run that stopped at a step that is not finite may go on as one that
// skips it.
var scheduleKeys = map[string]bool{"epochs": true, "log_every": true, "backend": true, "nonfinite": true, "bucket": true, "first_bucket": true, "no_sync": true}

// saidTwice are the keys of [train] that only stand for others, which a Job has too.
var saidTwice = map[string]bool{"model.size": true}

// Fingerprint returns every field of [train] that changes what a step computes,
// by its key below "train" and with its value as JSON: "optimizer.lr" is "0.1".
// Fields with their zero value are left out, and what means the same: a field that a
// later version adds does not orphan the checkpoints of this one. Every
// strategy has that of ddp, and every device that of cpu: each goes on from the
// checkpoints of the others. (What devices compute differs by rounding only.)
//
// Two runs with equal fingerprints, buckets and world sizes compute the same thing
// from the same data. Paths are compared as they are, so both should come from
// [Job.ResolvePaths] or neither.
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
		shape.Optimizer.Decay = "" // what versions without the key computed
	}
	if shape.Strategy != "" {
		shape.Strategy = StrategyDDP // all strategies compute the same
	}
	if shape.Device != "" {
		shape.Device = DeviceCPU
	}
	fingerprint(reflect.ValueOf(shape), "", fields)
	return fields
}

// stepKeys are the fields of a fingerprint that say, with the number of ranks, how many
// samples a step has. As that may, they may change when a run is resumed: its position
// is counted in samples.
var stepKeys = map[string]bool{"batch": true, "accumulate": true}

// Differences returns the fields in which two fingerprints differ so that one cannot go
// on from a checkpoint of the other, in order.
func Differences(was, is map[string]string) []string {
	var keys []string
	for _, fields := range []map[string]string{was, is} {
		for key := range fields {
			device := key == "device" // earlier versions counted it
			if was[key] != is[key] && !stepKeys[key] && !device {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// The setting that fingerprints of versions without the key leave out, and its value there.
const (
	decayKey   = "optimizer.decay"
	decayedAll = `"` + string(DecayAll) + `"`
)

// implied returns the value, as JSON, of a setting that a fingerprint leaves out, or an
// empty string if the setting then has no value.
func implied(key string) string {
	if key == decayKey {
		return decayedAll
	}
	return ""
}

// RankSamples is the samples of a rank in a step of the spec with this fingerprint, 0 if
// it does not say.
func RankSamples(fingerprint map[string]string) int {
	batch, _ := strconv.Atoi(fingerprint["batch"])
	accumulate, _ := strconv.Atoi(fingerprint["accumulate"]) // left out where it is 1
	return batch * max(1, accumulate)
}

func fingerprint(v reflect.Value, prefix string, fields map[string]string) {
	for i := range v.NumField() {
		key := prefix + v.Type().Field(i).Tag.Get("toml")
		if scheduleKeys[key] || saidTwice[key] || v.Field(i).IsZero() {
			continue
		}
		if f := v.Field(i); f.Kind() == reflect.Struct {
			fingerprint(f, key+".", fields)
		} else {
			text, err := json.Marshal(f.Interface())
			if err != nil { // a float that is not finite, which decoding refuses
				text = fmt.Append(nil, f.Interface())
			}
			fields[key] = string(text)
		}
	}
}

// TrainDigest is the SHA-256 of the [Train.Fingerprint] in hexadecimal: checkpoints
// with equal ones are of the same spec, others have [Differences]. It is empty for a job without [train].
func (j *Job) TrainDigest() string {
	if j.Train == nil {
		return ""
	}
	text, _ := json.Marshal(j.Train.Fingerprint()) // keys sorted; strings always marshal
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
