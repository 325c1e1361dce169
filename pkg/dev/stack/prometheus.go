package stack

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// scrapeInterval is short, so that things can be seen soon.
const scrapeInterval = "5s"

// prometheusConfig is the part of Prometheus' configuration that the stack needs. Source:
// https://prometheus.io/docs/prometheus/latest/configuration/configuration/
type prometheusConfig struct {
	Global    map[string]string `json:"global"`
	RuleFiles []string          `json:"rule_files,omitempty"`
	Scrape    []scrapeConfig    `json:"scrape_configs"`
}

type scrapeConfig struct {
	Job    string         `json:"job_name"`
	Static []staticConfig `json:"static_configs"`
}

type staticConfig struct {
	Targets []string `json:"targets"`
}

// prometheusFile is a configuration with which Prometheus scrapes the stack.
func (c Config) prometheusFile() string { return filepath.Join(c.Temp, "prometheus.yaml") }

// writePrometheus writes it, with the alerts if there is a source tree.
func writePrometheus(cfg Config) error {
	out := prometheusConfig{Global: map[string]string{"scrape_interval": scrapeInterval, "evaluation_interval": scrapeInterval}}
	if rules := filepath.Join(cfg.Repository, "monitoring", "rules.yaml"); isFile(rules) {
		out.RuleFiles = []string{rules}
	}
	var targets []string
	for _, shard := range cfg.shards() {
		for _, s := range cfg.servers(shard) {
			targets = append(targets, s.addr(metricsPort))
		}
	}
	out.Scrape = []scrapeConfig{{Job: "nstance-server", Static: []staticConfig{{Targets: targets}}}}
	text, err := yaml.Marshal(out)
	if err == nil {
		err = os.WriteFile(cfg.prometheusFile(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the configuration of Prometheus: %w", err)
	}
	return nil
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
