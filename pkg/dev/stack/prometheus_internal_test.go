package stack

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestPrometheus: Prometheus scrapes all servers, the standby too, with the alerts if there are any.
func TestPrometheus(t *testing.T) {
	repository := t.TempDir()
	for _, withAlerts := range []bool{false, true} {
		cfg := Config{Temp: t.TempDir(), Repository: repository, Standby: true, PortOffset: 1000}
		if withAlerts {
			if err := os.Mkdir(filepath.Join(repository, "monitoring"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(repository, "monitoring", "rules.yaml"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := writePrometheus(cfg); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(cfg.Temp, "prometheus.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Rules  []string `json:"rule_files"`
			Scrape []struct {
				Static []struct{ Targets []string } `json:"static_configs"`
			} `json:"scrape_configs"`
		}
		if err := yaml.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Scrape) != 1 || len(got.Scrape[0].Static) != 1 ||
			!slices.Equal(got.Scrape[0].Static[0].Targets, []string{"127.0.0.1:9996", "127.0.0.1:10016", "127.0.0.1:10006"}) {
			t.Errorf("not all servers are scraped: %s", text)
		}
		if withAlerts != (len(got.Rules) == 1) {
			t.Errorf("the rules are %q", got.Rules)
		}
	}
}
