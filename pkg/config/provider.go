package config

import (
	"encoding/json"
	"fmt"

	"github.com/tailscale/hujson"
)

// WithProvider returns the text of a static config with another kind of provider and
// other options of it. All else stays as it was written, comments too, so that a
// version that has other fields can read it as well as before. The error is for a
// text that is no JSON with comments or has no server.provider.
func WithProvider(text []byte, kind string, options map[string]any) ([]byte, error) {
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("set the provider of a config: %w", err)
	}
	// RFC 6902: add replaces a member that is there.
	patch, err := json.Marshal([]map[string]any{
		{"op": "add", "path": "/server/provider/kind", "value": kind},
		{"op": "add", "path": "/server/provider/options", "value": options},
	})
	if err != nil {
		return nil, fmt.Errorf("set the provider of a config: %w", err)
	}
	if err := v.Patch(patch); err != nil {
		return nil, fmt.Errorf("set the provider of a config: %w", err)
	}
	return v.Pack(), nil
}
