//go:build linux

package cluster

import (
	"os"
	"strings"
)

// logTail is how many lines of each log Logs shows.
const logTail = 25

// Logs returns the ends of the daemons' logs, for a test that fails. After Stop it returns
// nothing where the directory was a temporary one.
func (c *Cluster) Logs() string {
	var b strings.Builder
	for _, name := range append([]string{controlName, accountingName}, c.Nodes()...) {
		// A daemon that came to its log says everything there; before that, on its console.
		for _, file := range []string{c.dir.log(name), c.dir.console(name)} {
			if st, err := os.Stat(file); err == nil && st.Size() > 0 {
				b.WriteString(tail(file, logTail))
				break
			}
		}
	}
	return b.String()
}
