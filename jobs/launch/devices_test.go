package launch

import "testing"

// TestRenumberForHIP checks that HIP does not apply the same list of GPUs twice.
func TestRenumberForHIP(t *testing.T) {
	const cuda, rocr = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
	for _, c := range []struct {
		name      string
		env, set  map[string]string // variables before, and variables to set
		want      string            // CUDA_VISIBLE_DEVICES to set
		unchanged bool
	}{
		{name: "Slurm sets both", env: map[string]string{cuda: "4,5", rocr: "4,5"}, want: "0,1"},
		{name: "joined for the ranks of a node", env: map[string]string{cuda: "4", rocr: "4"}, set: map[string]string{cuda: "4,5,2,3", rocr: "4,5,2,3"}, want: "0,1,2,3"},
		{name: "one GPU", env: map[string]string{cuda: "3", rocr: "3"}, want: "0"},
		{name: "ROCR only", env: map[string]string{rocr: "4,5"}, unchanged: true},
		{name: "CUDA only", env: map[string]string{cuda: "4,5"}, unchanged: true},
		{name: "different lists of the user", env: map[string]string{cuda: "1", rocr: "4,5"}, unchanged: true},
		{name: "neither", unchanged: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := map[string]string{}
			for name, value := range c.set {
				set[name] = value
			}
			renumberForHIP(set, func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
			if got, ok := set[cuda]; ok == c.unchanged || !c.unchanged && got != c.want {
				t.Errorf("got %q, %t, want %q, unchanged: %t", got, ok, c.want, c.unchanged)
			}
			if set[rocr] != c.set[rocr] {
				t.Errorf("got %s=%q, want %q", rocr, set[rocr], c.set[rocr])
			}
		})
	}
}
