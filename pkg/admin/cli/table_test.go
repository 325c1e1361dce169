package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nstance/nstance/pkg/admin/cli"
)

// TestTableWidth: a table has at most 120 columns; its names are never cut, the last column is wrapped, and
// wide shows all in one line.
func TestTableWidth(t *testing.T) {
	c := newFixture(t).register()
	long := strings.Repeat("no capacity in any zone ", 20)
	name := "a-group-with-a-long-name"
	g := web(3, 1)
	g.Key, g.StaticSize, g.InstanceType, g.Conditions[0].Message = name, 5, "u7inh-32tb.480xlarge", long
	c.shard("eu-central-1a-production-cluster").setGroups(g, web(1, 1))
	r := c.run("group", "list").want(t, cli.ExitOK)
	for line := range strings.Lines(r.out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if text := strings.Join(strings.Fields(r.out), " "); !strings.Contains(r.out, name) || !strings.Contains(r.out, "…") ||
		!strings.Contains(text, strings.TrimSpace(long)) {
		t.Errorf("output %s", r.out)
	}
	if r := c.run("group", "list", "-o", "wide").want(t, cli.ExitOK); !strings.Contains(r.out, strings.TrimSpace(long)) ||
		strings.Contains(r.out, "…") || strings.Count(r.out, "\n") != 3 {
		t.Errorf("wide: %s", r.out)
	}
}

// TestTableForms: names alone, no titles, and an order by any column.
func TestTableForms(t *testing.T) {
	c := newFixture(t).register()
	for n, shard := range []string{"dev-1", "dev-2"} {
		s := c.shard(shard)
		for i, size := range []int32{10, 9, 100} {
			g := web(size, 1)
			g.Key = fmt.Sprintf("g%d%d", n, i)
			s.setGroups(g)
		}
	}
	for _, x := range []struct {
		args []string
		want []string
	}{
		{[]string{"-o", "name"}, []string{"g00", "g01", "g02", "g10", "g11", "g12"}},
		{[]string{"-o", "name", "--sort", "size"}, []string{"g01", "g11", "g00", "g10", "g02", "g12"}},
		{[]string{"-o", "name", "--sort", "SHARD", "--shard", "dev-2"}, []string{"g10", "g11", "g12"}},
	} {
		r := c.run(append([]string{"group", "list"}, x.args...)...).want(t, cli.ExitOK)
		if got := strings.Fields(r.out); strings.Join(got, " ") != strings.Join(x.want, " ") {
			t.Errorf("%v: %v, want %v", x.args, got, x.want)
		}
	}
	if r := c.run("group", "list", "--no-headers").want(t, cli.ExitOK); strings.Contains(r.out, "SHARD") || strings.Count(r.out, "\n") != 6 {
		t.Errorf("without titles: %s", r.out)
	}
	groups := decode[[]group](t, c.run("group", "list", "-o", "json", "--sort", "size").want(t, cli.ExitOK).out)
	if groups[0].Message.GetSize() != 9 {
		t.Errorf("JSON in the order of sizes: %v", groups[0].Message)
	}
	c.run("group", "list", "--sort", "colour").want(t, cli.ExitUsage,
		`--sort: "colour" is not a column: want one of shard, tenant, group, size`)
	c.run("group", "status", "g00", "-o", "name").want(t, cli.ExitUsage, `--output: "name" is not valid: want table, json or yaml`)
}
