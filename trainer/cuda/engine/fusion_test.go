package engine_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
)

// TestParseFusion checks the values of DDPBATCH_FUSION.
func TestParseFusion(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       engine.Fusion
		fails      bool
	}{
		{name: "unset", want: engine.AllFusions},
		{name: "all", text: "all", want: engine.AllFusions},
		{name: "none", text: "none"},
		{name: "one", text: "bias", want: engine.FuseBias},
		{name: "two", text: "bias,gelu_grad", want: engine.FuseBias | engine.FuseGELUGrad},
		{name: "gradient of biases", text: "bias_grad", want: engine.FuseBiasGrad},
		{name: "unknown", text: "bias,relu", fails: true},
		{name: "empty element", text: "bias,", fails: true},
		{name: "all in a list", text: "all,bias", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := engine.ParseFusion(c.text)
			if got != c.want || (err != nil) != c.fails || err != nil && !strings.Contains(err.Error(), `"gelu_grad"`) {
				t.Errorf("got %b, %v; want %b, error: %t", got, err, c.want, c.fails)
			}
		})
	}
}
