package config

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/tailscale/hujson"
)

// WithProvider returns a static config with another provider kind and options; args_env is
// kept unless given. Everything else is unchanged, including comments, so that other versions
// can read it as before. The error is for a text that is not JSON with comments or has no
// server.provider.
func WithProvider(text []byte, kind string, options map[string]any) ([]byte, error) {
	v, err := hujson.Parse(text)
	if err == nil {
		options, err = withArgsEnv(options, v.Clone())
	}
	var patch []byte
	if err == nil {
		patch, err = json.Marshal([]map[string]any{ // RFC 6902: add replaces an existing member
			{"op": "add", "path": "/server/provider/kind", "value": kind},
			{"op": "add", "path": "/server/provider/options", "value": options},
		})
	}
	if err == nil {
		err = v.Patch(patch)
	}
	if err != nil {
		return nil, fmt.Errorf("set the provider of a config: %w", err)
	}
	return v.Pack(), nil
}

// withArgsEnv returns options with the args_env of a config, unless they have one.
func withArgsEnv(options map[string]any, v hujson.Value) (map[string]any, error) {
	v.Standardize()
	var has struct {
		Server struct {
			Provider struct {
				Options map[string]any `json:"options"`
			} `json:"provider"`
		} `json:"server"`
	}
	if err := json.Unmarshal(v.Pack(), &has); err != nil {
		return nil, err
	}
	names, ok := has.Server.Provider.Options[optionArgsEnv]
	if _, given := options[optionArgsEnv]; !ok || given {
		return options, nil
	}
	options = maps.Clone(options)
	if options == nil {
		options = map[string]any{}
	}
	options[optionArgsEnv] = names
	return options, nil
}

// optionArgsEnv lists the variables that groups may set in their agents' environment. All
// providers of local agents have it.
const optionArgsEnv = "args_env"
