package netif

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// readLimited reads all of r. It returns an error if r has more than limit bytes.
func readLimited(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return data, nil
}

// decode reads exactly one JSON value into a pointer and rejects text after it.
func decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("line %d: %w", lineOf(data, err, dec), err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("line %d: more text after its end", lineOf(data, err, dec))
	}
	return checkKeys(data, reflect.TypeOf(into), "")
}

// lineOf returns the line of data where decoding stopped.
func lineOf(data []byte, err error, dec *json.Decoder) int {
	at := dec.InputOffset()
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset
	case errors.As(err, &wrong):
		at = wrong.Offset
	}
	return 1 + bytes.Count(data[:min(at, int64(len(data)))], []byte("\n"))
}

// checkKeys rejects keys that are almost equal to a key of t, at any depth. The caller has
// already decoded data, so its structure is valid.
func checkKeys(data []byte, t reflect.Type, where string) error {
	switch {
	case t.Kind() == reflect.Pointer:
		return checkKeys(data, t.Elem(), where)
	case t == reflect.TypeFor[Route]():
		return checkKeys(data, reflect.TypeFor[routeText](), where)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		var elements []json.RawMessage
		if err := json.Unmarshal(data, &elements); err != nil {
			return nil // null
		}
		for i, e := range elements {
			if err := checkKeys(e, t.Elem(), fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[Link]().PkgPath():
		return checkFields(data, t, where)
	}
	return nil
}

func checkFields(data []byte, t reflect.Type, where string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil
	}
	known := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			known[name] = f.Type
		}
	}
	for key, value := range fields {
		at := key
		if where != "" {
			at = where + "." + key
		}
		if of, ok := known[strings.ToLower(key)]; ok {
			if err := checkKeys(value, of, at); err != nil {
				return err
			}
			continue
		}
		for name := range known {
			if isNearly(strings.ToLower(key), name) {
				return fmt.Errorf("unknown field %q: is %q meant?", at, name)
			}
		}
	}
	return nil
}

// isNearly reports whether a key is probably a typo of a supported key. It accepts one wrong,
// missing, extra, or transposed letter, or two if known has five or more letters.
func isNearly(key, known string) bool {
	limit := 1
	if len(known) >= 5 {
		limit = 2
	}
	if len(known) < 3 || len(key)-len(known) > limit || len(known)-len(key) > limit {
		return false
	}
	// Damerau-Levenshtein distance, with only the last two rows in memory.
	var older []int
	last := make([]int, len(known)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(key); i++ {
		row := make([]int, len(known)+1)
		row[0] = i
		for j := 1; j <= len(known); j++ {
			cost := 1
			if key[i-1] == known[j-1] {
				cost = 0
			}
			row[j] = slices.Min([]int{last[j] + 1, row[j-1] + 1, last[j-1] + cost})
			if i > 1 && j > 1 && key[i-1] == known[j-2] && key[i-2] == known[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, last = last, row
	}
	return last[len(known)] <= limit
}
