package stack

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nstance/nstance/pkg/config"
)

// writeConfigs writes the shards' static config into the bucket. The examples use the process
// provider, which a stack on containers replaces.
func writeConfigs(cfg Config) error {
	dir := filepath.Join(cfg.Temp, "dev-s3", "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("place config: %w", err)
	}
	for _, s := range cfg.shards() {
		body, err := os.ReadFile(filepath.Join(cfg.Examples, s.id+".jsonc"))
		if err != nil {
			return fmt.Errorf("place config: %w", err)
		}
		body, err = withProvider(body, cfg)
		if err != nil {
			return fmt.Errorf("place config of %s: %w", s.id, err)
		}
		if err := os.WriteFile(filepath.Join(dir, s.id+".jsonc"), body, 0o644); err != nil {
			return fmt.Errorf("place config: %w", err)
		}
	}
	return nil
}

// withProvider returns an example's config with the stack's provider.
func withProvider(body []byte, cfg Config) ([]byte, error) {
	return config.WithProvider(body, cfg.Provider, providerOptions(cfg))
}
