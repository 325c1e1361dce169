package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTables: the page has the tables as they would be written now, and a page without the lines
// between which they belong is refused.
func TestTables(t *testing.T) {
	text := read(t, page)
	copied := filepath.Join(t.TempDir(), "page.md")
	for name, body := range map[string]string{
		"current": text,
		"stale":   regexp.MustCompile("(?m)^\\| `nstance_leader`.*\n").ReplaceAllString(text, ""),
	} {
		if err := os.WriteFile(copied, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(copied); err != nil {
			t.Fatal(err)
		}
		if written, err := os.ReadFile(copied); err != nil || string(written) != text {
			t.Errorf("%s: the tables are not current (%v): go run ./monitoring/tables", name, err)
		}
	}
	if err := os.WriteFile(copied, []byte("# Monitoring\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(copied); err == nil || !strings.Contains(err.Error(), "<!-- BEGIN nstance-server -->") {
		t.Errorf("a page without tables: %v", err)
	}
}

var metricName = regexp.MustCompile(`\bnstance_[a-z_]+\b`)

// known returns the series of all programs by name.
func known() map[string]bool {
	names := map[string]bool{}
	for _, p := range programs() {
		for _, m := range p.metrics {
			names[m.Name] = true
			if m.Type == "histogram" {
				names[m.Name+"_bucket"], names[m.Name+"_count"], names[m.Name+"_sum"] = true, true, true
			}
		}
	}
	return names
}

// TestNames: alerts, dashboard and page speak of metrics that are there.
func TestNames(t *testing.T) {
	names := known()
	for _, file := range []string{"monitoring/rules.yaml", "monitoring/dashboard.json", page} {
		found := metricName.FindAllString(read(t, file), -1)
		if len(found) < 10 {
			t.Errorf("%s speaks of only %d metrics", file, len(found))
		}
		for _, name := range found {
			if !names[name] {
				t.Errorf("%s speaks of %s, which no program has", file, name)
			}
		}
	}
}

// TestAlerts: the page says for each alert what to do, and for no other.
func TestAlerts(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Expr        string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "monitoring/rules.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			if want := page + "#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
				t.Errorf("the runbook of %s is %q, want %q", r.Alert, r.Annotations["runbook"], want)
			}
			known := slices.Contains([]string{"critical", "warning"}, r.Labels["severity"])
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !known {
				t.Errorf("%s lacks a summary, a description or a severity", r.Alert)
			}
		}
	}
	var explained []string
	for _, m := range regexp.MustCompile(`(?m)^### (Nstance\w+)$`).FindAllStringSubmatch(read(t, page), -1) {
		explained = append(explained, m[1])
	}
	if !slices.Equal(alerts, explained) {
		t.Errorf("the page explains %v, the alerts are %v", explained, alerts)
	}
}

// TestDashboard: every panel has a title and a query, none covers another, and all use the data
// source that is chosen at the import.
func TestDashboard(t *testing.T) {
	var board struct {
		Title, UID string
		Panels     []struct {
			ID          int
			Title, Type string
			GridPos     struct{ X, Y, W, H int }
			Datasource  struct{ UID string }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "monitoring/dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || len(board.Panels) < 10 {
		t.Fatalf("the dashboard %q has %d panels", board.Title, len(board.Panels))
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range board.Panels {
		if p.Title == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" || ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q is incomplete", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			if !strings.Contains(q.Expr, `shard=~"$shard"`) {
				t.Errorf("panel %q ignores the chosen shard: %s", p.Title, q.Expr)
			}
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" {
					t.Errorf("panels %q and %q cover each other", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
	}
}
