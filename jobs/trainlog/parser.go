// Package trainlog reads the progress of a user's program from its output: step, epoch, loss,
// accuracy, learning rate, and speed.
//
// The program does not have to do anything. A [Parser] recognizes the usual forms:
//
//   - names with values: "epoch 3/100  loss 0.44", "step: 10  loss: 7.12  tps: 1,234",
//     "iteration 10/ 500 | lm loss: 1.0E+01 |"
//   - JSON objects and Python dicts: {'loss': 2.31, 'learning_rate': 5e-05, 'epoch': 0.12}
//   - progress bars of tqdm: "Epoch 3:  45%|####5     | 45/100 [00:10<00:12, 4.40it/s, loss=0.12]"
//
// These cover the logs of Hugging Face's Trainer, Lightning, nanoGPT, torchtitan, Megatron-LM,
// DeepSpeed, and the examples of PyTorch and torchvision. Patterns of the user replace them
// ([New]). A [Source] reads metrics from files that the program writes instead: JSON lines, CSV
// files, and event files of TensorBoard.
//
// The package guarantees:
//
//   - A line gives a record only if it has a position (step or epoch) and a measured value. A
//     line that a pattern of the user matches needs only a position.
//   - The steps of a parser's records never decrease, separately for training and evaluation.
//     If all ranks print the same line, only the first one counts. Steps that restart in
//     each epoch are continued.
//   - Lines longer than 16 KiB are ignored. Memory is bounded for any output.
//
// The package does not write metrics, and does not detect hangs.
package trainlog

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// Kinds of [metrics.Record].
const (
	kindTrain = "train"
	kindEval  = "eval"
)

// A quantity is a value that a line can contain.
type quantity int

const (
	qStep quantity = iota
	qEpoch
	qLoss
	qEvalLoss
	qAccuracy
	qEvalAccuracy
	qLR
	qTokensPerSecond
	qSamplesPerSecond
	qStepsPerSecond
	qStepMillis
	qStepSeconds
	quantities
)

// names maps each name in logs to its quantity. Spaces stand for a space, "_", "-", "/", or ".".
var names = map[string]quantity{
	"step": qStep, "steps": qStep, "global step": qStep, "iter": qStep, "iters": qStep, "iteration": qStep, "update": qStep, "num updates": qStep,
	"epoch": qEpoch,
	"loss":  qLoss, "train loss": qLoss, "training loss": qLoss, "lm loss": qLoss, "avg loss": qLoss, "loss train": qLoss, "global avg loss": qLoss,
	"val loss": qEvalLoss, "valid loss": qEvalLoss, "validation loss": qEvalLoss, "eval loss": qEvalLoss, "test loss": qEvalLoss, "lm loss value": qEvalLoss,
	"held out loss": qEvalLoss, "loss val": qEvalLoss,
	"acc": qAccuracy, "accuracy": qAccuracy, "train acc": qAccuracy, "train accuracy": qAccuracy,
	"val acc": qEvalAccuracy, "val accuracy": qEvalAccuracy, "valid acc": qEvalAccuracy, "validation accuracy": qEvalAccuracy,
	"eval acc": qEvalAccuracy, "eval accuracy": qEvalAccuracy, "test acc": qEvalAccuracy, "test accuracy": qEvalAccuracy,
	"lr": qLR, "learning rate": qLR,
	"tps": qTokensPerSecond, "tok/s": qTokensPerSecond, "tokens/s": qTokensPerSecond, "tokens/sec": qTokensPerSecond, "tokens per sec": qTokensPerSecond,
	"tokens per second": qTokensPerSecond, "samples/s": qSamplesPerSecond, "samples/sec": qSamplesPerSecond, "samples per sec": qSamplesPerSecond,
	"samples per second": qSamplesPerSecond, "images/s": qSamplesPerSecond, "images/sec": qSamplesPerSecond, "img/s": qSamplesPerSecond, "imgs/s": qSamplesPerSecond,
	"it/s": qStepsPerSecond, "steps/s": qStepsPerSecond, "steps/sec": qStepsPerSecond, "steps per second": qStepsPerSecond,
	"step ms": qStepMillis, "step time ms": qStepMillis, "elapsed time per iteration (ms)": qStepMillis, "iter time (s)": qStepSeconds,
	"step time": qStepSeconds, "time per step": qStepSeconds, "s/it": qStepSeconds,
}

const number = `[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)`

var (
	// pairs matches a name and its value, with an optional total: "step: 10", "epoch [3/100]",
	// "iteration 10/ 500", "'loss': 2.31", "loss=0.12".
	pairs = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|[^a-z0-9_/.])["']?(` + alternatives(false) + `)["']?\s*(?:[:=]\s*|\[\s*|\s)\s*["'\[]?\s*(` + number + `)(?:\s*/\s*(\d+))?`)
	})
	// rates matches a value that precedes its unit: "1,234 tok/s".
	rates = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|[^a-z0-9_.])(` + number + `)\s*(` + alternatives(true) + `)(?:$|[^a-z0-9])`)
	})
	// positions matches the position within an epoch after its number: "Epoch: [0]  [ 10/5005]",
	// "Train Epoch: 1 [640/60000 (1%)]".
	positions = lazyregexp.New(`(?i)epoch["']?\s*[:= ]\s*(\[?)\s*(\d+)[\]:,]?\s*\[\s*(\d+)\s*/\s*(\d+)`)
	// bars matches the position in a progress bar of tqdm.
	bars = lazyregexp.New(`^\s*(?:([^|%]*?):?\s+)?\d+%\|[^|]*\|\s*(\d+)/(\d+)\s*\[[^\],]*(?:,\s*(?:(` + number + `)(it/s|s/it))?([^\]]*))?`)
	// escapes matches escape sequences of terminals, such as colors.
	escapes = lazyregexp.New("\x1b\\[[0-9;?]*[A-Za-z]")
)

// alternatives returns the names as a regular expression, the longest first. With units it
// returns only names that are units.
func alternatives(units bool) string {
	var all []string
	for name := range names {
		if units && !strings.Contains(name, "/s") && name != "s/it" {
			continue
		}
		all = append(all, name)
	}
	// Longer names first: a regular expression prefers the first alternative.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for i, name := range all {
		all[i] = strings.ReplaceAll(regexp.QuoteMeta(name), " ", `[ _\-/.]`)
	}
	return strings.Join(all, "|")
}

// A Parser reads the lines of one attempt of a program.
type Parser struct {
	custom []*regexp.Regexp
	names  map[string]field // names that the user has given, see SetName

	last       map[string]int // newest step by kind; missing before the first record
	earlier    map[int]int    // until the first step, see ContinueSteps
	passOffset int            // steps of earlier epochs, if the program's steps restart in each epoch
	passStep   int            // newest step as printed
	fromZero   bool           // epoch 0 was printed
	hasEpoch   bool           // an epoch was printed
	bar        *bar           // newest progress bar of training, for lines without a step
	otherBar   *bar           // newest bar after it with a different number of steps, such as the bar of an evaluation
	barUsed    bool           // a training record has the step of bar
	epoch      int            // newest epoch as printed, for lines without one
	epochIndex int            // the same, counted from 0
	epochs     int
	steps      int
}

// position is a step and, if known, the number of steps.
type position struct{ step, steps int }

// bar is the state of a progress bar without a title.
type bar struct {
	position
	stepMillis *metrics.Number // nil if the bar has no speed
}

// New returns a parser. Patterns are regular expressions with named groups such as step, epoch,
// loss, eval_loss, accuracy, or lr, which replace the built-in forms. The first pattern that
// matches a line counts. FromZero reports that an earlier attempt of the program printed epoch
// 0. Otherwise, epochs count from 1 unless the form of a line, or an epoch 0, shows that they
// count from 0.
func New(patterns []string, fromZero bool) (*Parser, error) {
	p := &Parser{last: map[string]int{}, fromZero: fromZero, names: map[string]field{}}
	for _, pattern := range patterns {
		re, err := Compile(pattern)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		p.custom = append(p.custom, re)
	}
	return p, nil
}

// CountsFromZero reports whether an epoch 0 was printed. Known is false before the first epoch.
func (p *Parser) CountsFromZero() (fromZero, known bool) { return p.fromZero, p.hasEpoch }

// ContinueSteps sets the newest step of each epoch, counted from 0, in earlier attempts. If the program
// counts the steps of each epoch from the start, and resumes after some epochs, its steps then continue
// the steps of these epochs.
func (p *Parser) ContinueSteps(newest map[int]int) { p.earlier = newest }

// setFirstOffset sets passOffset for the first step that the program has printed, in an epoch if hasEpoch
// is set. A program that counts all steps resumes after the steps of earlier epochs.
func (p *Parser) setFirstOffset(printed int, hasEpoch bool) {
	before := 0
	for epoch, step := range p.earlier {
		if hasEpoch && epoch < p.epochIndex {
			before = max(before, step)
		}
	}
	if printed < before/2 {
		p.passOffset = before
	}
	p.earlier = nil
}

// groups maps each group name of a custom pattern to its quantity.
var groups = map[string]quantity{
	"step": qStep, "epoch": qEpoch, "loss": qLoss, "eval_loss": qEvalLoss, "accuracy": qAccuracy, "eval_accuracy": qEvalAccuracy,
	"lr": qLR, "tokens_per_s": qTokensPerSecond, "samples_per_s": qSamplesPerSecond, "steps_per_s": qStepsPerSecond, "step_ms": qStepMillis,
}

// Totals in custom patterns.
const (
	groupSteps  = "steps"
	groupEpochs = "epochs"
)

// Compile compiles a pattern for [New] and checks the names of its groups.
func Compile(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	position := false
	for _, name := range re.SubexpNames() {
		if name == "" || name == groupSteps || name == groupEpochs {
			continue
		}
		q, ok := groups[name]
		if !ok {
			return nil, fmt.Errorf("unknown group %q: use %s", name, strings.Join(groupNames(), ", "))
		}
		position = position || q == qStep || q == qEpoch
	}
	if !position {
		return nil, fmt.Errorf("no group %q or %q, such as (?P<step>\\d+)", "step", "epoch")
	}
	return re, nil
}

// groupNames returns the names of groups that a pattern can have, sorted.
func groupNames() []string {
	all := append(slices.Collect(maps.Keys(groups)), groupSteps, groupEpochs)
	slices.Sort(all)
	return all
}

// readCustom reads the groups of a custom pattern.
func (v *values) readCustom(re *regexp.Regexp, line string) {
	m := re.FindStringSubmatch(line)
	for i, name := range re.SubexpNames() {
		if i >= len(m) || name == "" || m[i] == "" {
			continue
		}
		switch name {
		case groupSteps:
			v.steps = parseTotal(m[i])
		case groupEpochs:
			v.epochs = parseTotal(m[i])
		default:
			v.set(groups[name], m[i])
		}
	}
	v.custom = m != nil
}

// maxLine is the maximum length of a line in bytes.
const maxLine = 16 << 10

// Line returns the records in a line of output: none, a training record, an evaluation record,
// or both.
func (p *Parser) Line(line string) []metrics.Record {
	if len(line) > maxLine {
		return nil
	}
	if strings.Contains(line, "\x1b") {
		line = escapes().ReplaceAllString(line, "")
	}
	var v values
	switch {
	case p.custom != nil:
		for _, re := range p.custom {
			if v.readCustom(re, line); v.custom {
				break
			}
		}
	case !strings.ContainsAny(line, "0123456789"):
		return nil
	default:
		v.read(line)
		if !p.readBar(line, &v) {
			return nil
		}
	}
	return p.records(v)
}

// values are the quantities in a line.
type values struct {
	has           [quantities]bool
	value         [quantities]float64
	steps, epochs int  // totals; 0 if unknown
	withinEpoch   int  // number of steps of an epoch, if the step counts within the epoch
	fromZero      bool // the first epoch is 0
	custom        bool // a custom pattern matched, with or without measured values
	summary       bool // the line has means of the whole run
	fromBar       bool // the step is that of the newest progress bar
}

func (v *values) set(q quantity, text string) bool {
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil || v.has[q] {
		return false
	}
	v.has[q], v.value[q] = true, f
	return true
}

// read reads the built-in forms.
func (v *values) read(line string) {
	v.summary = strings.Contains(line, "'train_runtime'") // the last line of Hugging Face's Trainer
	if m := positions().FindStringSubmatch(line); m != nil {
		v.fromZero = m[1] != "" // as torchvision prints it; PyTorch's MNIST example counts from 1
		v.set(qEpoch, m[2])
		v.set(qStep, m[3])
		v.withinEpoch = parseTotal(m[4])
	}
	for _, m := range pairs().FindAllStringSubmatch(line, -1) {
		q, _ := knownQuantity(strings.ToLower(m[1]))
		if !v.set(q, m[2]) || m[3] == "" {
			continue
		}
		total := parseTotal(m[3])
		switch q {
		case qStep:
			v.steps = total
		case qEpoch:
			v.epochs = total
		}
	}
	for _, m := range rates().FindAllStringSubmatch(line, -1) {
		q, _ := knownQuantity(strings.ToLower(m[2]))
		v.set(q, m[1])
	}
	if !v.has[qStepMillis] {
		v.readTime(line)
	}
}

// times matches nanoGPT's and llm.c's time of a step.
var times = lazyregexp.New(`(?i)(?:^|[^a-z0-9_])(?:time|dt|step_time)["']?\s*[:= ]\s*(\d+(?:\.\d+)?)\s*(ms|s)\b`)

func (v *values) readTime(line string) {
	m := times().FindStringSubmatch(line)
	if m == nil {
		return
	}
	q := qStepSeconds
	if m[2] == "ms" {
		q = qStepMillis
	}
	v.has[q] = false // "step_time: 1.2ms" was read without its unit
	v.set(q, m[1])
	if q == qStepMillis {
		v.has[qStepSeconds] = false
	}
}

// readBar reads a progress bar. It reports false if the line is a bar that does not show the
// progress of training, such as the bar of a download.
func (p *Parser) readBar(line string, v *values) bool {
	m := bars().FindStringSubmatch(line)
	if m == nil {
		return true
	}
	at := position{step: parseTotal(m[2]), steps: parseTotal(m[3])}
	title := strings.ToLower(m[1])
	measured := v.has[qLoss] || v.has[qEvalLoss] || v.has[qAccuracy]
	v.has[qStepsPerSecond], v.has[qStepSeconds] = false, false
	switch m[5] {
	case "it/s":
		v.set(qStepsPerSecond, m[4])
	case "s/it":
		v.set(qStepSeconds, m[4])
	}
	switch {
	case title == "":
		// Hugging Face's Trainer prints its losses between updates of such a bar. Its evaluations
		// have a separate bar.
		if b := (&bar{at, v.stepMillis()}); p.bar == nil || p.bar.steps == at.steps {
			p.bar, p.otherBar = b, nil
		} else {
			p.otherBar = b
		}
		if !measured {
			return false
		}
	case strings.Contains(title, "val") || strings.Contains(title, "test") || strings.Contains(title, "eval"):
		return false
	case strings.HasPrefix(title, "epoch") && v.has[qEpoch]:
		v.withinEpoch = at.steps
		v.fromZero = v.epochs == 0 // as Lightning prints it; "Epoch 1/10" counts from 1
	case !measured:
		return false
	}
	v.has[qStep], v.value[qStep] = true, float64(at.step)
	if v.withinEpoch == 0 {
		v.steps = at.steps
	}
	return true
}

// records converts the values of a line.
func (p *Parser) records(v values) []metrics.Record {
	if v.summary {
		return nil
	}
	train := v.has[qLoss] || v.has[qAccuracy]
	eval := v.has[qEvalLoss] || v.has[qEvalAccuracy]
	if !train && !eval && !v.custom {
		return nil
	}
	at, ok := p.position(&v)
	if !ok {
		return nil
	}
	base := metrics.Record{Step: at.step, Steps: at.steps, Epoch: p.epochIndex, Epochs: p.epochs}
	var found []metrics.Record
	optional := func(q quantity) *metrics.Number {
		if !v.has[q] {
			return nil
		}
		return metrics.NewNumber(v.value[q])
	}
	if train || !eval {
		r := base
		r.Kind, r.Loss, r.Accuracy, r.LR = kindTrain, optional(qLoss), optional(qAccuracy), optional(qLR)
		r.SamplesPerSecond, r.TokensPerSecond = optional(qSamplesPerSecond), optional(qTokensPerSecond)
		if r.StepMillis = v.stepMillis(); r.StepMillis == nil && v.fromBar {
			r.StepMillis = p.bar.stepMillis
		}
		found = append(found, r)
	}
	if eval {
		r := base
		r.Kind, r.Loss, r.Accuracy = kindEval, optional(qEvalLoss), optional(qEvalAccuracy)
		if v.has[qEpoch] && v.value[qEpoch] == math.Trunc(v.value[qEpoch]) {
			r.Epoch++ // an evaluation has the number of epochs that are done
		}
		found = append(found, r)
	}
	return p.dropOld(found)
}

// dropOld returns the records with later steps than the newest record of their kind.
func (p *Parser) dropOld(all []metrics.Record) []metrics.Record {
	return slices.DeleteFunc(all, func(r metrics.Record) bool {
		if last, ok := p.last[r.Kind]; ok && r.Step <= last {
			return true
		}
		p.last[r.Kind] = r.Step
		return false
	})
}

// stepMillis returns the duration of a step in a line, or nil if the line does not have it.
func (v *values) stepMillis() *metrics.Number {
	switch {
	case v.has[qStepMillis]:
		return metrics.NewNumber(v.value[qStepMillis])
	case v.has[qStepSeconds]:
		return metrics.NewNumber(1000 * v.value[qStepSeconds])
	case v.has[qStepsPerSecond] && v.value[qStepsPerSecond] > 0:
		return metrics.NewNumber(1000 / v.value[qStepsPerSecond])
	}
	return nil
}

// position returns the global step of a line. It returns false for a line without a step.
func (p *Parser) position(v *values) (position, bool) {
	if v.has[qEpoch] {
		if epoch := v.value[qEpoch]; epoch >= 0 && epoch < math.MaxInt32 {
			p.epoch, p.hasEpoch = int(epoch), true
			p.fromZero = p.fromZero || epoch == 0
			// A fraction, as Hugging Face's Trainer prints it, counts the epochs that are done.
			done := epoch != math.Trunc(epoch)
			p.epochIndex = p.epoch
			if !done && !p.fromZero && !v.fromZero {
				p.epochIndex = max(0, p.epoch-1)
			}
		}
	}
	if v.epochs > 0 {
		p.epochs = v.epochs
	}
	if v.steps > 0 {
		p.steps = v.steps
	}
	step := v.value[qStep]
	switch {
	case v.has[qStep] && (step < 0 || step > math.MaxInt32 || step != math.Trunc(step)):
		return position{}, false
	case v.has[qStep] && v.withinEpoch > 0:
		at := position{step: p.epochIndex*v.withinEpoch + int(step)}
		if p.epochs > 0 {
			at.steps = p.epochs * v.withinEpoch
		}
		return at, true
	case v.has[qStep]:
		printed := int(step)
		if p.earlier != nil {
			p.setFirstOffset(printed, v.has[qEpoch])
		}
		if printed < p.passStep/2 && p.passStep >= 4 {
			// The program counts the steps of each epoch from the start.
			p.passOffset += p.passStep
			p.steps = 0
		}
		p.passStep = printed
		at := position{step: p.passOffset + printed}
		if p.passOffset == 0 {
			at.steps = p.steps
		}
		return at, true
	case p.bar != nil:
		if train := v.has[qLoss] || v.has[qAccuracy]; train {
			// A second training run begins after the first.
			if p.otherBar != nil && (!p.barUsed || p.bar.step >= p.bar.steps) {
				p.bar, p.otherBar = p.otherBar, nil
			}
			p.barUsed = true
		}
		v.fromBar = true
		return p.bar.position, true
	case v.has[qEpoch]:
		return position{step: p.epoch, steps: p.epochs}, true
	}
	return position{}, false
}

// jsonLine is a line that a program writes for ddpbatch.
type jsonLine struct {
	Kind     string          `json:"kind"`
	Step     *int            `json:"step"`
	Steps    int             `json:"steps"`
	Epoch    float64         `json:"epoch"`
	Epochs   int             `json:"epochs"`
	Loss     *metrics.Number `json:"loss"`
	EvalLoss *metrics.Number `json:"eval_loss"`
	Accuracy *metrics.Number `json:"accuracy"`
	LR       *metrics.Number `json:"lr"`
	Samples  *metrics.Number `json:"samples_per_s"`
	Tokens   *metrics.Number `json:"tokens_per_s"`
	StepMS   *metrics.Number `json:"step_ms"`
}

// ParseJSON returns the records in a JSON line that a program wrote for ddpbatch. The object
// must contain "step". Other fields are the fields of [metrics.Record], and "eval_loss".
func (p *Parser) ParseJSON(line string) []metrics.Record {
	var l jsonLine
	if len(line) > maxLine || decodeLine(line, &l) != nil || l.Step == nil || *l.Step < 0 || l.Epoch < 0 || l.Epoch > math.MaxInt32 {
		return nil
	}
	r := metrics.Record{Kind: kindTrain, Step: *l.Step, Steps: l.Steps, Epoch: int(l.Epoch), Epochs: l.Epochs, Loss: l.Loss, Accuracy: l.Accuracy, LR: l.LR,
		SamplesPerSecond: l.Samples, TokensPerSecond: l.Tokens, StepMillis: l.StepMS}
	if l.Kind == kindEval {
		r.Kind = kindEval
	}
	found := []metrics.Record{r}
	if l.EvalLoss != nil {
		e := metrics.Record{Kind: kindEval, Step: r.Step, Steps: r.Steps, Epoch: r.Epoch, Epochs: r.Epochs, Loss: l.EvalLoss}
		if r.Loss == nil {
			e.Accuracy = r.Accuracy
			found = nil
		}
		found = append(found, e)
	}
	return p.dropOld(found)
}
