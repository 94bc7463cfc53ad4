package trainlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// A Field is a named value in a file of metrics, such as a column of a CSV file or a tag of
// TensorBoard.
type Field struct {
	Name  string
	Value float64
}

// field is the meaning of a name: a quantity, or a total.
type field struct {
	quantity quantity
	total    string // groupSteps or groupEpochs; empty for a quantity
}

// SetName declares that values with the given name are values of group, one of [groupNames].
func (p *Parser) SetName(group, name string) error {
	q, ok := groups[group]
	switch {
	case group == groupSteps || group == groupEpochs:
		p.names[name] = field{total: group}
	case ok:
		p.names[name] = field{quantity: q}
	default:
		return fmt.Errorf("unknown group %q: use %s", group, strings.Join(groupNames(), ", "))
	}
	return nil
}

// evalWords are parts of names that denote an evaluation. trainWords are parts of names that denote
// training.
var (
	evalWords  = []string{"val", "valid", "validation", "eval", "evaluation", "test"}
	trainWords = []string{"train", "training", "perf", "performance", "throughput", "optim", "optimizer", "metrics", "charts", "time"}
)

// meaning returns the meaning of a name in a file of metrics. A name that the user has given
// replaces the built-in names of the same quantity.
func (p *Parser) meaning(name string) (field, bool) {
	if f, ok := p.names[name]; ok {
		return f, true
	}
	f, ok := builtinMeaning(strings.ToLower(name))
	for _, given := range p.names {
		ok = ok && given != f
	}
	return f, ok
}

func builtinMeaning(name string) (field, bool) {
	if q, ok := knownQuantity(name); ok {
		return field{quantity: q}, true
	}
	switch name {
	case "max_steps", "total_steps":
		return field{total: groupSteps}, true
	case "max_epochs", "total_epochs", "num_train_epochs", groupEpochs:
		return field{total: groupEpochs}, true
	}
	for _, suffix := range []string{"_step", "_epoch"} { // as Lightning appends
		if short, ok := strings.CutSuffix(name, suffix); ok {
			return builtinMeaning(short)
		}
	}
	first, last, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(last, "/") {
		return field{}, false
	}
	if slices.Contains(evalWords, last) || slices.Contains(trainWords, last) {
		first, last = last, first // "Loss/val"
	}
	q, ok := knownQuantity(last)
	switch {
	case !ok:
	case slices.Contains(trainWords, first):
		return field{quantity: q}, true
	case slices.Contains(evalWords, first) && q == qLoss:
		return field{quantity: qEvalLoss}, true
	case slices.Contains(evalWords, first) && q == qAccuracy:
		return field{quantity: qEvalAccuracy}, true
	}
	return field{}, false
}

// knownQuantity returns the quantity of a lowercase name in [groups] or [names].
func knownQuantity(name string) (quantity, bool) {
	if q, ok := groups[name]; ok {
		return q, true
	}
	q, ok := names[name]
	if !ok {
		q, ok = names[strings.NewReplacer("_", " ", "-", " ", "/", " ", ".", " ").Replace(name)]
	}
	return q, ok
}

// Fields returns the records in the values of one line or step.
func (p *Parser) Fields(list []Field) []metrics.Record {
	var v values
	for _, f := range list {
		m, ok := p.meaning(f.Name)
		switch {
		case !ok:
		case m.total == groupSteps:
			v.steps = total(f.Value)
		case m.total == groupEpochs:
			v.epochs = total(f.Value)
		case !v.has[m.quantity]:
			v.has[m.quantity], v.value[m.quantity] = true, f.Value
		}
	}
	return p.records(v)
}

// total returns a number of steps or epochs, or 0 if the value is not one.
func total(v float64) int {
	if v >= 1 && v <= math.MaxInt32 {
		return int(v)
	}
	return 0
}

// parseTotal parses a number of steps or epochs. It returns 0 if the number is not valid or absurdly
// large.
func parseTotal(text string) int {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

const (
	maxFields = 1000 // columns of a CSV file, or values of a JSON line
	maxDepth  = 2    // nested objects of a JSON line
)

// notFinite matches the strings of a JSON text, and the values NaN, Infinity, and -Infinity, which
// Python's json module writes although JSON does not have them.
var notFinite = lazyregexp.New(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// decodeLine decodes a line of JSON. Values that are not finite become strings.
func decodeLine(line string, v any) error {
	if strings.Contains(line, "NaN") || strings.Contains(line, "Infinity") {
		line = notFinite().ReplaceAllStringFunc(line, func(found string) string {
			if found[0] == '"' {
				return found
			}
			return `"` + found + `"`
		})
	}
	return json.Unmarshal([]byte(line), v)
}

// jsonFields returns the numbers in a JSON object. It joins the names of nested objects with
// "/".
func jsonFields(line string) []Field {
	var object map[string]any
	if decodeLine(line, &object) != nil {
		return nil
	}
	var all []Field
	appendFields(&all, "", object, maxDepth)
	// A short name is preferred: "loss" to "loss_step".
	slices.SortFunc(all, func(a, b Field) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), strings.Compare(a.Name, b.Name))
	})
	return all
}

func appendFields(all *[]Field, prefix string, object map[string]any, depth int) {
	for name, value := range object {
		if len(*all) == maxFields {
			return
		}
		switch v := value.(type) {
		case float64:
			*all = append(*all, Field{prefix + name, v})
		case string:
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				*all = append(*all, Field{prefix + name, f})
			}
		case map[string]any:
			if depth > 1 {
				appendFields(all, prefix+name+"/", v, depth-1)
			}
		}
	}
}
