//go:build linux

package cluster

import (
	"os"
	"strings"
)

// logTail is the number of lines of each log that Logs returns.
const logTail = 25

// Logs returns the ends of the daemons' logs, for a failed test. After Stop it returns nothing if
// the directory was temporary.
func (c *Cluster) Logs() string {
	var b strings.Builder
	for _, name := range append([]string{controlName, accountingName}, c.Nodes()...) {
		// A daemon writes to its log once it has opened it, and to its console before that.
		for _, file := range []string{c.dir.log(name), c.dir.console(name)} {
			if st, err := os.Stat(file); err == nil && st.Size() > 0 {
				b.WriteString(tail(file, logTail))
				break
			}
		}
	}
	return b.String()
}
