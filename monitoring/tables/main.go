// Command tables writes the tables of metrics in docs/monitoring.md, from the registries of the
// programs:
//
//	go run ./monitoring/tables
//
// Each table is between the lines <!-- BEGIN program --> and <!-- END program -->.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/asg"
	"github.com/nstance/nstance/pkg/metrics"
	"github.com/nstance/nstance/pkg/metrics/prometheus"
	"github.com/nstance/nstance/pkg/server/measure"
)

const page = "docs/monitoring.md"

func main() {
	if err := run(page); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

// program is a program with metrics.
type program struct {
	name    string
	metrics []metrics.Info
}

func programs() []program {
	server := prometheus.New("", nil)
	measure.New(server, nil, func() measure.State { return measure.State{} })
	return []program{{"nstance-server", server.Infos()}, {"nstance-agent", agent.Metrics()}, {"nstance-asg", asg.Metrics()}}
}

// run writes the tables into a page.
func run(file string) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(before)
	for _, p := range programs() {
		begin, end := "<!-- BEGIN "+p.name+" -->\n", "<!-- END "+p.name+" -->"
		head, rest, ok := strings.Cut(text, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return fmt.Errorf("%s: want a line %s followed by a line %s", file, strings.TrimSpace(begin), end)
		}
		text = head + begin + "\n" + table(p.metrics) + "\n" + end + tail
	}
	if text == string(before) {
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // a public page
}

// table returns metrics as a table.
func table(all []metrics.Info) string {
	var out strings.Builder
	out.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, m := range all {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, m.Help)
	}
	return strings.ReplaceAll(out.String(), "|  |", "| |")
}
