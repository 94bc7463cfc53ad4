package slurm

import (
	"maps"
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	got := parseConfig(`Configuration data as of 2026-01-01T00:00:00
AccountingStorageType   = accounting_storage/none
KillWait                = 30 sec
SLURM_VERSION           = 22.05.8
SlurmctldParameters     = (null)

Cgroup Support Configuration:
KillWait                = 7

Slurmctld(primary) at control is UP
`)
	want := map[string]string{"AccountingStorageType": "accounting_storage/none", "KillWait": "30 sec", "SLURM_VERSION": "22.05.8", "SlurmctldParameters": "(null)"}
	if !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("0\r0 = ")
	f.Add("A = b\nA = c\n = d\nB  =  \x1b[0m\n")
	f.Fuzz(func(t *testing.T, out string) {
		for key, value := range parseConfig(out) {
			if key == "" || strings.ContainsAny(key+value, "\n\r\x1b") {
				t.Errorf("%q = %q", key, value)
			}
		}
	})
}
