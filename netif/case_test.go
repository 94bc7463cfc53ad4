package netif

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// Every accepted input is written back unchanged.
func FuzzReadCases(f *testing.F) {
	for _, c := range moreCases(f) { // one by one: whole files are too large to mutate
		f.Add(c.text)
	}
	f.Add([]byte(`[{"id":"a","rules":[{"priority":1,"table":"main"}]},{"id":"b","peers":["10.0.0.1"]}]`))
	f.Add([]byte(`{"id":"a","links":null,"peers":["::1"],"nccl_conf":[{"name":"A","value":"b","file":"/c","line":1}],"want":{"x":1},"note":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, isList, err := ReadCases(bytes.NewReader(data))
		if err != nil {
			return
		}
		var text []byte
		if isList {
			text, err = json.Marshal(cases)
		} else {
			text, err = json.Marshal(cases[0])
		}
		if err != nil {
			t.Fatalf("writing %+v: %v", cases, err)
		}
		again, _, err := ReadCases(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("reading back %s: %v", text, err)
		}
		for i := range cases {
			a, b := cases[i], again[i]
			if a.ID != b.ID || !reflect.DeepEqual(a.Inventory, b.Inventory) || !reflect.DeepEqual(a.Peers, b.Peers) || !reflect.DeepEqual(a.Settings, b.Settings) {
				t.Fatalf("%+v became %+v", a, b)
			}
		}
	})
}
